"""What a search trains: how large, for how long, on what of each photo."""

import types

import numpy as np
import pytest

from train import recipes
from train.scoring.features import Features
from train.search import probing, time_plan, training_stage
from train.search.options import Options

RECIPE = recipes.for_dataset("photos/")


@pytest.fixture
def planned(monkeypatch):
    """A function of seconds, photos and changes of a recipe to a plan and its reason.

    Features come at 50 photos per second at 224, which is 14 trained photos.
    """
    monkeypatch.setattr(time_plan, "reserve", lambda search: 0.0)

    def planned(seconds, photos, crop=None, **changes):
        said = []
        search = types.SimpleNamespace(
            budget=types.SimpleNamespace(left=seconds),
            source=types.SimpleNamespace(
                train=types.SimpleNamespace(num_examples=photos)
            ),
            options=Options(crop=crop),
            because=said.append,
        )
        backbone = types.SimpleNamespace(recipe=RECIPE.override(**changes), speed=50.0)
        return training_stage._plan(search, backbone), " ".join(said)

    return planned


@pytest.mark.parametrize(
    ("seconds", "photos", "size", "crop"),
    [
        # 14 epochs fit at 224.
        (1_000, 1_000, (224, 224), "gentle"),
        # 6.4 fit there.
        (450, 1_000, (224, 224), "resize"),
        # 10 epochs fit at 160, and 5 at 224.
        (360, 1_000, (160, 160), "gentle"),
        # One epoch fits at 128.
        (1_100, 48_000, (128, 128), "resize"),
    ],
)
def test_size_and_crop_follow_how_many_epochs_fit(planned, seconds, photos, size, crop):
    plan, said = planned(seconds, photos)
    assert (plan["image_size"], plan["crop"], plan["batch_size"]) == (size, crop, 64)
    epochs = seconds * 50 / 3.5 / photos * (224 / size[0]) ** 2
    # A faster machine takes half as many steps more.
    assert plan["steps"] == int(1.5 * epochs * photos / 64)
    assert f"trained at {size[0]}x{size[1]} for about {epochs:.2g} epochs" in said


def test_plans_keep_what_the_recipe_or_the_user_says(planned):
    assert planned(1_000, 1_000, crop="inception")[0]["crop"] == "inception"
    assert planned(1_000, 1_000, crop="shift")[0]["crop"] == "shift"
    assert planned(1_000, 1_000, **{"crop": "shift"})[0]["crop"] == "shift"
    wide = planned(100, 2_000, image_size=(160, 320))[0]
    assert wide["image_size"] == (64, 128)
    assert planned(100, 2_000, image_size=96)[0]["image_size"] == (96, 96)
    assert planned(100, 40)[0]["batch_size"] == 16
    assert planned(20, 1_000) == ({}, "")


def test_of_a_large_set_some_photos_give_features():
    now = [0.0]
    split = types.SimpleNamespace(
        labels=lambda: np.zeros(1_000, int),
        num_examples=1_000,
    )

    def extract(part):
        now[0] += len(part) / 50
        return Features(np.zeros(len(part), int), np.zeros((len(part), 2)))

    def photos(seconds, monkeypatch=None):
        now[0] = 0.0
        features, speed = probing.features_in(
            seconds, extract, split, lambda: now[0], otherwise=seconds / 4
        )
        assert speed == pytest.approx(50)
        return len(features.labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "pick", lambda split, places: places)
        assert photos(20.1) == 1_000
        assert photos(19.9) == 248
