"""When the best backbone is tried on larger images."""

import types

import numpy as np
import pytest

from train import recipes
from train.data.sources.splits import in_memory
from train.search import larger

RECIPE = recipes.for_dataset("photos/")


@pytest.fixture
def found():
    """A function of what differs to the recipe for larger images, or None."""

    def found(side=300, speed=50.0, single=False, known=20, recipe=RECIPE, trains=True):
        images = np.zeros((20, 224, side, 3), "uint8")
        labels = np.arange(20) % 2
        photos = in_memory("photos", images, labels, lambda record: record, str)
        facts = {}
        search = types.SimpleNamespace(
            trains=trains,
            options=types.SimpleNamespace(single=single),
            source=types.SimpleNamespace(
                train=types.SimpleNamespace(num_examples=known)
            ),
            budget=types.SimpleNamespace(
                facts=facts,
                seconds=100.0,
                left=80.0,
                parts={},
                keep=lambda **more: facts.update(more),
            ),
            test=photos,
            slowdown=1.0,
            is_larger=False,
        )
        backbone = types.SimpleNamespace(
            recipe=recipe, photos=photos, labels=labels, speed=speed
        )
        first = larger.larger_of(search, backbone)
        # A run that goes on does the same, also where the machine is slower now.
        backbone.speed = 0.0
        assert larger.larger_of(search, backbone) == first
        return first

    return found


def test_photos_of_more_pixels_are_tried_at_288(found):
    assert found() == RECIPE.override(image_size=(288, 288))
    wide = RECIPE.override(model="ViT-B_32", image_size=(96, 224))
    assert found(recipe=wide).image_size == (128, 288)


def test_where_nothing_is_trained_larger_photos_may_take_what_is_left(found):
    # 20 photos take 11 s of 100.
    assert found(speed=3.0) is None
    assert found(speed=3.0, trains=False).image_size == (288, 288)
    # These take 66 s and the test of theirs as much.
    assert found(speed=0.5, trains=False) is None


@pytest.mark.parametrize(
    "differs",
    [{"side": 224}, {"speed": 3.0}, {"single": True}, {"known": 21}],
    ids=["small photos", "slow machine", "one network", "features of a part"],
)
def test_others_are_not(found, differs):
    assert found(**differs) is None


def test_networks_without_one_grid_of_patches_are_not(found):
    assert found(recipe=RECIPE.override(model="BiT-R50x1")) is None
