"""Recipes for training from scratch, one small file per source."""

from train import recipes

__all__ = ["for_dataset", "names"]


def names():
    """Returns the names of the recipes, as `train.recipes.names`."""
    return recipes.names(__name__)


def for_dataset(dataset, name=None):
    """Returns the recipe for training on a data set from scratch.

    See `train.recipes.for_dataset`.

    Example:

    >>> for_dataset("imagenet2012").weight_decay
    0.3
    """
    return recipes.for_dataset(dataset, name, __name__)
