"""Recipes: one small file per data set or source of recipes."""

import importlib
import pkgutil

from train.data.registry import kind_of
from train.recipes.recipe import Recipe, base_name

__all__ = ["Recipe", "for_dataset", "names"]

# The recipe of data sets that have none of their own.
OWN_DATA = "own_data"


def _recipes(package):
    """Returns the recipes in the modules of a package by name."""
    recipes = {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        if module.ispkg or module.name in ("recipe", "fields"):
            continue
        loaded = importlib.import_module(f"{package}.{module.name}")
        recipes.update(getattr(loaded, "RECIPES", None) or {module.name: loaded.RECIPE})
    return recipes


def names(package: str = __name__) -> list:
    """Returns the sorted names of the recipes of a package, by default fine-tuning's.

    Example:
        >>> "cifar100" in names()
        True
    """
    return sorted(_recipes(package))


def for_dataset(
    dataset: str, name: str | None = None, package: str = __name__
) -> Recipe:
    """Returns the `Recipe` for training on a data set.

    `dataset` and `name` are the flags `--dataset` and `--recipe`, `package` is that of
    `names`. Raises a `ValueError` where there is no recipe of this name.

    Example:
        >>> for_dataset("cifar100").steps
        10000
    """
    recipes, kind = _recipes(package), kind_of(dataset)
    if name is None:
        name = base_name(dataset)
        own = {key for key, recipe in recipes.items() if key == recipe.dataset}
        if name not in own | ({"vtab"} & recipes.keys()) or kind.is_own:
            name = OWN_DATA
    if name not in recipes:
        raise ValueError(
            f"There is no recipe {name!r}: choose one of {', '.join(sorted(recipes))}."
        )
    stripped = dataset.rstrip("/") or "/"
    if kind is kind_of(stripped) and kind.name in ("folder", "tfrecord"):
        # A run that goes on finds the same data set, with a slash at its end or
        # without.
        dataset = stripped
    return recipes[name].override(dataset=dataset)
