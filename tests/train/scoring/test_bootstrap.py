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
