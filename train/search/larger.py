"""The best backbone for larger images, where photos have the pixels for it."""

import math

import numpy as np

from train.data.sources.splits import Split
from train.data.sources.subset import limited
from train.recipes import Recipe
from train.run import building
from train.search import time_plan
from train.search.backbones import Backbone
from train.search.sizes import scaled, size_of
from train.search.state import State

# 288 for 224.
_FACTOR = 9 / 7
# So many photos show whether they have more pixels.
_MEASURED = 16


def larger_of(search: State, backbone: Backbone) -> Recipe | None:
    """Returns the recipe of a backbone for larger images, None where they do not help.

    They do where its photos have more pixels than its images, and their features take
    time that a training, if one is to come, hardly misses. It is one network more in
    the answer.
    """
    facts = search.budget.facts
    if "larger" not in facts:
        search.budget.keep(larger=_size(search, backbone))
    if not facts["larger"]:
        return None
    return backbone.recipe.override(image_size=tuple(facts["larger"]))


def _size(search, backbone):
    """Returns height and width of larger images, [] for none."""
    recipe, photos = backbone.recipe, backbone.photos
    is_part = photos.num_examples < search.source.train.num_examples
    if (
        search.options.single
        or is_part
        or not building.architecture_of(recipe).one_grid
    ):
        return []
    own, size = size_of(recipe), scaled(recipe, _FACTOR)
    area = math.prod(size) / math.prod(own)
    count = len(backbone.labels)
    if not time_plan.fits_larger(search, count, area, backbone.speed):
        return []
    return list(size) if _longer_side(photos) > max(own) else []


def _longer_side(photos: Split) -> float:
    """Returns the longer side of photos in pixels, the median of some."""
    few = limited(photos, _MEASURED)
    records = few.records().map(lambda record, _: record)
    return float(np.median([max(few.decode(one).shape[:2]) for one in records]))
