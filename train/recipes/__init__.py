"""Recipes: one small file a data set."""

import dataclasses
import importlib
import pathlib
import pkgutil

from train.recipes.recipe import Recipe

__all__ = ["Recipe", "for_dataset", "names"]


def names():
    """Returns the names of the data sets that have a recipe of their own."""
    modules = {module.name for module in pkgutil.iter_modules(__path__)}
    return sorted(modules - {"own_data", "recipe"})


def for_dataset(dataset):
    """Returns the recipe of a data set.

    Args:
        dataset: str, a TFDS name (with or without version), `"digits"` or a folder.

    Returns:
        `Recipe`, that for own data where the data set has none.

    Example:

    >>> for_dataset("cifar100").steps
    10000
    """
    name = dataset.partition(":")[0].partition("/")[0]
    # As train.data.sources has it: "digits" goes before a folder, a folder before TFDS.
    is_folder = dataset != "digits" and pathlib.Path(dataset).expanduser().is_dir()
    if name not in names() or is_folder:
        name = "own_data"
    recipe = importlib.import_module(f"train.recipes.{name}").RECIPE
    if is_folder:
        # Written either way, a folder is the same data set to a run that goes on.
        dataset = dataset.rstrip("/") or "/"
    return dataclasses.replace(recipe, dataset=dataset)
