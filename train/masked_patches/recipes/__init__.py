"""Recipes for masked patch prediction, one small file per source.

`names` and `for_dataset` are those of `train.recipes`, for these recipes.
"""

import dataclasses
import functools

from train import recipes
from train.common.setting import setting


@dataclasses.dataclass(frozen=True)
class MaskingRecipe(recipes.Recipe):
    """A run of masked patch prediction.

    The paper found a `corrupted_fraction` of 0.15 slightly worse than 0.5.

    Raises:
        ValueError: a value is out of range, or does not fit the others.

    Example:
        >>> MaskingRecipe("cifar100", "ViT-Ti_16", None, 128, 10_000).corrupted_fraction
        0.5
    """

    corrupted_fraction: float = setting(
        0.5,
        "Fraction of the patches of each image that is corrupted, above 0 and at most "
        "1.",
        ("above 0 and at most 1", lambda value: 0.0 < value <= 1.0),
        group="Optimization",
    )


names = functools.partial(recipes.names, __name__)
for_dataset = functools.partial(recipes.for_dataset, package=__name__)
