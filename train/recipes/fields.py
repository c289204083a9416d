"""The settings of a run: each field with its help, limits and choices."""

import dataclasses
import functools

from train.common.setting import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    AUTO,
    BELOW_1,
    FRACTION,
    MISSING,
    each,
    setting,
)
from train.data.registry import CROPS
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES
from train.tasks import TASKS
from zoo import ViTConfig
from zoo.common.limits import BATCH_SIZE


def _is_count(value):
    return not isinstance(value, str) and value >= 1


def _is_weights(values):
    return not isinstance(values, str) and 0 <= min(values, default=0) < sum(values)


# A field whose `changes` is one of these does not decide the result: it changes only
# what is written on the way, or random numbers and rounding, on which no published
# number depends.
OUTPUT, NOISE = "output", "noise"
_data, _model, _optimization, _augmentation, _run, _devices = (
    functools.partial(setting, group=group)
    for group in ("Data", "Model", "Optimization", "Augmentation", "Run", "Devices")
)


@dataclasses.dataclass(frozen=True)
class TrainingSettings:
    """The fields of `train.recipes.Recipe` beside the augmentations of images."""

    dataset: str = setting(MISSING, "The name or path of the data.")
    model: str | ViTConfig = _model(
        MISSING,
        "A released variant such as ViT-B_16 or R50+ViT-B_16; what brings its weights, "
        "such as dinov2-s14/lvd142m, hf://org/name or the path of a file; or to "
        "compare with, a ResNet such as BiT-R50x1 or ResNet50V2.",
    )
    weights: str | None = _model(
        MISSING,
        "Weights of a variant: a release such as imagenet21k or augreg-imagenet21k, "
        "the path or URL of a released .npz, or none for random weights.",
    )
    image_size: int | tuple[int, int] = _model(
        MISSING,
        "Pixels: one number, or HEIGHT,WIDTH.",
        example="one number such as 224, or HEIGHT,WIDTH such as 224,320",
    )
    steps: int = _optimization(MISSING, "Training steps.", AT_LEAST_1)
    epochs: float | None = _optimization(
        None,
        "Passes over the training images, instead of --steps, which follow from them.",
        ABOVE_0,
    )
    batch_size: int = _optimization(
        512,
        "Images per step. auto: the recipe's, with --micro_batches=auto.",
        AT_LEAST_1,
        (f"at most {BATCH_SIZE:,}", lambda value: value <= BATCH_SIZE),
        takes_auto=True,
    )
    micro_batches: int | str = _optimization(
        8,
        "Parts in which the batch of a step is computed: more need less memory. auto: "
        "as few as fit in it. Follows batch_size if not given.",
        ("at least 1, or auto", lambda value: value == AUTO or _is_count(value)),
        takes_auto=True,
        changes=NOISE,
    )
    optimizer: str = _optimization("momentum", "The optimizer.", choices=OPTIMIZERS)
    learning_rate: float = _optimization(0.03, "The highest learning rate.", ABOVE_0)
    learning_rates: tuple[float, ...] = setting(
        (0.001, 0.003, 0.01, 0.03),
        "The learning rates that the source of the recipe tried.",
        each(ABOVE_0),
        example="numbers such as 0.001,0.003,0.01",
        changes=OUTPUT,
    )
    schedule: str = _optimization(
        "cosine", "The decay of the learning rate.", choices=SCHEDULES
    )
    warmup_steps: int = _optimization(
        500, "Steps of rising learning rate. Keeps its share of the steps if not given."
    )
    weight_decay: float = _optimization(
        0.0, "Decay of kernels, times the rate; with adam.", AT_LEAST_0
    )
    momentum: float = setting(0.9, "Momentum of the optimizer of that name.", BELOW_1)
    clip_norm: float | None = setting(
        1.0, "The largest norm of the whole gradient, None for any.", ABOVE_0
    )
    layer_decay: float = _optimization(
        1.0,
        "Factor of the learning rate from each block to the one before it.",
        ("in (0, 1]", lambda value: 0.0 < value <= 1.0),
        of_blocks=True,
        of_classifiers=True,
    )
    average_decay: float = _optimization(
        0.0,
        "Decay of an exponential moving average of the weights, such as 0.9999: the "
        "averages are tested and saved (Polyak, EMA).",
        BELOW_1,
    )
    momentum_dtype: str | None = _optimization(
        None,
        "Dtype of the optimizer's momentum, bfloat16 as in the released code; that of "
        "the weights if not given.",
        choices=("bfloat16",),
    )
    loss: str = _optimization(
        "softmax", "The loss.", choices=LOSSES, of_classifiers=True
    )
    label_smoothing: float = _optimization(
        0.0,
        "The part of each label that is spread over all classes.",
        FRACTION,
        of_classifiers=True,
    )
    early_stopping: int = _optimization(
        0,
        "Stop after this many validations without a better accuracy (balanced accuracy "
        "where classes are uneven), and take the best weights; 0 for never.",
        AT_LEAST_0,
    )
    task: str | None = _data(
        None,
        "What the model learns to answer. If not given, several labels where a table "
        "shows them, else one class.",
        choices=TASKS,
        of_classifiers=True,
    )
    mask_head: str | None = _model(
        None,
        "With --task=masks, what says the class of every pixel: linear, on the map of "
        "patches; or eomt, queries in the last blocks, which learns with all weights. "
        "linear if not given.",
        choices=("linear", "eomt"),
        of_classifiers=True,
    )
    ignore: str | None = _data(
        None,
        "With --task=masks, names or values of classes whose pixels do not count, with "
        "commas between, or none; 255, void, ignore, unlabeled and the like if not "
        "given.",
        of_classifiers=True,
    )
    image_column: str | None = setting(
        None, "The column of a CSV file that has the files."
    )
    label_column: str | None = setting(None, "The column that has the classes.")
    split_column: str | None = setting(None, "The column that has the split.")
    train_examples: int | None = _data(
        None, "Train on this many images only, chosen at random.", AT_LEAST_1
    )
    test_examples: int | None = setting(
        None, "How many are tested and validated at most, None for all.", AT_LEAST_1
    )
    validation_fraction: float = _data(
        0.02, "Part of train held out for validation; 0 for none.", BELOW_1
    )
    class_weights: str | tuple[float, ...] | None = _data(
        None,
        "balanced, or one number per class: the weight of its images in the loss.",
        (
            "balanced or one number per class, at least 0 each and one above 0",
            lambda value: value == "balanced" or _is_weights(value),
        ),
        example="balanced, or one number per class",
        of_classifiers=True,
    )
    bits: int | None = setting(
        None, "Bits of the values in files of 16 bits, see `zoo.photos.decode`."
    )
    dropout_rate: float | None = _model(
        None, "Dropout.", BELOW_1, otherwise="dropout", argument="dropout_rate"
    )
    stochastic_depth_rate: float = _model(
        0.0,
        "The rate at which the last block is dropped; earlier blocks less often.",
        BELOW_1,
        argument="stochastic_depth_rate",
    )
    pre_logits: bool = setting(
        False,
        "Whether a tanh layer is before the head.",
        argument="representation_size",
        of_classifiers=True,
    )
    head_bias: float = _model(
        0.0,
        "Initial value of the head's bias.",
        argument="head_bias_init",
        of_classifiers=True,
    )
    frozen: bool = _model(
        False, "Train the head alone: a linear probe.", of_classifiers=True
    )
    lora_rank: int = _model(
        0,
        "Train the head and products of this rank added to queries and values (LoRA).",
        AT_LEAST_0,
        of_blocks=True,
        of_classifiers=True,
    )
    crop: str = _augmentation(
        "inception", "The crop of training images.", choices=CROPS
    )
    flip: bool = _augmentation(
        True,
        "Mirror half of the training images; --flip=no where left and right differ, as "
        "in text.",
    )
    seed: int = _run(
        0,
        "Seed of initialisation, order, crops and dropout.",
        ("from 0 to 4294967295", lambda value: 0 <= value < 2**32),
        changes=NOISE,
    )
    eval_every: int | None = _run(
        None,
        "Steps between validations.",
        AT_LEAST_1,
        changes=OUTPUT,
        otherwise="eval_interval",
    )
    checkpoint_every: int | None = _run(
        None,
        "Steps between checkpoints.",
        AT_LEAST_1,
        changes=OUTPUT,
        otherwise="checkpoint_interval",
    )
    explained_images: int = _run(
        0,
        "Show the model's attention for this many held out images in TensorBoard at "
        "each validation.",
        AT_LEAST_0,
        changes=OUTPUT,
    )
    precision: str = _devices(
        "float32",
        "What the model computes in; auto is mixed_bfloat16 where the devices multiply "
        "in it, else float32.",
        choices=(*PRECISIONS, AUTO),
    )
    remat: bool = _devices(
        False,
        "Recompute the blocks' activations for the gradient, to need less memory.",
        changes=NOISE,
        argument="remat",
    )
    published: str = setting(
        "", "The accuracy to expect and its source.", changes=OUTPUT
    )
