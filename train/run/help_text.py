"""The values of a recipe's settings in `--help`."""

import dataclasses
import sys

from absl import flags

from keras_vit_start import styled
from train.common.errors import RunError
from train.run import settings
from zoo import ViTConfig


def add_values(words, find_recipe) -> None:
    """Adds what the recipe sets to the help of each setting.

    The recipe is that of the flags `--dataset`, `--recipe` and `--config` and of the
    words beside them, or without any that of the user's own data; `find_recipe` is as
    in `train.run.settings.settle`. If the recipe is unknown or a file cannot be read,
    there is a warning, and the help has no values.
    """
    names = ("dataset", "recipe", "config", "smoke")
    named = {name: flags.FLAGS[name].value for name in names}
    named["dataset"] = named["dataset"] or "".join(words) or None
    label = named["recipe"] or named["dataset"] or named["config"] or "your own data"
    if not named["config"]:
        named["dataset"] = named["dataset"] or ""
    try:
        settled = settings.settle(find_recipe, **named, flags=lambda recipe_class: {})
    except (ValueError, OSError, RunError) as error:
        warning = styled("warning:", "warning", sys.stderr)
        print(f"{warning} the help has no values: {error}", file=sys.stderr)
        return
    label += ", smoke" * named["smoke"]
    for field in dataclasses.fields(settled.recipe):
        if field.name in flags.FLAGS and field.name != "dataset":
            flag = flags.FLAGS[field.name]
            flag.help = f"{flag.help} [{label}: {_value(settled.recipe, field.name)}]"


def _value(recipe, name):
    """Returns the value of a setting as a flag takes it."""
    value = getattr(recipe, name)
    if value is None:
        value = recipe.in_use().get(name)
    if isinstance(value, ViTConfig):
        sizes = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size")
        return ", ".join(f"{name} {getattr(value, name)}" for name in sizes)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    words = {None: "none", True: "yes", False: "no"}
    # The type is compared too, as 1 and 0 equal True and False.
    return words[value] if value is None or isinstance(value, bool) else str(value)
