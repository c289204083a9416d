"""Metrics of several labels, compared with scikit-learn's and with drawn photos."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from train.scoring.metrics import reliability
from train.several_labels import metrics
from train.several_labels.metrics import FEWEST_POSITIVES

RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.random((60, 6)) < [0.5, 0.3, 0.1, 0.9, 0.05, 0.0]
SCORES = np.clip(0.4 * TRUTH + 0.7 * RANDOM.random((60, 6)), 0, 1).astype("float32")
# There are 11 values, so that many are equal.
TIED = SCORES.round(1)
THRESHOLDS = np.array([0.5, 0.4, 0.6, 0.5, 0.7, 0.3])
PRESENT = TRUTH.any(axis=0)
BOTH = pytest.mark.parametrize("scores", [SCORES, TIED], ids=["distinct", "tied"])


def test_the_last_class_alone_has_no_photo():
    assert PRESENT.tolist() == [True] * 5 + [False]


@BOTH
def test_average_precision_is_that_of_scikit_learn(scores):
    found = metrics.label_metrics(scores, TRUTH, THRESHOLDS)
    expected = [
        sklearn_metrics.average_precision_score(TRUTH[:, place], scores[:, place])
        for place in range(5)
    ]
    np.testing.assert_allclose(found.average_precision[:5], expected, atol=1e-12)
    assert np.isnan(found.average_precision[5])
    for average, value in (
        ("macro", found.map_macro.value),
        ("micro", found.map_micro),
    ):
        expected = sklearn_metrics.average_precision_score(
            TRUTH[:, PRESENT] if average == "macro" else TRUTH,
            scores[:, PRESENT] if average == "macro" else scores,
            average=average,
        )
        assert abs(value - expected) < 1e-12


@BOTH
def test_answers_are_counted_as_by_scikit_learn(scores):
    found = metrics.label_metrics(scores, TRUTH, THRESHOLDS)
    answers = scores >= THRESHOLDS
    options = {"average": None, "zero_division": 0}
    each = sklearn_metrics.f1_score(TRUTH, answers, **options)
    np.testing.assert_allclose(found.f1, each, atol=1e-12)
    assert found.f1_macro.value == pytest.approx(each[PRESENT].mean(), abs=1e-12)
    micro = sklearn_metrics.f1_score(TRUTH, answers, average="micro")
    assert found.f1_micro.value == pytest.approx(micro, abs=1e-12)
    assert found.subset_accuracy == sklearn_metrics.accuracy_score(TRUTH, answers)
    loss = sklearn_metrics.hamming_loss(TRUTH, answers)
    assert found.hamming_loss == pytest.approx(loss, abs=1e-12)
    table = sklearn_metrics.multilabel_confusion_matrix(TRUTH, answers)
    np.testing.assert_array_equal(found.missed, table[:, 1, 0])
    np.testing.assert_array_equal(found.wrong, table[:, 0, 1])
    assert found.photos == 60
    np.testing.assert_array_equal(found.positives, TRUTH.sum(axis=0))
    together = [[(a & b).sum() for b in TRUTH.T] for a in TRUTH.T]
    np.testing.assert_array_equal(found.together, together)


def test_calibration_is_of_the_labels_one_by_one():
    error = metrics.label_metrics(SCORES, TRUTH).calibration["error"]
    places = np.ceil(SCORES * 15)
    bins = [places == place for place in range(1, 16)]
    bins[0] |= places == 0
    gaps = [abs(TRUTH[own].sum() - SCORES[own].sum()) for own in bins]
    assert error == pytest.approx(sum(gaps) / TRUTH.size, abs=1e-6)
    # Labels that occur as often as their probabilities say have little error.
    chances = RANDOM.random(20_000)
    assert reliability(chances, RANDOM.random(20_000) < chances)["error"] < 0.02


def test_intervals_are_those_of_drawn_photos():
    found = metrics.label_metrics(TIED, TRUTH, THRESHOLDS)
    drawn = []
    for _ in range(200):
        photos = RANDOM.integers(60, size=60)
        scores, truth = TIED[photos], TRUTH[photos]
        answers, own = scores >= THRESHOLDS, truth.any(axis=0)
        drawn.append(
            (
                sklearn_metrics.average_precision_score(truth[:, own], scores[:, own]),
                sklearn_metrics.f1_score(
                    truth[:, own], answers[:, own], average="macro"
                ),
                sklearn_metrics.f1_score(truth, answers, average="micro"),
            )
        )
    ends = np.quantile(drawn, (0.025, 0.975), axis=0)
    estimates = (found.map_macro, found.f1_macro, found.f1_micro)
    for (low, high), one in zip(ends.T, estimates, strict=True):
        # The ends of 200 resamples are uncertain by about a tenth of the width.
        assert abs(one.low - low) < 0.2 * (high - low)
        assert abs(one.high - high) < 0.2 * (high - low)
    again = metrics.label_metrics(TIED, TRUTH, THRESHOLDS)
    assert again.map_macro == found.map_macro


@BOTH
def test_thresholds_have_the_best_f1(scores):
    thresholds = metrics.best_thresholds(scores, TRUTH)
    few = TRUTH.sum(axis=0) < FEWEST_POSITIVES
    np.testing.assert_array_equal(thresholds.is_pooled, few)
    assert 1 < few.sum() < 6
    # The classes, and all of them together.
    cases = [(scores[:, place], TRUTH[:, place]) for place in np.flatnonzero(~few)]
    cases.append((scores.ravel(), TRUTH.ravel()))
    chosen = [*thresholds.values[~few], thresholds.pooled]
    for (own, truth), threshold in zip(cases, chosen, strict=True):
        every = [sklearn_metrics.f1_score(truth, own >= one) for one in np.unique(own)]
        assert sklearn_metrics.f1_score(truth, own >= threshold) == max(every)
        assert threshold == own.min() or threshold not in own
    assert (thresholds.values[few] == thresholds.pooled).all()


def test_thresholds_without_any_label_are_a_half():
    thresholds = metrics.best_thresholds(SCORES, np.zeros_like(TRUTH))
    assert thresholds.values.tolist() == [0.5] * 6 and thresholds.is_pooled.all()


def test_mistakes_begin_with_those_furthest_from_the_truth():
    places = metrics.mistakes(SCORES, TRUTH, THRESHOLDS)
    found = metrics.label_metrics(SCORES, TRUTH, THRESHOLDS)
    is_missed = TRUTH[tuple(places.T)]
    classes = np.bincount(places[is_missed, 1], minlength=6)
    np.testing.assert_array_equal(classes, found.missed)
    classes = np.bincount(places[~is_missed, 1], minlength=6)
    np.testing.assert_array_equal(classes, found.wrong)
    distances = np.abs(SCORES - TRUTH)[tuple(places.T)]
    assert (np.diff(distances) <= 0).all() and distances[0] > distances[-1]


@pytest.mark.parametrize(
    ("scores", "truth", "message"),
    [
        (SCORES[:, :2], TRUTH, r"got \(60, 2\) and \(60, 6\)"),
        (SCORES[:0], TRUTH[:0], r"at least one each, got \(0, 6\)"),
        (
            np.where(TRUTH, np.nan, SCORES),
            TRUTH,
            f"{TRUTH.sum()} scores are not finite",
        ),
    ],
)
def test_scores_that_do_not_fit_are_named(scores, truth, message):
    with pytest.raises(ValueError, match=message):
        metrics.label_metrics(scores, truth)
