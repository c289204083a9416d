"""Recipes: one small file a data set or a source of recipes."""

import importlib
import pkgutil

from train.data.registry import kind_of
from train.recipes.recipe import Recipe, base_name, is_own

__all__ = [
    "Recipe",
    "base_name",
    "for_dataset",
    "in_package",
    "is_own",
    "names",
    "named",
]

# Taken for data sets without a recipe of their own.
_OWN_DATA = "own_data"


def in_package(name, path):
    """Returns the recipes of a package, a dict of name to `Recipe`.

    Args:
        name: str, of the package, whose modules have a `RECIPE`, named as they are, or
            `RECIPES`, a dict.
        path: list of str, its folders.
    """
    found = {}
    for module in pkgutil.iter_modules(path):
        if module.ispkg or module.name == "recipe":
            continue
        loaded = importlib.import_module(f"{name}.{module.name}")
        found.update(getattr(loaded, "RECIPES", None) or {module.name: loaded.RECIPE})
    return found


def names():
    """Returns the names of the recipes for fine-tuning.

    Example:

    >>> "cifar100" in names()
    True
    """
    return sorted(in_package(__name__, __path__))


def named(recipes, name, dataset):
    """Returns a recipe, for another data set.

    Args:
        recipes: dict of name to `Recipe`.
        name: str.
        dataset: str.

    Raises:
        ValueError: there is no such recipe.
    """
    if name not in recipes:
        raise ValueError(
            f"There is no recipe {name!r}: choose one of {', '.join(sorted(recipes))}."
        )
    recipe = recipes[name]
    stripped = dataset.rstrip("/") or "/"
    kind = kind_of(dataset)
    if kind is kind_of(stripped) and kind.name in ("folder", "tfrecord"):
        # Written either way, a folder is the same data set to a run that goes on.
        dataset = stripped
    return recipe.override(dataset=dataset)


def for_dataset(dataset, name=None):
    """Returns the recipe for fine-tuning on a data set.

    Args:
        dataset: str, a TFDS name (with or without version), `"digits"`, a folder or
            what else `train.data.sources.load` takes.
        name: str, the recipe's name; by default that of the data set, or where it has
            none that for own data.

    Returns:
        `Recipe`.

    Raises:
        ValueError: there is no recipe of this name.

    Example:

    >>> for_dataset("cifar100").steps
    10000
    """
    recipes = in_package(__name__, __path__)
    if name is None:
        own = {key for key, recipe in recipes.items() if key == recipe.dataset}
        name = base_name(dataset)
        if name not in own | {"vtab"} or is_own(dataset):
            name = _OWN_DATA
    return named(recipes, name, dataset)
