"""Recipes for training from scratch, one small file per source."""

from train.recipes import find, in_package

__all__ = ["for_dataset", "names"]


def names():
    """Returns the names of the recipes.

    Example:

    >>> "augreg_imagenet2012_strong2" in names()
    True
    """
    return sorted(in_package(__name__, __path__))


def for_dataset(dataset, name=None):
    """Returns the recipe for training on a data set from scratch.

    Args:
        dataset: str, as for `train.recipes.for_dataset`.
        name: str, the recipe's name; by default the paper's for ImageNet and
            ImageNet-21k, and for own data where it is another.

    Returns:
        `train.recipes.Recipe`.

    Raises:
        ValueError: there is no recipe of this name.

    Example:

    >>> for_dataset("imagenet2012").weight_decay
    0.3
    """
    return find(in_package(__name__, __path__), dataset, name)
