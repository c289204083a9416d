"""The settings of a run, as data."""

import dataclasses
import functools
import math
import os
import pathlib
import re
from typing import Any

from train.common.setting import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    AUTO,
    BELOW_1,
    FRACTION,
    MISSING,
    check_limits,
    each,
    setting,
)
from train.data.registry import CROPS, Augmentation, augmentations, kind_of
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES
from zoo import VARIANTS, ViTConfig
from zoo.catalog.locate import check, named
from zoo.catalog.similar import similar_variants
from zoo.files.opening import EXTENSIONS
from zoo.limits import BATCH_SIZE, FLOAT
from zoo.network import NETWORKS
from zoo.preparation import check_bits

# The released code's dropout for fine-tuning; models not named have none.
DROPOUT = {"ViT-L_16": 0.1, "ViT-H_14": 0.1, "R50+ViT-B_16": 0.1}


def base_name(dataset) -> str:
    """Returns the name of a TFDS data set without version and configuration."""
    return dataset.partition(":")[0].partition("/")[0]


def brings_weights(model) -> bool:
    """Returns whether a model is not a variant but weights: a handle, path or URL."""
    if not isinstance(model, str) or model in NETWORKS:
        return False
    return "/" in model or model.endswith(EXTENSIONS) or named(model) is not None


def divisors(number) -> list:
    """Returns the divisors of a number of images, sorted ints.

    Example:
        >>> divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _is_count(value):
    return not isinstance(value, str) and value >= 1


def _is_weights(values):
    return not isinstance(values, str) and 0 <= min(values, default=0) < sum(values)


# Values of `changes`, of fields that do not decide the result: they change only what is
# written on the way, or random numbers and rounding, on which no published number
# depends.
OUTPUT, NOISE = "output", "noise"
_data, _model, _optimization, _augmentation, _run, _devices = (
    functools.partial(setting, group=group)
    for group in ("Data", "Model", "Optimization", "Augmentation", "Run", "Devices")
)


@dataclasses.dataclass(frozen=True)
class Recipe(Augmentation):
    """A run of training, from released weights or from scratch.

    The fields are settings with their help, limits and choices; those with a group are
    flags of `keras-vit finetune`. `model` may also be a `ViTConfig`. `weights` are None
    for random ones; those of a model that brings its own, as `"dinov2-s14/lvd142m"`
    does, are named as it is. Where a setting is None, what its `otherwise` names holds.

    Raises:
        ValueError: a value is out of range or not finite, or does not fit the others.

    Example:
        >>> Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000).dropout
        0.0
    """

    dataset: str = setting(MISSING, "The name or path of the data.")
    model: str | ViTConfig = _model(
        MISSING,
        "A released variant such as ViT-B_16 or R50+ViT-B_16; what brings its weights, "
        "such as dinov2-s14/lvd142m, hf://org/name or the path of a file; or to "
        "compare with, a ResNet such as BiT-R50x1 or ResNet50V2.",
    )
    weights: str | None = _model(
        MISSING,
        "Of a variant: a release such as imagenet21k or augreg-imagenet21k, the path "
        "or URL of a released .npz, or none for random weights.",
    )
    image_size: int | tuple[int, int] = _model(
        MISSING,
        "Pixels: one number, or HEIGHT,WIDTH.",
        example="one number such as 224, or HEIGHT,WIDTH such as 224,320",
    )
    steps: int = _optimization(MISSING, "Training steps.", AT_LEAST_1)
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
    momentum: float = setting(0.9, "That of the optimizer momentum.", BELOW_1)
    clip_norm: float | None = setting(
        1.0, "The largest norm of the whole gradient, None for any.", ABOVE_0
    )
    layer_decay: float = _optimization(
        1.0,
        "Factor of the learning rate from each block to the one before it.",
        ("in (0, 1]", lambda value: 0.0 < value <= 1.0),
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
    loss: str = _optimization("softmax", "The loss.", choices=LOSSES)
    label_smoothing: float = _optimization(
        0.0, "The part of each label that is spread over all classes.", FRACTION
    )
    early_stopping: int = _optimization(
        0,
        "Stop after so many validations without a better accuracy, and take the best "
        "weights; 0 for never.",
        AT_LEAST_0,
    )
    train_examples: int | None = _data(
        None, "Train on so many images only, chosen at random.", AT_LEAST_1
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
    )
    bits: int | None = setting(
        None, "Bits of the values in files of 16 bits, see `zoo.photos.decode`."
    )
    dropout_rate: float | None = _model(None, "Dropout.", BELOW_1, otherwise="dropout")
    stochastic_depth_rate: float = _model(
        0.0,
        "The rate at which the last block is dropped; earlier blocks less often.",
        BELOW_1,
    )
    pre_logits: bool = setting(False, "Whether a tanh layer is before the head.")
    head_bias: float = _model(0.0, "Initial value of the head's bias.")
    frozen: bool = _model(False, "Train the head alone: a linear probe.")
    lora_rank: int = _model(
        0,
        "Train the head and products of this rank added to queries and values (LoRA).",
        AT_LEAST_0,
    )
    crop: str = _augmentation(
        "inception", "What of a training image is seen.", choices=CROPS
    )
    flip: bool = _augmentation(
        True,
        "Mirror half of the training images; --flip=no where left and right differ, as "
        "in text.",
    )
    seed: int = _run(
        0,
        "Of initialisation, order, crops and dropout.",
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
        "Show the model's attention for so many held out images in TensorBoard at each "
        "validation.",
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
    )
    published: str = setting(
        "", "The accuracy to expect and its source.", changes=OUTPUT
    )

    def __post_init__(self):
        check_limits(self)
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} must be at least 0 and less than "
                f"steps={self.steps}."
            )
        self.check_augmentation()
        object.__setattr__(self, "bits", check_bits(self.bits))
        if self.micro_batches != AUTO and self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be cut into "
                f"micro_batches={self.micro_batches} equal parts."
            )
        if self.frozen and self.lora_rank:
            raise ValueError(
                f"frozen trains the head alone, lora_rank={self.lora_rank} more than "
                "it: pass one of them."
            )
        decaying = [
            name
            for name, choice in OPTIMIZERS.items()
            if "weight_decay" in choice.settings.values()
        ]
        if self.weight_decay and self.optimizer not in decaying:
            raise ValueError(
                f"weight_decay={self.weight_decay} does nothing with "
                f"optimizer={self.optimizer}: leave it out, or pass "
                f"optimizer={' or '.join(decaying)}."
            )
        if self.early_stopping and not self.validation_fraction:
            raise ValueError(
                f"early_stopping={self.early_stopping} needs the accuracy on held out "
                "images: pass a validation_fraction above 0."
            )
        rates = tuple(dict.fromkeys(self.learning_rates))
        object.__setattr__(self, "learning_rates", rates)

    def check(self) -> None:
        """Refuses models and weights that there are not, and what does not fit them.

        Nothing is downloaded: so a mistake is found before anything else is done.

        Raises:
            ValueError: there is no such model or release, its patches do not divide
                the images, or it has no blocks for what is asked of them.
            StoreError: there is no such file, or registries cannot be read.
        """
        model: Any = self.model
        is_name = isinstance(model, str) and not brings_weights(model)
        if is_name and model not in NETWORKS:
            near = similar_variants(model, NETWORKS)
            hint = f"did you mean {' or '.join(near)}? Choose" if near else "choose"
            raise ValueError(
                f"There is no model {model!r}: {hint} one of {', '.join(NETWORKS)}, or "
                "what keras-vit zoo list shows, hf://org/name, or the path of a file."
            )
        config = NETWORKS.get(model, model) if is_name else model
        is_other = not isinstance(config, (str, ViTConfig))
        for field in ("lora_rank", "layer_decay"):
            if is_other and is_name and getattr(self, field) != getattr(Recipe, field):
                raise ValueError(
                    f"--{field} needs transformer blocks; {model} has none: leave it "
                    "out, or choose a Vision Transformer."
                )
        if isinstance(config, ViTConfig):
            name = model if isinstance(model, str) else "This model"
            config.grid_size(self.image_size, name)
        if self.weights is not None and not is_other:
            check(self.weights, model if model in VARIANTS else None)

    def override(self, **values) -> "Recipe":
        """Returns the recipe with other values.

        A `batch_size` of "auto" stays, and micro-batches become "auto" instead. Unless
        given, weights are those of a model that brings its own, the warm-up
        keeps its share of the steps and micro-batches about their size. The published
        number is dropped, unless all that changes is the seed, how a step is computed
        (micro-batches, remat), or what is logged. Raises a `ValueError` where the
        values do not fit each other.

        Example:
            >>> recipe = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)
            >>> recipe.override(steps=400, batch_size=64).warmup_steps
            20
        """
        if values.get("batch_size") == AUTO:
            del values["batch_size"]
            if values.setdefault("micro_batches", AUTO) != AUTO:
                raise ValueError(
                    "batch_size=auto chooses the number of micro-batches: leave out "
                    f"micro_batches={values['micro_batches']}, or give a batch_size."
                )
        if brings_weights(values.get("model")):
            values.setdefault("weights", values["model"])
        if values.get("steps", 0) and values["steps"] <= FLOAT:
            share = self.warmup_steps / self.steps
            values.setdefault("warmup_steps", int(share * values["steps"]))
        is_auto = AUTO in (self.micro_batches, values.get("micro_batches"))
        if 0 < values.get("batch_size", 0) <= BATCH_SIZE and not is_auto:
            batch_size = values["batch_size"]
            least = -(-batch_size * self.micro_batches // self.batch_size)
            parts = next(n for n in divisors(batch_size) if n >= least)
            values.setdefault("micro_batches", parts)
        changed = dataclasses.replace(self, **values)
        differing = {
            field.name
            for field in dataclasses.fields(self)
            if "changes" not in field.metadata
            and getattr(self, field.name) != getattr(changed, field.name)
        }
        is_same_data = not kind_of(changed.dataset).is_own and (
            base_name(self.dataset) == base_name(changed.dataset)
        )
        if "published" in values or (differing <= {"dataset"} and is_same_data):
            return changed
        return dataclasses.replace(changed, published="")

    @classmethod
    def settings(cls) -> list:
        """Returns the fields in the order in which they are shown."""
        # The augmentations, which are inherited, come last.
        last = augmentations()
        return sorted(dataclasses.fields(cls), key=lambda field: field.name in last)

    def in_use(self) -> dict:
        """Returns the values that hold for settings of None, by their names."""
        return {
            field.name: getattr(self, field.metadata["otherwise"])
            for field in dataclasses.fields(self)
            if "otherwise" in field.metadata and getattr(self, field.name) is None
        }

    def as_dict(self) -> dict:
        """Returns the settings by name, in the order of `settings`."""
        values = dataclasses.asdict(self)
        return {field.name: values[field.name] for field in self.settings()}

    @property
    def deciding(self) -> dict:
        """The settings that decide the result, not only what is written, as a dict."""
        settings = self.as_dict()
        for field in dataclasses.fields(self):
            decides = field.name == "eval_every" and self.early_stopping
            if field.metadata.get("changes") == OUTPUT and not decides:
                del settings[field.name]
        return settings

    def smoke(self) -> "Recipe":
        """Returns a tiny version of the recipe for a smoke test of a minute.

        The model keeps its kind and patch size, but is tiny and has random weights.

        Example:
            >>> recipe = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)
            >>> recipe.smoke().steps, recipe.smoke().image_size
            (8, 32)
        """
        if brings_weights(self.model):
            raise ValueError(
                f"--smoke trains a tiny model of random weights, and {self.model} has "
                "its own: pass a variant such as ViT-B_16 as --model."
            )
        model: Any = self.model
        config = VARIANTS.get(model, model)
        image_size = 64
        if isinstance(config, ViTConfig):
            tiny: dict[str, Any] = {"hidden_size": 32, "num_layers": 2}
            tiny |= {"num_heads": 2, "mlp_dim": 64}
            if config.is_hybrid:
                tiny["resnet_stages"] = tuple(1 for _ in config.resnet_stages)
                tiny["resnet_width"] = 32
            config = dataclasses.replace(config, **tiny)
            height, width = (2 * stride for stride in config.stride)
            image_size = height if height == width else (height, width)
        return dataclasses.replace(
            self,
            model=config,
            weights=None,
            image_size=image_size,
            steps=8,
            warmup_steps=2,
            batch_size=16,
            micro_batches=2,
            train_examples=256,
            test_examples=128,
            eval_every=4,
            checkpoint_every=4,
            published="",
        )

    @property
    def run_name(self) -> str:
        """The name of the run's directory where none is given."""
        kind = type(self.model).__name__.removesuffix("Config")
        model = self.model if isinstance(self.model, str) else kind
        if os.path.exists(model):
            model = pathlib.Path(model).name
        name = f"{pathlib.Path(self.dataset).name}-{model}"
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", name)

    @property
    def eval_interval(self) -> int:
        """Steps between validations."""
        return self.eval_every or max(self.steps // 20, min(self.steps, 10))

    @property
    def checkpoint_interval(self) -> int:
        """Steps between checkpoints."""
        return self.checkpoint_every or max(self.steps // 10, min(self.steps, 10))

    @property
    def dropout(self) -> float:
        """The dropout that was given, or else the released code's for this model."""
        if self.dropout_rate is not None:
            return self.dropout_rate
        return DROPOUT.get(str(self.model), 0.0)
