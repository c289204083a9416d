"""The numbers of a classifier: accuracies, per class, calibration."""

import warnings

import numpy as np
import pytest
from scipy.stats import binomtest

from train.scoring.metrics import calibration, classification_summary, interval
from train.scoring.ranked import ranked


def test_the_most_confused_classes_by_hand():
    # Rows are true, columns predicted: [[2, 1, 0], [0, 1, 0], [1, 1, 2]].
    labels = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    predicted = [0, 0, 1, 1, 0, 1, 2, 2]
    summary = classification_summary(ranked(labels, np.eye(3)[predicted]), "abc")
    assert summary["confusions"] == [
        {"true": "a", "predicted": "b", "count": 1, "share": pytest.approx(1 / 3)},
        {"true": "c", "predicted": "a", "count": 1, "share": 0.25},
        {"true": "c", "predicted": "b", "count": 1, "share": 0.25},
    ]
    assert [row["name"] for row in summary["per_class"]] == ["a", "b", "c"]
    assert summary["absent_classes"] == [] and "top5_accuracy" not in summary
    # The first five of tied probabilities have the guess among them.
    tied = ranked(np.arange(8), np.full((8, 8), 1 / 8))
    summary = classification_summary(tied, "abcdefgh")
    assert summary["accuracy"] == 1 / 8 and summary["top5_accuracy"] == 5 / 8


@pytest.mark.parametrize("classes", [5, 6, 100])
def test_summary_against_numpy(classes):
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, 500)
    probabilities = rng.random((500, classes)) + 0.7 * np.eye(classes)[labels]
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    summary = classification_summary(
        ranked(labels, probabilities), [f"{index}" for index in range(classes)]
    )
    matrix = np.zeros((classes, classes), int)
    np.add.at(matrix, (labels, probabilities.argmax(axis=1)), 1)
    np.testing.assert_array_equal(summary["confusion_matrix"].toarray(), matrix)
    assert summary["examples"] == 500
    assert summary["accuracy"] == pytest.approx(np.trace(matrix) / 500)
    rows = summary["per_class"]
    hits, true, guessed = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    for name, expected in {
        "examples": true,
        "predictions": guessed,
        "precision": hits / np.maximum(guessed, 1),
        "recall": hits / np.maximum(true, 1),
        "f1": 2 * hits / np.maximum(true + guessed, 1),
    }.items():
        np.testing.assert_allclose([row[name] for row in rows], expected)
        if name in summary["macro"]:
            assert summary["macro"][name] == pytest.approx(expected[true > 0].mean())
    assert ("top5_accuracy" in summary) == (classes > 5)
    if classes > 5:
        first = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]
        among = (first == labels[:, None]).any(axis=1)
        assert summary["top5_accuracy"] == pytest.approx(among.mean())
    np.fill_diagonal(matrix, 0)
    counts = [row["count"] for row in summary["confusions"]]
    assert counts == sorted(matrix[matrix > 0], reverse=True)[:10]


def test_absent_classes_are_named_and_left_out_of_the_averages():
    # "b" has no examples but a prediction, "d" has neither.
    predicted = np.eye(4)[[0, 1, 2, 2]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = classification_summary(
            ranked(np.array([0, 0, 2, 2]), predicted), "abcd"
        )
    assert summary["absent_classes"] == ["b", "d"]
    assert summary["macro"] == pytest.approx(
        {"precision": 1, "recall": 3 / 4, "f1": (2 / 3 + 1) / 2}
    )
    for index in (1, 3):
        row = summary["per_class"][index]
        assert row["examples"] == row["precision"] == row["recall"] == row["f1"] == 0
    assert summary["per_class"][1]["predictions"] == 1


@pytest.mark.parametrize("counts", [(0, 5), (5, 5), (1, 3), (7672, 10_000)])
def test_interval_by_the_formula(counts):
    correct, examples = counts
    share, z = correct / examples, 1.959963984540054
    centre = share + z**2 / (2 * examples)
    spread = z * np.sqrt(share * (1 - share) / examples + (z / (2 * examples)) ** 2)
    expected = (centre + np.array([-spread, spread])) / (1 + z**2 / examples)
    np.testing.assert_allclose(interval(correct, examples), expected, atol=1e-12)
    judge = binomtest(correct, examples).proportion_ci(method="wilson")
    np.testing.assert_allclose(interval(correct, examples), judge, atol=1e-12)


def test_the_interval_of_balanced_accuracy():
    # Recalls of 0.9, 0.5 and 1; the last class has no images.
    labels = np.repeat([0, 1, 2], [40, 10, 5])
    answers = np.where(
        np.isin(np.arange(55), [0, 1, 2, 3, 40, 41, 42, 43, 44]), 3, labels
    )
    found = classification_summary(ranked(labels, np.eye(4)[answers]), "abcd")
    assert found["balanced_accuracy"] == pytest.approx(0.8)
    low, high = np.transpose([interval(36, 40), interval(5, 10), interval(5, 5)])
    recalls = np.array([0.9, 0.5, 1])
    for end, bounds, sign in (("low", low, -1), ("high", high, 1)):
        expected = 0.8 + sign * np.sqrt(np.sum((recalls - bounds) ** 2)) / 3
        assert found[f"balanced_accuracy_{end}"] == pytest.approx(expected)


def test_calibration_by_hand():
    # Confidence 0.2 is in (2/15, 3/15], the two others in bins of their own.
    confidence = np.array([0.9, 0.9, 0.9, 0.6, 0.2])
    probabilities = np.full((5, 10), 0.01)
    probabilities[np.arange(5), 3] = confidence
    found = calibration(ranked(np.array([3, 3, 0, 3, 0]), probabilities))
    assert found["error"] == pytest.approx(
        (3 * abs(2 / 3 - 0.9) + abs(1 - 0.6) + abs(0 - 0.2)) / 5
    )
    filled = [row for row in found["bins"] if row["examples"]]
    assert len(found["bins"]) == 15 and [row["examples"] for row in filled] == [1, 1, 3]
    assert filled[0]["high"] == pytest.approx(0.2)
    assert filled[2]["confidence"] == pytest.approx(0.9)
    assert filled[2]["accuracy"] == pytest.approx(2 / 3)
    assert found["bins"][0]["accuracy"] is None
    # The confident and right.
    found = calibration(ranked(np.arange(4), np.eye(4)))
    assert found["error"] == 0 and found["bins"][-1]["examples"] == 4
    assert found["error_of_exact"] == 0


def test_the_error_of_exact_confidences_is_that_of_draws():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, size=400)
    probabilities = np.stack([confidence, *[(1 - confidence) / 9] * 9], axis=1)
    draws = [
        calibration(ranked(np.where(rng.random(400) < confidence, 0, 1), probabilities))
        for _ in range(200)
    ]
    mean = np.mean([one["error"] for one in draws])
    assert draws[0]["error_of_exact"] == pytest.approx(mean, rel=0.05)
