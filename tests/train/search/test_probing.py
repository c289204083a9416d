"""Which probes answer, and the one head that they become."""

import dataclasses

import numpy as np
import pytest

from train.scoring import probes
from train.scoring.features import Features
from train.search import probing

SETTINGS = {"of": "", "seconds": 1e9, "clock": lambda: 0.0, "log": lambda line: None}


def photos(per_class, classes=3, seed=0):
    """Features of photos: two noisy views of their class."""
    rng = np.random.default_rng(seed)
    labels = np.tile(np.arange(classes), per_class)
    pooled, patch_mean = (
        (np.eye(classes, 6)[labels] + rng.normal(0, 0.4, (len(labels), 6))).astype("f4")
        for _ in range(2)
    )
    return Features(labels, pooled, patch_mean)


def names(found):
    return [row.name for row in found.tried]


def test_probes_of_few_photos_become_one_linear_head():
    features = photos(5)
    found = probing.probed(features, 3, **SETTINGS)
    assert names(found) == [
        "Ridge regression, class token",
        "LDA, class token",
        "LDA, class token and patches",
        "Logistic regression, class token",
        "Logistic regression, class token and patches",
    ]
    assert isinstance(found.head, probes.Linear)
    assert found.read(features).shape == (15, 12)
    assert sum(row.share for row in found.tried) == pytest.approx(1)


def test_features_without_patches_have_fewer_probes():
    features = dataclasses.replace(photos(5), patch_mean=None)
    found = probing.probed(features, 3, **SETTINGS)
    assert len(names(found)) == 3 and found.read(features) is features.pooled


def test_probes_are_left_out_where_time_is_short():
    lines = []
    settings = SETTINGS | {"seconds": 0.0, "log": lines.append}
    found = probing.probed(
        photos(5), 3, **{**settings, "clock": iter(range(99)).__next__}
    )
    assert len(found.tried) == 1 and "left out, as the time" in lines[-1]


def test_a_probe_whose_folds_take_too_long_is_left_out(monkeypatch):
    now, fit = [0.0], probes.fit

    def slow(kind, *given, **groups):
        now[0] += 3.0 if kind == "logistic" else 0.1
        return fit(kind, *given, **groups)

    monkeypatch.setattr(probes, "fit", slow)
    settings = SETTINGS | {"clock": lambda: now[0]}
    found = probing.probed(photos(5), 3, **settings | {"seconds": 10.0})
    # One fit of logistic regression shows that its folds do not end in time.
    assert len(names(found)) == 3 and now[0] == pytest.approx(4.8)
    # A run that goes on has the probes that it had.
    found = probing.probed(photos(5), 3, **settings | {"seconds": 1.0, "number": 4})
    assert len(names(found)) == 4


def test_a_mirrored_photo_is_in_the_fold_of_the_photo(monkeypatch):
    seen = []

    def out_of_fold(kind, rows, labels, classes, groups):
        seen.append((kind, len(rows), groups))
        return np.random.default_rng(0).normal(size=(len(rows), classes))

    monkeypatch.setattr(probes, "out_of_fold_logits", out_of_fold)
    features, mirrored = photos(5), photos(5, seed=1)
    found = probing.probed(features, 3, mirrored=mirrored, **SETTINGS)
    assert names(found)[1] == "Ridge regression, class token, mirrored photos too"
    assert [rows for _, rows, _ in seen] == [15, 30, 15, 15, 15, 15]
    groups = seen[1][2]
    assert np.array_equal(groups[:15], groups[15:]) and len({*groups}) == 15
    # Copies of photos and their mirrored ones are one group.
    copied = np.arange(15) // 2
    probing.probed(features, 3, mirrored=mirrored, groups=copied, **SETTINGS)
    assert np.array_equal(seen[7][2], np.tile(copied, 2))
    # Only the photos as they are judge.
    assert {row.photos for row in found.tried} == {15}


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_perceptron_joins_by_its_share(share, monkeypatch):
    monkeypatch.setattr(probes.probe_fits, "_MLP_STEPS", 20)
    monkeypatch.setattr(probing, "share_of", lambda *_, **__: share)
    features = photos(21)
    found = probing.probed(features, 3, **SETTINGS)
    assert names(found)[-1] == "Perceptron, class token"
    assert found.tried[-1].share == share
    assert sum(row.share for row in found.tried) == pytest.approx(1)
    assert isinstance(found.head, probes.Mlp if share else probes.Linear)
    logits = found.head.logits(found.read(features))
    assert np.mean(logits.argmax(1) == features.labels) > 0.8
