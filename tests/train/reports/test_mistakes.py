"""The answers of a classifier: order, mistakes.csv, suspected label errors."""

import csv
import dataclasses
import itertools
import tracemalloc

import numpy as np
import pytest

from train.reports.answers import answers_of, write_label_errors, write_mistakes
from train.scoring.label_errors import label_errors
from train.scoring.metrics import classification_summary
from train.scoring.ranked import joined, ranked

LABELS = np.array([0, 1, 2, 0, 1, 2])
PROBABILITIES = np.array(
    [
        [0.5, 0.3, 0.2],  # right
        [0.6, 0.3, 0.1],  # wrong
        [0.1, 0.1, 0.8],  # right
        [0.05, 0.9, 0.05],  # wrong, the most confident
        [0.2, 0.45, 0.35],  # right, the least certain
        [0.6, 0.2, 0.2],  # wrong, as confident as the second
    ]
)


def test_confident_mistakes_come_first_then_uncertain_answers():
    answers = answers_of(None, ranked(LABELS, PROBABILITIES), "abc")
    assert answers.order.tolist() == [3, 1, 5, 4, 0, 2]
    assert answers.mistakes.tolist() == [3, 1, 5]
    assert answers.correct.tolist() == [4, 0, 2]
    assert answers.predicted.tolist() == [0, 0, 2, 1, 1, 0]
    np.testing.assert_allclose(answers.margin, [0.2, 0.3, 0.7, 0.85, 0.1, 0.4])
    np.testing.assert_array_equal(answers.of_truth, [0.5, 0.3, 0.8, 0.05, 0.45, 0.2])
    # A model of one class.
    answers = answers_of(None, ranked(np.zeros(3, int), np.ones((3, 1))), "a")
    assert answers.margin.tolist() == [1, 1, 1] and not len(answers.mistakes)
    assert label_errors(answers, 1, np.ones(3, bool)) is None


def dense_label_errors(labels, probabilities, is_new):
    """Suspected places with what is suggested and its threshold, the clearest first.

    By all probabilities of all images, one by one.
    """
    thresholds = {}
    for label in range(probabilities.shape[1]):
        own = probabilities[is_new & (labels == label), label]
        if len(own) >= 5:
            thresholds[label] = own.mean()
    found = []
    for place in np.flatnonzero(is_new):
        label, row = labels[place], probabilities[place]
        reached = [one for one, least in thresholds.items() if row[one] >= least]
        best = max(reached, key=lambda one: (row[one], -one), default=label)
        if best != label and row.argmax() != label:
            found.append((row[label] - row[best], place, best, thresholds[best]))
    return [row[1:] for row in sorted(found)]


@pytest.mark.parametrize("classes", [6, 40])
def test_what_is_kept_is_enough(classes):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes - 1, 403)
    # Enough of one class to be suggested, too few of another, and none of the last.
    labels[labels == 0] = labels[labels == 1] = 2
    labels[-9:] = [0] * 5 + [1] * 4
    probabilities = rng.dirichlet(np.full(classes, 4 / classes), 403)
    probabilities[:9] = probabilities[:9].round(1)  # equal ones
    probabilities[9] = 1 / classes
    own = np.arange(0, classes, 2)
    edges = [0, 7, 7, 150, 403]
    found = joined(
        [
            ranked(labels[low:high], probabilities[low:high], own)
            for low, high in itertools.pairwise(edges)
        ]
    )
    ordered = np.argsort(-probabilities, axis=1, kind="stable")
    places = np.arange(403)
    np.testing.assert_array_equal(found.predicted, probabilities.argmax(axis=1))
    np.testing.assert_array_equal(found.classes, ordered[:, :10])
    np.testing.assert_array_equal(found.confidence, probabilities.max(axis=1))
    np.testing.assert_array_equal(found.of_truth, probabilities[places, labels])
    at = np.argmax(ordered == labels[:, None], axis=1)
    np.testing.assert_array_equal(found.ahead, at)
    np.testing.assert_array_equal(found.among, own[probabilities[:, own].argmax(1)])
    answers = answers_of(None, found, [f"{one}" for one in range(classes)])
    last = np.sort(probabilities, axis=1)
    np.testing.assert_array_equal(answers.margin, last[:, -1] - last[:, -2])
    # Images of the training, whose labels it knows, neither count nor are suspected.
    for is_new in (np.ones(403, bool), places % 4 > 0):
        suspected = label_errors(answers, classes, is_new)
        expected = dense_label_errors(labels, probabilities, is_new)
        assert len(expected) > 5
        found = suspected.places, suspected.suggested, suspected.thresholds
        np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-12)
    chances = probabilities[suspected.places, suspected.suggested]
    np.testing.assert_array_equal(suspected.probabilities, chances)
    # One class alone that is judged is too few.
    assert label_errors(answers, classes, places >= 403 - 9) is None


def test_many_classes_need_little_memory():
    classes, images = 21_843, 64
    labels = np.arange(images) * 300
    parts = []
    for label in labels:
        row = np.full((1, classes), 1e-6, "float32")
        row[0, (label + label % 2) % classes] = 0.9
        parts.append(ranked(np.array([label]), row))
    found = joined(parts)
    names = [f"class {number}" for number in range(classes)]
    tracemalloc.start()
    try:
        summary = classification_summary(found, names)
        label_errors(found, classes, np.ones(images, bool))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    kept = [getattr(found, field.name) for field in dataclasses.fields(found)]
    assert all(array.base is None for array in kept)
    assert sum(array.nbytes for array in kept) < 300 * images
    assert peak < 100e6  # 3.8 GB as a dense matrix
    assert summary["confusion_matrix"].nnz == images


def test_every_image_is_in_the_file(tmp_path):
    names = ['a, "quoted".jpg', "größe.jpg", "=x", "bytes\udcff.jpg", "5.jpg", "6.jpg"]
    answers = answers_of(None, ranked(LABELS, PROBABILITIES), ["a,b", "猫", "-c"])
    write_mistakes(tmp_path / "mistakes.csv", answers, names)
    with (tmp_path / "mistakes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        **{"file": "bytes\\udcff.jpg", "truth": "a,b", "answer": "猫"},
        **{"probability": "0.9", "probability_of_truth": "0.05", "margin": "0.85"},
        "correct": "no",
    }
    names[2] = "'=x"  # no formula to spreadsheets
    assert [row["file"] for row in rows[1:]] == [names[n] for n in (1, 5, 4, 0, 2)]
    assert {row["truth"] for row in rows} == {"a,b", "猫", "'-c"}
    assert [row["correct"] for row in rows] == ["no"] * 3 + ["yes"] * 3
    assert "\r" not in (tmp_path / "mistakes.csv").read_text()


def test_the_file_of_suspected_label_errors(tmp_path):
    labels = np.repeat([0, 1], 5)
    chances = np.where(labels[:, None] == [0, 1, 2], [0.8, 0.8, 0], [0.1, 0.1, 0.1])
    chances[3], chances[9] = (0.1, 0.85, 0.05), (0.75, 0.15, 0.1)
    answers = answers_of(None, ranked(labels, chances), ["a", "=b", "c"])
    names = [f"@{index}.jpg" for index in range(10)]
    errors = label_errors(answers, 3, np.ones(10, bool))
    write_label_errors(tmp_path / "a.csv", answers, errors, names)
    assert (tmp_path / "a.csv").read_text().splitlines() == [
        "file,truth,suggested,probability,probability_of_truth,threshold",
        "'@3.jpg,a,'=b,0.85,0.1,0.67",
        "'@9.jpg,'=b,a,0.75,0.15,0.66",
    ]
