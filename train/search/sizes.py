"""Sizes of images that a search tries beside that of a recipe."""

from train.recipes import Recipe
from train.run import building
from zoo.network import nearest_size, pair

# Images of networks without patches are multiples of this.
_STRIDE = 32


def size_of(recipe: Recipe) -> tuple[int, int]:
    """Returns the (height, width) of a recipe's images."""
    return pair(recipe.image_size, "image_size")


def scaled(recipe: Recipe, factor: float) -> tuple[int, ...]:
    """Returns the (height, width) of a recipe's images times a factor, whole patches.

    Example:
        >>> from train import recipes
        >>> scaled(recipes.for_dataset("photos/"), 9 / 7)
        (288, 288)
    """
    steps = (_STRIDE, _STRIDE)
    if building.architecture_of(recipe).one_grid:
        steps = building.config_of(recipe).stride
    return nearest_size((factor * side for side in size_of(recipe)), steps)
