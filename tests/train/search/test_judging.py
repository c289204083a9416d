"""Where classes are uneven, all count alike, and rare ones are answered."""

import keras
import numpy as np
import pytest
import small_models

from train.scoring.features import Features
from train.scoring.temperature import log_losses
from train.search.heads import combined
from train.search.judging import EVEN, judge_of
from train.search.probing import probed


def test_even_classes_are_judged_photo_by_photo():
    logits = np.random.default_rng(0).normal(size=(30, 3))
    labels = np.repeat([0, 1, 2], [14, 11, 5])
    judge = judge_of(np.array([14, 11, 5]))
    assert judge is EVEN and judge.adjusted(logits) is logits
    assert np.array_equal(judge.losses(logits, labels), log_losses(logits, labels))
    assert judge.accuracy(logits, labels) == np.mean(logits.argmax(1) == labels)


def test_uneven_classes_have_the_same_part_each():
    labels = np.repeat([0, 1, 2], [80, 15, 5])
    logits = np.random.default_rng(0).normal(size=(100, 3))
    judge = judge_of(np.array([160, 30, 10]))
    np.testing.assert_allclose(judge.shift, -np.log([0.8, 0.15, 0.05]))
    adjusted = logits - np.log([0.8, 0.15, 0.05])
    losses = log_losses(adjusted, labels)
    means = [losses[labels == label].mean() for label in range(3)]
    assert judge.losses(logits, labels).mean() == pytest.approx(np.mean(means))
    recalls = [
        np.mean(adjusted.argmax(1)[labels == label] == label) for label in (0, 1, 2)
    ]
    assert judge.accuracy(logits, labels) == pytest.approx(np.mean(recalls))
    # A class without photos does not make the others uneven.
    assert judge_of(np.array([10, 0, 9])) is EVEN


def test_probes_are_judged_by_balanced_accuracy():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [80, 20, 8])
    rows = (np.eye(3)[labels] + rng.normal(0, 0.4, (108, 3))).astype("float32")
    judge, lines = judge_of(np.bincount(labels)), []
    arguments = {"of": "", "seconds": 0.0, "clock": lambda: 0.0, "judge": judge}
    found = probed(Features(labels, rows), 3, **arguments, log=lines.append)
    first = found.tried[0]
    assert first.is_balanced and "balanced accuracy on 108 held-out" in lines[0]
    recalls = [
        np.mean(judge.adjusted(found.logits).argmax(1)[labels == label] == label)
        for label in range(3)
    ]
    plain = [
        np.mean(found.logits.argmax(1)[labels == label] == label) for label in range(3)
    ]
    assert np.mean(recalls) > np.mean(plain)


@pytest.mark.parametrize("networks", [1, 2])
def test_the_model_has_the_shift(networks):
    parts = [small_models.made(image_size=16) for _ in range(networks)]
    images = np.random.default_rng(0).uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    weights = [0.5, 2.0][:networks]
    given = [keras.ops.convert_to_numpy(part(images)) for part in parts]
    shift = np.arange(given[0].shape[1], dtype="float32")
    model = combined(parts, weights, shift)
    expected = sum(one * part for one, part in zip(weights, given, strict=True)) + shift
    logits = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(logits, expected, atol=1e-5)
