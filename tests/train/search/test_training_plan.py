"""What a search trains: how large, for how long, on what of each photo."""

import types

import numpy as np
import pytest

from keras_vit import ViTConfig
from train import recipes
from train.data import sources
from train.scoring import probes
from train.scoring.features import Features
from train.search import backbones, judging, probing, time_plan, training_stage
from train.search.answers import Answer, Member
from train.search.options import Options

RECIPE = recipes.for_dataset("photos/")


@pytest.fixture
def planned(monkeypatch):
    """A function of seconds, photos and changes of a recipe to a plan and its reason.

    Features come at 50 photos per second at 224, which is 14 trained photos.
    """
    monkeypatch.setattr(
        time_plan, "left_for_training", lambda search, area: search.seconds
    )
    monkeypatch.setattr(time_plan, "least_training", lambda search: 25.0)

    def planned(seconds, photos, given=(), classes=10, has_blocks=True, **changes):
        search = types.SimpleNamespace(
            seconds=seconds,
            names=range(classes),
            budget=types.SimpleNamespace(facts={}),
            source=types.SimpleNamespace(
                train=types.SimpleNamespace(num_examples=photos),
                validation=types.SimpleNamespace(num_examples=photos // 10),
            ),
            options=Options(given=given),
        )
        backbone = types.SimpleNamespace(
            recipe=RECIPE.override(**changes), speed=50.0, has_blocks=has_blocks
        )
        plan = training_stage._plan(search, backbone)
        return plan, training_stage._about(plan, photos) if plan else ""

    return planned


@pytest.mark.parametrize(
    ("seconds", "photos", "classes", "size", "crop"),
    [
        # 14 epochs fit at 224.
        (1_000, 1_000, 10, (224, 224), "gentle"),
        # 6.4 fit there.
        (450, 1_000, 10, (224, 224), "resize"),
        # 10 epochs fit at 160, and 5 at 224.
        (360, 1_000, 10, (160, 160), "gentle"),
        # One epoch fits at 128.
        (1_100, 48_000, 10, (128, 128), "resize"),
        # 143 photos of each class fit at 224, or 64, and 280 at 160, or 126.
        (1_000, 1_000, 100, (160, 160), "gentle"),
        (450, 1_000, 100, (160, 160), "gentle"),
        # 9 epochs at 160 show 91 photos of each class to a new head, which are too few.
        (325, 1_000, 100, (128, 128), "gentle"),
        # One that begins as a probe, for 7 epochs there, needs none, and knows ten
        # photos of a class soon; in 1.96 at 128 it does not.
        (250, 1_000, 100, (160, 160), "gentle"),
        (45, 1_000, 100, (128, 128), "resize"),
    ],
)
def test_size_and_crop_follow_how_many_photos_fit(
    planned, seconds, photos, classes, size, crop
):
    plan, said = planned(seconds, photos, classes=classes)
    assert tuple(plan["image_size"]) == size
    assert (plan["crop"], plan["batch_size"]) == (crop, 64)
    epochs = seconds * 50 / 3.5 / photos * (224 / size[0]) ** 2
    assert plan["steps"] == int(epochs * photos / 64)
    epochs = plan["steps"] * 64 / photos
    assert f"trained at {size[0]}x{size[1]} for about {epochs:.2g} epochs" in said


def test_plans_keep_what_the_recipe_or_the_user_says(planned):
    assert planned(1_000, 1_000, given=("crop",))[0]["crop"] == "inception"
    assert planned(1_000, 1_000, crop="shift")[0]["crop"] == "shift"
    wide = planned(100, 2_000, image_size=(160, 320))[0]
    assert wide["image_size"] == [64, 128]
    assert planned(100, 2_000, image_size=96)[0]["image_size"] == [96, 96]
    assert planned(100, 40)[0]["batch_size"] == 16
    assert planned(20, 1_000) == ({}, "")


def test_few_epochs_are_trained_by_adam_with_rates_that_fall(planned):
    few, said = planned(450, 1_000)
    assert (few["optimizer"], few["layer_decay"]) == ("adam", 0.75)
    assert " epochs by Adam, whose rate is times 0.75 from each block to the" in said
    assert few["from_probe"] and "with LDA as the head to begin with" in said
    # Behind a random layer a probe of other features knows nothing.
    random, said = planned(450, 1_000, pre_logits=True)
    assert not random["from_probe"] and "by Adam" in said and "LDA" not in said
    # Nine epochs fit, the user names a rate, the recipe has one, there are no blocks
    # whose rates could fall, or these begin at random.
    many, said = planned(1_000, 1_000)
    assert "optimizer" not in many and "Adam" not in said
    assert "optimizer" not in planned(450, 1_000, given=("learning_rate",))[0]
    assert "optimizer" not in planned(450, 1_000, learning_rate=0.003)[0]
    assert "optimizer" not in planned(450, 1_000, has_blocks=False)[0]
    assert "optimizer" not in planned(450, 1_000, weights=None)[0]


def test_a_training_begins_with_three_tenths_of_lda():
    source = sources.load("digits", log=lambda line: None)
    labels, classes = source.train.labels(), len(source.class_names)
    noise = np.random.default_rng(0).normal(0, 0.4, (len(labels), 16))
    pooled = np.eye(16)[labels] + noise
    groups = np.arange(len(labels)) // 2
    head = backbones._first_head(pooled, labels, classes, groups)
    probe = probes.fit("lda", pooled, labels, classes, groups=groups)
    np.testing.assert_allclose(head.kernel, 0.3 * probe.kernel, rtol=1e-9)
    np.testing.assert_allclose(head.bias, 0.3 * probe.bias, rtol=1e-9)

    config = ViTConfig(
        hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
    )
    recipe = recipes.for_dataset("digits").override(model=config, image_size=32)
    task = training_stage._FromProbe(recipe, head)
    task.build(source)
    kernel, bias = task.model.layers[-1].get_weights()
    np.testing.assert_allclose(kernel, head.kernel, rtol=1e-6)
    np.testing.assert_allclose(bias, head.bias, rtol=1e-6)


def test_validations_take_four_hundredths_of_the_time_at_most(planned):
    few = planned(1_000, 1_000)[0]
    assert few["eval_every"] == few["steps"] // 5
    # A validation of 4,800 photos at 128 takes 31 seconds.
    many = planned(1_600, 48_000)[0]
    assert many["eval_every"] == many["steps"] // 2
    none = planned(700, 48_000)[0]
    assert none["eval_every"] > 100 * none["steps"]


@pytest.mark.parametrize(("single", "worse", "better"), [(True, 0, 1), (False, 0.5, 1)])
def test_what_share_a_trained_network_gets(single, worse, better):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 60)
    truth, noise = np.eye(3)[labels], random.normal(0, 1, (2, 60, 3))

    def share(of_trained, of_probes):
        trained, probes = (
            size * truth + one
            for size, one in zip((of_trained, of_probes), noise, strict=True)
        )
        validation = types.SimpleNamespace(labels=lambda: labels)
        search = types.SimpleNamespace(
            source=types.SimpleNamespace(validation=validation),
            options=Options(single=single),
            judge=judging.EVEN,
            stage=RECIPE,
            tried=[],
            because=lambda sentence: None,
        )
        answer = Answer([Member(None, None, (224, 224))], probes)
        member = Member(None, lambda split, through: trained, (128, 128))
        found = training_stage._joined(search, answer, member, seconds=1.0)
        assert len(found.members) == 1 + (0 < search.trained < 1)
        return search.trained

    # Little worse, and far better.
    assert share(1.5, 2.0) == worse
    assert share(6.0, 0.0) == better


def test_of_a_large_set_some_photos_give_features():
    now, facts = [0.0], {"features 0": {"speed": 50.0}}
    split = types.SimpleNamespace(labels=lambda: np.zeros(4_000, int))

    def extract(part):
        # The last part ends after its time.
        now[0] += len(part) / 50 + (0.5 if len(part) == 64 else 0.0)
        return Features(np.zeros(len(part), int), np.zeros((len(part), 2)))

    def photos(seconds, given=()):
        now[0] = 0.0
        search = types.SimpleNamespace(
            budget=types.SimpleNamespace(seconds=seconds, facts=facts),
            source=types.SimpleNamespace(
                train=types.SimpleNamespace(num_examples=4_000),
                test=types.SimpleNamespace(num_examples=100),
                validation=None,
            ),
            slowdown=1.0,
            trains=True,
            is_larger=False,
            options=Options(given=given),
            recipe=RECIPE,
        )
        search.test = search.source.test

        def left(needed):
            search.budget.left = seconds - now[0]
            return time_plan.for_features(search, 0, 1, now[0], needed)

        features = probing.features_in(left, extract, split, lambda: now[0])
        return len(features.labels)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "pick", lambda split, places: places)
        # All take 80 s, which are 25% of the time.
        assert photos(330.0) == 4_000
        # With less time 12% of it is for some, and the rest is for training.
        some = 0.12 * 50
        assert photos(310.0) == pytest.approx(some * 310, abs=64)
        assert photos(110.0) == pytest.approx(some * 110, abs=64)
        # Features have the time where no training fits, and from zeros no short one.
        assert photos(35.0) > 2 * some * 35
        assert photos(110.0, given=("momentum",)) > 2 * some * 110
