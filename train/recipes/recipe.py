"""A recipe: the settings of a run, how they depend on each other and change."""

import dataclasses
import math
import os
import pathlib
import re
from typing import Any

from train.common.setting import AUTO, check_limits
from train.data.registry import Augmentation, kind_of
from train.engine.choices import LOSSES, OPTIMIZERS
from train.recipes.fields import OUTPUT, TrainingSettings
from train.tasks import CLASSES, MASKS, TASKS
from zoo import VARIANTS, ViTConfig
from zoo.catalog.handles import named
from zoo.catalog.locate import check
from zoo.catalog.similar import similar_variants
from zoo.common.limits import BATCH_SIZE, FLOAT
from zoo.containers.opening import EXTENSIONS
from zoo.network import NETWORKS
from zoo.network.preparation import check_bits

# The released code's dropout for fine-tuning; models not named have none.
DROPOUT = {"ViT-L_16": 0.1, "ViT-H_14": 0.1, "R50+ViT-B_16": 0.1}


def base_name(dataset: str) -> str:
    """Returns the name of a TFDS data set without version and configuration."""
    return dataset.partition(":")[0].partition("/")[0]


def brings_weights(model: object) -> bool:
    """Returns whether a model is not a variant but weights: a handle, path or URL."""
    if not isinstance(model, str) or model in NETWORKS:
        return False
    return "/" in model or model.endswith(EXTENSIONS) or named(model) is not None


def divisors(number: int) -> list:
    """Returns the divisors of a number of images, sorted ints.

    Example:
        >>> divisors(12)
        [1, 2, 3, 4, 6, 12]
    """
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


@dataclasses.dataclass(frozen=True)
class Recipe(Augmentation, TrainingSettings):
    """A run of training, from released weights or from scratch.

    The fields are settings with their help, limits and choices; those with a group are
    flags of `keras-vit finetune`. `model` may also be a `ViTConfig`. `weights` are None
    for random ones; those of a model that brings its own, as `"dinov2-s14/lvd142m"`
    does, are named as it is. A setting of None has the value of the attribute that its
    `otherwise` names.

    Raises:
        ValueError: a value is out of range or not finite, or does not fit the others.

    Example:
        >>> Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000).dropout
        0.0
    """

    def __post_init__(self):
        check_limits(self)
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} must be at least 0 and less than "
                f"steps={self.steps}."
            )
        if self.mixup and self.cutmix:
            raise ValueError(
                f"mixup={self.mixup} and cutmix={self.cutmix} mix the same batches: "
                "set one of them to 0 to turn it off."
            )
        object.__setattr__(self, "bits", check_bits(self.bits))
        if self.micro_batches != AUTO and self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size={self.batch_size} cannot be cut into "
                f"micro_batches={self.micro_batches} equal parts."
            )
        if self.frozen and self.lora_rank:
            raise ValueError(
                f"frozen=True trains the head alone, lora_rank={self.lora_rank} more: "
                "pass one of them."
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
        smoothed = "label_smoothing" in LOSSES[self.loss].settings.values()
        if self.label_smoothing and not smoothed:
            raise ValueError(
                f"label_smoothing={self.label_smoothing} does nothing with "
                f"loss={self.loss}: leave it out."
            )
        if self.early_stopping and not self.validation_fraction:
            raise ValueError(
                f"early_stopping={self.early_stopping} needs the accuracy on held out "
                "images: pass a validation_fraction above 0."
            )
        rates = tuple(dict.fromkeys(self.learning_rates))
        object.__setattr__(self, "learning_rates", rates)

    def check(self) -> None:
        """Refuses models and weights that do not exist, and what does not fit them.

        Nothing is downloaded: so a mistake is found before anything else is done.

        Raises:
            ValueError: there is no such model or release, its patches do not divide
                the images, or it has no blocks for what is asked of them; or the loss
                is for labels of another kind.
            StoreError: there is no such file, or registries cannot be read.
        """
        self._check_task()
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
        if is_other and is_name and (changed := self.changed("of_blocks")):
            raise ValueError(
                f"--{changed[0]} needs transformer blocks; {model} has none: leave it "
                "out, or choose a Vision Transformer."
            )
        if isinstance(config, ViTConfig):
            name = model if isinstance(model, str) else "This model"
            config.grid_size(self.image_size, name)
        if self.weights is not None and not is_other:
            check(self.weights, model if model in VARIANTS else None)

    def _check_task(self):
        """Refuses settings that the task has no use for."""
        task = self.task or CLASSES
        if task not in LOSSES[self.loss].tasks:
            fitting = [name for name, row in LOSSES.items() if task in row.tasks]
            raise ValueError(
                f"loss={self.loss} is for {' and '.join(LOSSES[self.loss].tasks)}, not "
                f"for task={task}: pass loss={' or '.join(fitting)}."
            )
        for name in ("mask_head", "ignore"):
            if getattr(self, name) is not None and task != MASKS:
                raise ValueError(
                    f"{name}={getattr(self, name)} is of task={MASKS}, not of "
                    f"task={task}: leave it out."
                )
        if self.class_weights is not None and not TASKS[task].has_classes:
            raise ValueError(
                f"class_weights={self.class_weights} are of classes, which task={task} "
                "has none of: leave them out."
            )

    def changed(self, mark: str) -> list[str]:
        """Returns the settings whose fields have a `mark` and that are no default."""
        return [
            field.name
            for field in dataclasses.fields(self)
            if field.metadata.get(mark) and getattr(self, field.name) != field.default
        ]

    def override(self, **values: Any) -> "Recipe":
        """Returns the recipe with other values.

        A `batch_size` of "auto" stays, and micro-batches become "auto" instead. Unless
        given, weights are those of a model that brings its own, the warm-up
        keeps its share of the steps and micro-batches about their size. Other steps
        take the place of epochs, and epochs that of steps: `of_epochs`. The published
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
            values.setdefault("epochs", None)
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

    def of_epochs(self, examples: int) -> "Recipe":
        """Returns the recipe with the steps of its epochs over so many examples.

        The warm-up keeps its share. Without epochs it is the recipe as it is.

        Example:
            >>> recipe = Recipe("cifar100", "ViT-B_16", "imagenet21k", 384, 10_000)
            >>> recipe.override(epochs=10, batch_size=512).of_epochs(49_000).steps
            958
        """
        if self.epochs is None:
            return self
        steps = math.ceil(self.epochs * examples / self.batch_size)
        return self.override(steps=steps, epochs=self.epochs)

    def in_use(self) -> dict:
        """Returns the values in use for settings that are None, by name."""
        return {
            field.name: getattr(self, field.metadata["otherwise"])
            for field in dataclasses.fields(self)
            if "otherwise" in field.metadata and getattr(self, field.name) is None
        }

    @property
    def deciding(self) -> dict:
        """The settings that decide the result, not only what is written, as a dict."""
        settings = dataclasses.asdict(self)
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
            epochs=None,
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
