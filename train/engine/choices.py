"""The losses, schedules and optimizers that a recipe can name, one row each.

Flags, checks of `train.recipes.Recipe`, reports and tests read these rows. Nothing is
imported before it is used, so that `--help` needs no Keras.
"""

import dataclasses
import functools
import pkgutil
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Choice:
    """A function or class, `"module:name"`, that a recipe names.

    `settings` maps its arguments to the fields of the recipe that they take. A loss has
    the names of the `tasks` that it suits, see `train.tasks.TASKS`.
    """

    target: str
    title: str
    settings: dict[str, str]
    tasks: tuple[str, ...] = ()

    def of(self, recipe: object, **more: Any) -> Callable:
        """Returns the target with the recipe's settings as arguments."""
        values = {name: getattr(recipe, field) for name, field in self.settings.items()}
        return functools.partial(pkgutil.resolve_name(self.target), **values, **more)


_SMOOTHED = {"label_smoothing": "label_smoothing"}
# Losses are called with logits and labels; those of classes take `class_weights`
# besides, those of labels `pos_weight`.
LOSSES = {
    "softmax": Choice(
        "train.engine.losses:softmax_cross_entropy",
        "softmax cross-entropy",
        _SMOOTHED,
        ("classes",),
    ),
    "sigmoid": Choice(
        "train.engine.losses:sigmoid_cross_entropy",
        "sigmoid cross-entropy",
        _SMOOTHED,
        ("classes", "labels"),
    ),
    "focal": Choice(
        "train.engine.losses:focal_loss",
        "focal loss of several labels",
        _SMOOTHED,
        ("labels",),
    ),
    "asymmetric": Choice(
        "train.engine.losses:asymmetric_loss",
        "asymmetric loss of several labels",
        _SMOOTHED,
        ("labels",),
    ),
    "huber": Choice(
        "train.engine.losses:huber_loss", "Huber loss of a number", {}, ("number",)
    ),
    "squared": Choice(
        "train.engine.losses:squared_error",
        "squared error of a number",
        {},
        ("number",),
    ),
    "pixels": Choice(
        "train.engine.losses:pixel_cross_entropy",
        "cross-entropy of pixels, of EoMT that of masks and their classes",
        {},
        ("masks",),
    ),
}

_OF_RUN = {name: name for name in ("learning_rate", "steps", "warmup_steps")}
SCHEDULES = {
    "cosine": Choice(
        "train.engine.schedules:WarmupCosine", "half a cosine to zero", _OF_RUN
    ),
    "linear": Choice(
        "train.engine.schedules:WarmupLinear", "a line to nearly zero", _OF_RUN
    ),
}

# Optimizers are built with the schedule.
OPTIMIZERS = {
    "momentum": Choice(
        "train.engine.optimizers:MomentumSGD",
        "SGD with momentum",
        {"momentum": "momentum", "momentum_dtype": "momentum_dtype"},
    ),
    "adam": Choice(
        "train.engine.optimizers:Adam",
        "Adam with decoupled weight decay",
        {"kernel_decay": "weight_decay", "momentum_dtype": "momentum_dtype"},
    ),
}

# These are policies of `keras.config.set_dtype_policy`.
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
