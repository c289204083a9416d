"""The settings of a run, as data."""

import dataclasses
import math
import numbers
import os
import pathlib
import re

from train.data.registry import CROPS, Augmentation, kind_of
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES
from zoo import ARCHITECTURES, ViTConfig
from zoo.catalog.locate import check, named
from zoo.catalog.similar import similar_variants
from zoo.files.opening import EXTENSIONS
from zoo.limits import BATCH_SIZE, FLOAT
from zoo.preparation import check_bits

# ResNets to compare with, which `train.baselines` builds.
BASELINES = ("BiT-R50x1", "ResNet50V2")
# The released code's dropout for fine-tuning; models not named have none.
DROPOUT = {"ViT-L_16": 0.1, "ViT-H_14": 0.1, "R50+ViT-B_16": 0.1}

# Metadata of fields that do not decide the result: they change only what is written on
# the way, or random numbers and rounding, on which no published number depends.
_OUTPUT = {"changes": "output"}
_NOISE = {"changes": "noise"}
# As many micro-batches as the memory of the devices makes necessary, and the precision
# that they compute in.
AUTO = "auto"
_CHOICES = {
    "optimizer": OPTIMIZERS,
    "schedule": SCHEDULES,
    "loss": LOSSES,
    "precision": (*PRECISIONS, AUTO),
    "crop": CROPS,
}


def base_name(dataset):
    """Returns the name of a TFDS data set without version and configuration."""
    return dataset.partition(":")[0].partition("/")[0]


def brings_weights(model):
    """Returns whether a model is not a variant but weights: a handle, path or URL."""
    if not isinstance(model, str) or model in ARCHITECTURES:
        return False
    return "/" in model or model.endswith(EXTENSIONS) or named(model) is not None


def divisors(number):
    """Returns the divisors of a number of images, sorted ints.

    Example:
        >>> divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def is_own(dataset):
    """Returns whether the data are files of the user's: folder, CSV or TFRecord."""
    return kind_of(dataset).is_own


@dataclasses.dataclass(frozen=True)
class Recipe(Augmentation):
    """A run of training, from released weights or from scratch.

    The fields are the flags of `keras-vit finetune`, whose `--help` describes them; in
    addition, or differently:

    Args:
        model: also a `ViTConfig`.
        weights: None for random ones; those of a model that brings its own, as
            `"dinov2-s14/lvd142m"` does, are named as it is.
        micro_batches: a number, or `"auto"`, see `train.run.micro_batches`.
        precision: a policy of `train.engine.choices.PRECISIONS`, or `"auto"`, see
            `train.run.precision`.
        learning_rates: those that the source of the recipe tried.
        momentum: with `"momentum"`.
        clip_norm: the largest norm of the whole gradient, or None for any.
        pre_logits: whether there is a tanh layer before the head.
        dropout_rate: None for the released code's.
        test_examples: how many are tested and validated at most, None for all.
        bits: of values in files of 16 bits, see `zoo.photos.decode`.
        crop: a name in `train.data.registry.CROPS`.
        flip: whether training images are mirrored half of the time.
        eval_every: None for steps / 20, at least 10.
        checkpoint_every: None for steps / 10, at least 10.
        published: the accuracy to expect and its source.

    Raises:
        ValueError: a value is out of range or not finite, or does not fit the others.

    Example:
        >>> Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000).dropout
        0.0
    """

    dataset: str
    model: str | ViTConfig
    weights: str | None
    image_size: int | tuple[int, int]
    steps: int
    batch_size: int = 512
    micro_batches: int | str = dataclasses.field(default=8, metadata=_NOISE)
    optimizer: str = "momentum"
    learning_rate: float = 0.03
    learning_rates: tuple[float, ...] = dataclasses.field(
        default=(0.001, 0.003, 0.01, 0.03), metadata=_OUTPUT
    )
    schedule: str = "cosine"
    warmup_steps: int = 500
    weight_decay: float = 0.0
    momentum: float = 0.9
    momentum_dtype: str | None = None
    clip_norm: float | None = 1.0
    average_decay: float = 0.0
    layer_decay: float = 1.0
    frozen: bool = False
    lora_rank: int = 0
    loss: str = "softmax"
    label_smoothing: float = 0.0
    class_weights: str | tuple[float, ...] | None = None
    head_bias: float = 0.0
    pre_logits: bool = False
    dropout_rate: float | None = None
    stochastic_depth_rate: float = 0.0
    early_stopping: int = 0
    validation_fraction: float = 0.02
    train_examples: int | None = None
    test_examples: int | None = None
    bits: int | None = None
    crop: str = "inception"
    flip: bool = True
    precision: str = "float32"
    remat: bool = dataclasses.field(default=False, metadata=_NOISE)
    seed: int = dataclasses.field(default=0, metadata=_NOISE)
    eval_every: int | None = dataclasses.field(default=None, metadata=_OUTPUT)
    checkpoint_every: int | None = dataclasses.field(default=None, metadata=_OUTPUT)
    explained_images: int = dataclasses.field(default=0, metadata=_OUTPUT)
    published: str = dataclasses.field(default="", metadata=_OUTPUT)

    def __post_init__(self):
        self._check_ranges()
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, got "
                    f"{getattr(self, name)!r}."
                )
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
        if isinstance(self.class_weights, str) and self.class_weights != "balanced":
            raise ValueError(
                "class_weights must be balanced or one number per class, got "
                f"{self.class_weights!r}."
            )
        weights = self.class_weights
        if isinstance(weights, tuple) and not (
            weights and 0 <= min(weights) < sum(weights)
        ):
            raise ValueError(
                "class_weights must be at least 0 each, and one above 0, got "
                f"{','.join(map(str, weights))}."
            )

    def check(self):
        """Refuses models and weights that there are not, and what does not fit them.

        Nothing is downloaded: so a mistake is found before anything else is done.

        Raises:
            ValueError: there is no such model or release, its patches do not divide
                the images, or it has no blocks for what is asked of them.
            StoreError: there is no such file, or registries cannot be read.
        """
        model = self.model
        known = [*ARCHITECTURES, *BASELINES]
        is_name = isinstance(model, str) and not brings_weights(model)
        if is_name and model not in known:
            near = similar_variants(model, known)
            hint = f"did you mean {' or '.join(near)}? Choose" if near else "choose"
            raise ValueError(
                f"There is no model {model!r}: {hint} one of {', '.join(known)}, or "
                "what keras-vit zoo list shows, hf://org/name, or the path of a file."
            )
        for field in ("lora_rank", "layer_decay"):
            if model in BASELINES and getattr(self, field) != getattr(Recipe, field):
                raise ValueError(
                    f"--{field} needs transformer blocks; {model} has none: leave it "
                    "out, or choose a Vision Transformer."
                )
        config = ARCHITECTURES.get(model, model)
        if isinstance(config, ViTConfig):
            name = model if isinstance(model, str) else "This model"
            config.grid_size(self.image_size, name)
        if self.weights is not None and model not in BASELINES:
            check(self.weights, model if model in ARCHITECTURES else None)

    def _check_ranges(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            for number in value if isinstance(value, (tuple, list)) else (value,):
                # Not a number compares as false.
                if isinstance(number, numbers.Real) and not abs(number) <= FLOAT:
                    raise ValueError(
                        f"{field.name} must be finite, and at most {FLOAT:g}, got "
                        f"{value}."
                    )
        ranges = [
            ("above 0", lambda v: v > 0, "learning_rate"),
            ("above 0 each", lambda v: all(one > 0 for one in v), "learning_rates"),
            ("bfloat16, if given", lambda v: v in (None, "bfloat16"), "momentum_dtype"),
            ("from 0 to 4294967295", lambda v: 0 <= v < 2**32, "seed"),
            ("at least 1", lambda v: v >= 1, "steps batch_size"),
            (f"at most {BATCH_SIZE:,}", lambda v: v <= BATCH_SIZE, "batch_size"),
            (
                "at least 1, or auto",
                lambda v: v == AUTO or (not isinstance(v, str) and v >= 1),
                "micro_batches",
            ),
            (
                "at least 1",
                lambda v: v is None or v >= 1,
                "train_examples test_examples eval_every checkpoint_every",
            ),
            (
                "in [0, 1)",
                lambda v: v is None or 0.0 <= v < 1.0,
                "validation_fraction average_decay dropout_rate stochastic_depth_rate "
                "momentum",
            ),
            ("in [0, 1]", lambda v: 0.0 <= v <= 1.0, "label_smoothing"),
            ("in (0, 1]", lambda v: 0.0 < v <= 1.0, "layer_decay"),
            (
                "at least 0",
                lambda v: v >= 0,
                "weight_decay lora_rank early_stopping explained_images",
            ),
            ("above 0", lambda v: v is None or v > 0, "clip_norm"),
        ]
        for text, holds, names in ranges:
            for name in names.split():
                value = getattr(self, name)
                if not holds(value):
                    raise ValueError(f"{name} must be {text}, got {value}.")

    def override(self, **values):
        """Returns the recipe with other values.

        Unless given, weights are those of a model that brings its own, the warm-up
        keeps its share of the steps and micro-batches about their size. The published
        number is dropped, unless all that changes is the seed, how a step is computed
        (micro-batches, remat), or what is logged. Raises a `ValueError` where the
        values do not fit each other.

        Example:
            >>> recipe = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)
            >>> recipe.override(steps=400, batch_size=64).warmup_steps
            20
        """
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
        is_same_data = not is_own(changed.dataset) and (
            base_name(self.dataset) == base_name(changed.dataset)
        )
        if "published" in values or (differing <= {"dataset"} and is_same_data):
            return changed
        return dataclasses.replace(changed, published="")

    def as_dict(self):
        """Returns the settings by name, without `bits` where none are given."""
        found = dataclasses.asdict(self)
        return {name: found[name] for name in found if found[name] or name != "bits"}

    @property
    def deciding(self):
        """The settings that decide the result, not only what is written, as a dict."""
        settings = self.as_dict()
        for field in dataclasses.fields(self):
            decides = field.name == "eval_every" and self.early_stopping
            if field.metadata == _OUTPUT and not decides:
                del settings[field.name]
        return settings

    def smoke(self):
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
        config = ARCHITECTURES.get(self.model, self.model)
        image_size = 64
        if isinstance(config, ViTConfig):
            tiny = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "mlp_dim": 64}
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
    def run_name(self):
        """The name of the run's directory where none is given."""
        model = self.model if isinstance(self.model, str) else "ViT"
        if os.path.exists(model):
            model = pathlib.Path(model).name
        name = f"{pathlib.Path(self.dataset).name}-{model}"
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", name)

    @property
    def eval_interval(self):
        """Steps between validations."""
        return self.eval_every or max(self.steps // 20, min(self.steps, 10))

    @property
    def checkpoint_interval(self):
        """Steps between checkpoints."""
        return self.checkpoint_every or max(self.steps // 10, min(self.steps, 10))

    @property
    def dropout(self):
        """The dropout that was given, or else the released code's for this model."""
        if self.dropout_rate is not None:
            return self.dropout_rate
        return DROPOUT.get(self.model, 0.0)
