"""Recipes for masked patch prediction, one small file a source."""

from train.recipes import base_name, in_package, is_own, named
from train.recipes.masking.recipe import MaskingRecipe

__all__ = ["MaskingRecipe", "for_dataset", "names"]


def _all():
    return in_package(__name__, __path__)


def names():
    """Returns the names of the recipes.

    Example:

    >>> names()
    ['imagenet2012', 'own_data', 'paper']
    """
    return sorted(_all())


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
    if name is None:
        name = base_name(dataset)
        if name != "imagenet2012" or is_own(dataset):
            name = "own_data"
    return named(_all(), name, dataset)
