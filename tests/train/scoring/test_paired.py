"""Two classifiers on the same images, and learning curves."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_digits

from train.scoring.learning_curve import Point, last_gain, learning_curve, of_probe
from train.scoring.paired import difference, from_counts


def test_mcnemar_is_the_exact_binomial():
    found = from_counts(3, 11, 200)
    assert found.p == pytest.approx(binomtest(3, 14).pvalue)
    assert found.gain == pytest.approx(8 / 200)
    assert from_counts(0, 0, 10).p == 1


def test_differences_are_counted_per_image():
    first, second = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 1, 1]], bool)
    found = difference(first, second)
    assert (found.first_only, found.second_only) == (1, 2)
    assert difference(second, first).gain == -found.gain


@pytest.mark.parametrize("images", [30, 150])
def test_the_interval_has_the_true_difference_95_times_of_100(images):
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(2000):
        # The first alone is right on 5%, the second alone on 15%.
        first_only, second_only, _ = rng.multinomial(images, [0.05, 0.15, 0.8])
        found = from_counts(first_only, second_only, images)
        covered.append(found.low <= 0.1 <= found.high)
    assert 0.94 < np.mean(covered) < 0.985


def test_a_learning_curve_draws_of_each_class():
    labels = np.repeat([0, 1, 2], [40, 8, 2])
    drawn = []

    def answered(places):
        drawn.append(places)
        return np.arange(50) < len(places)

    curve = learning_curve(answered, labels, shares=(0.5, 0.1, 1), draws=2)
    assert [point.examples for point in curve] == [6, 25, 50]
    assert [np.bincount(labels[places]).tolist() for places in drawn] == [
        *([4, 1, 1], [4, 1, 1], [20, 4, 1], [20, 4, 1], [40, 8, 2])
    ]
    assert set(drawn[0]) < set(drawn[2]) and set(drawn[1]) < set(drawn[3])
    assert set(drawn[0]) != set(drawn[1])
    assert curve[1].accuracy == 0.5
    gain = last_gain(curve)
    assert (gain.fewer, gain.examples, gain.gain) == (25, 50, 0.5)
    assert gain.low < 0.5 < gain.high


def test_the_interval_of_a_gain_is_that_of_its_images():
    hits = np.array([0, 0.5, 1, 1]), np.array([1, 1, 1, 0.0])
    found = last_gain([Point(10, hits[0]), Point(20, hits[1])])
    assert found.gain == pytest.approx(0.125)
    # Six images, of which two halves count: one more that gains, one that loses.
    gains, counts = np.array([1, 0.5, 0, -1, 1, -1, 0]), [1, 1, 1, 1, 0.5, 0.5, 1]
    mean = np.average(gains, weights=counts)
    variance = np.average((gains - mean) ** 2, weights=counts)
    spread = 1.96 * np.sqrt(variance / 6)
    assert found.low == pytest.approx(mean - spread, rel=1e-3)
    assert found.high == pytest.approx(mean + spread, rel=1e-3)


@pytest.mark.parametrize("images", [1, 11])
def test_few_images_that_gain_nothing_are_no_proof_that_nothing_is_gained(images):
    same = np.ones(images)
    found = last_gain([Point(10, same), Point(20, same)])
    assert found.gain == 0 and found.low < -0.1 and found.high > 0.1


def test_more_digits_help_a_probe():
    features, labels = load_digits(return_X_y=True)
    known, tested = slice(0, 200), (features[200:1000], labels[200:1000])
    curve = of_probe("lda", features[known], labels[known], tested, 10, draws=2)
    assert [point.examples for point in curve] == [23, 50, 100, 200]
    accuracies = [point.accuracy for point in curve]
    assert accuracies == sorted(accuracies) and accuracies[0] > 0.5
    assert last_gain(curve).low > 0
