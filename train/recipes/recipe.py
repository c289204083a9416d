"""What a run does, as data."""

import dataclasses
import pathlib
import re

from keras_vit import ViTConfig

# The released code's dropout for fine-tuning; models not named have none.
DROPOUT = {"ViT-L_16": 0.1, "ViT-H_14": 0.1, "R50+ViT-B_16": 0.1}

# What a published number depends on: with another value there is none to expect.
_PUBLISHED_WITH = {
    "model",
    "weights",
    "image_size",
    "steps",
    "batch_size",
    "learning_rate",
    "warmup_steps",
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A fine-tuning run.

    Args:
        dataset: str, a TFDS name, `"digits"` or a folder.
        model: str, a released variant, or a `ViTConfig`.
        weights: None for none, or what `keras_vit.VisionTransformer` takes.
        image_size: int or (height, width) in pixels.
        steps: int.
        batch_size: int, examples a step.
        micro_batches: int, the parts in which a step's batch is computed; divides
            `batch_size`. More need less memory.
        learning_rate: float, the highest.
        warmup_steps: int.
        validation_fraction: float in [0, 1), the part of train held out.
        crop: str, the training crop, see `train.data.preprocessing`.
        flip: bool, whether training images are mirrored half of the time.
        rand_augment: None, or (layers, magnitude) of RandAugment.
        random_erasing: float in [0, 1], how often a part of an image is erased.
        mixup: float, the alpha of mixup, 0 for none.
        cutmix: float, the alpha of CutMix, 0 for none; not both.
        label_smoothing: float in [0, 1].
        momentum: float.
        momentum_dtype: None for that of the weights, or `"bfloat16"` as released.
        clip_norm: float, the largest norm of the whole gradient.
        precision: `"float32"` or `"mixed_bfloat16"`.
        seed: int, of initialisation, data order, crops and dropout.
        eval_every: int, steps between validations; None for 20 a run,
            ten steps apart at least.
        checkpoint_every: int, steps between checkpoints; None for 10 a
            run, ten steps apart at least.
        published: str, the accuracy to expect and its source.

    Example:

    >>> Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000).dropout_rate
    0.0
    """

    dataset: str
    model: str | ViTConfig
    weights: str | None
    image_size: int | tuple[int, int]
    steps: int
    batch_size: int = 512
    micro_batches: int = 8
    learning_rate: float = 0.03
    warmup_steps: int = 500
    validation_fraction: float = 0.02
    crop: str = "inception"
    flip: bool = True
    rand_augment: tuple[int, float] | None = None
    random_erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    label_smoothing: float = 0.0
    momentum: float = 0.9
    momentum_dtype: str | None = None
    clip_norm: float = 1.0
    precision: str = "float32"
    seed: int = 0
    eval_every: int | None = None
    checkpoint_every: int | None = None
    published: str = ""

    def __post_init__(self):
        for name in ("steps", "batch_size", "micro_batches"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be at least 1, got {getattr(self, name)}."
                )
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} must be at least 0 and less than "
                f"steps={self.steps}."
            )
        if not 0.0 <= self.validation_fraction < 1.0:
            raise ValueError(
                "validation_fraction must be in [0, 1), got "
                f"{self.validation_fraction}."
            )
        for name in ("random_erasing", "label_smoothing"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(
                    f"{name} must be in [0, 1], got {getattr(self, name)}."
                )
        for name in ("mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} must not be negative, got {getattr(self, name)}."
                )
        if self.mixup and self.cutmix:
            raise ValueError(
                f"mixup={self.mixup} and cutmix={self.cutmix} mix the same batches: "
                "pass one of them."
            )
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be cut into "
                f"micro_batches={self.micro_batches} equal parts."
            )

    def override(self, **values):
        """Returns the recipe with other values.

        What is not given follows: the warm-up keeps its share of the steps, the
        micro-batches about their size, and the published number is dropped where it
        is another's.

        Args:
            **values: fields of the recipe.

        Returns:
            `Recipe`.

        Raises:
            ValueError: the values do not fit each other.

        Example:

        >>> recipe = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)
        >>> recipe.override(steps=400, batch_size=64).warmup_steps
        20
        """
        if "steps" in values:
            share = self.warmup_steps / self.steps
            values.setdefault("warmup_steps", int(share * values["steps"]))
        if "batch_size" in values and values["batch_size"] > 0:
            batch_size = values["batch_size"]
            least = -(-batch_size * self.micro_batches // self.batch_size)
            parts = range(least, batch_size + 1)
            values.setdefault(
                "micro_batches", next(n for n in parts if batch_size % n == 0)
            )
        if values.keys() & _PUBLISHED_WITH:
            values.setdefault("published", "")
        return dataclasses.replace(self, **values)

    @property
    def default_run_dir(self):
        """The run's directory where none is given."""
        model = self.model if isinstance(self.model, str) else "ViT"
        name = f"{pathlib.Path(self.dataset).name}-{model}"
        return f"runs/{re.sub(r'[^A-Za-z0-9_.+-]', '_', name)}"

    @property
    def eval_interval(self):
        """Steps between validations."""
        return self.eval_every or max(self.steps // 20, min(self.steps, 10))

    @property
    def checkpoint_interval(self):
        """Steps between checkpoints."""
        return self.checkpoint_every or max(self.steps // 10, min(self.steps, 10))

    @property
    def dropout_rate(self):
        """The released code's dropout for this model."""
        return DROPOUT.get(self.model, 0.0)
