"""Recipes for training from scratch, one small file per source.

`names` and `for_dataset` are those of `train.recipes`, for these recipes.
"""

import functools

from train import recipes

names = functools.partial(recipes.names, __name__)
for_dataset = functools.partial(recipes.for_dataset, package=__name__)
