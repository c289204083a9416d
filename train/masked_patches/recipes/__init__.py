"""Recipes for masked patch prediction, one small file per source."""

from train.masked_patches.recipes.recipe import MaskingRecipe
from train.recipes import find, in_package

__all__ = ["MaskingRecipe", "for_dataset", "names"]


def names():
    """Returns the names of the recipes.

    Example:

    >>> names()
    ['imagenet2012', 'own_data', 'paper']
    """
    return sorted(in_package(__name__, __path__))


def for_dataset(dataset, name=None):
    """Returns the recipe for masked patch prediction on a data set.

    Args:
        dataset: str, as for `train.recipes.for_dataset`.
        name: str, the recipe's name; by default that for ImageNet, and that for own
            data where it is another.

    Returns:
        `MaskingRecipe`.

    Raises:
        ValueError: there is no recipe of this name.

    Example:

    >>> for_dataset("imagenet2012").learning_rate
    0.0002
    """
    return find(in_package(__name__, __path__), dataset, name)
