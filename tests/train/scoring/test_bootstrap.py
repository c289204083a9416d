"""The bootstrap: its intervals, and how much it computes."""

import numpy as np
import pytest

from train.scoring import bootstrap
from train.scoring.bootstrap import estimates

NUMBERS = np.random.default_rng(0).normal(3, 2, size=400)


def means(counts):
    return counts @ NUMBERS[:, None] / counts.sum(axis=1, keepdims=True)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    (mean,) = estimates(means, 400)
    assert mean.value == pytest.approx(NUMBERS.mean())
    spread = 1.96 * NUMBERS.std() / 20
    assert mean.low == pytest.approx(NUMBERS.mean() - spread, abs=0.1 * spread)
    assert mean.high == pytest.approx(NUMBERS.mean() + spread, abs=0.1 * spread)
    assert estimates(means, 400) == [mean]


@pytest.mark.parametrize(("values", "expected"), [(1, 1000), (2000, 250), (10**9, 100)])
def test_resamples_are_fewer_where_they_take_long(values, expected, monkeypatch):
    monkeypatch.setattr(bootstrap, "_VALUES_AT_ONCE", 400 * 300)
    seen = []

    def metric(counts):
        assert len(counts) <= 300 and (counts.sum(axis=1) == 400).all()
        seen.append(len(counts))
        return means(counts)

    estimates(metric, 400, values)
    assert sum(seen) == 1 + expected


def test_resamples_without_a_metric_are_left_out():
    def metric(counts):
        is_drawn = counts[:, 0] > 0
        # Without the first photo there is none, nor is one of nothing at all.
        return np.stack((np.where(is_drawn, 1.0, np.nan), is_drawn / 0.0), axis=1)

    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = estimates(metric, 5)
    assert (first.value, first.low, first.high) == (1, 1, 1)
    assert np.isnan((second.low, second.high)).all()


def precisions(random, photos, shares, signal=1.2):
    """Returns a metric of drawn photos: the mean average precision of random labels."""
    truth = random.random((photos, len(shares))) < shares
    scores = random.normal(size=truth.shape) + signal * truth
    order = np.argsort(-scores, axis=0)
    truth = np.take_along_axis(truth, order, axis=0)

    def metric(counts):
        found = []
        for own, at in zip(truth.T, order.T, strict=True):
            drawn = counts[:, at]
            hits = np.cumsum(drawn * own, axis=1)
            shares = hits / np.maximum(np.cumsum(drawn, axis=1), 1)
            with np.errstate(invalid="ignore"):
                found.append((shares * drawn * own).sum(axis=1) / hits[:, -1])
        return np.nanmean(found, axis=0)[:, None]

    return metric


def test_intervals_cover_the_metric_of_as_many_other_photos(monkeypatch):
    monkeypatch.setattr(bootstrap, "RESAMPLES", 200)
    random = np.random.default_rng(1)
    shares, found = np.geomspace(0.02, 0.3, 12), []
    for _ in range(300):
        [one] = estimates(precisions(random, 128, shares), 128)
        found.append((one.low, one.value, one.high))
    low, value, high = np.array(found).T
    covered = (low <= value.mean()) & (value.mean() <= high)
    # Percentiles alone, which are too high, cover 89%.
    assert 0.93 <= covered.mean() <= 0.97


def test_the_interval_of_rare_labels_has_the_estimate(monkeypatch):
    monkeypatch.setattr(bootstrap, "RESAMPLES", 200)
    # Percentiles alone are all above it.
    metric = precisions(np.random.default_rng(0), 128, np.full(200, 0.02), signal=0)
    [one] = estimates(metric, 128)
    assert one.low < one.value < one.high
    counts = np.random.default_rng(0).multinomial(128, np.full(128, 1 / 128), 200)
    assert np.quantile(metric(counts), 0.025) > one.value


def test_intervals_stay_in_the_range_of_the_metric():
    def metric(counts):
        # Biased down and up by drawing again, within 0 to 1.
        seen = (counts > 0).mean(axis=1)
        return np.stack((seen, 1 - seen, np.ones(len(seen))), axis=1)

    first, second, third = estimates(metric, 50)
    assert (first.value, first.high, second.value, second.low) == (1, 1, 0, 0)
    assert (third.low, third.value, third.high) == (1, 1, 1)
