"""Bootstrap: 95% intervals of metrics by drawing the photos again."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

RESAMPLES = 1000
# With fewer the ends of intervals are too rough.
FEWEST_RESAMPLES = 100
# About five seconds of one core, and 64 MB of counts at once.
VALUES = 200_000_000
_VALUES_AT_ONCE = 8_000_000
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A metric with its 95% interval.

    Attributes:
        value: the metric of the photos.
        low, high: the ends of the interval.
    """

    value: float
    low: float
    high: float

    @property
    def percent(self) -> str:
        """The metric, a share, and its interval as text."""
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%})"

    def named(self, name: str) -> dict[str, float]:
        """Returns it for a report, as `train.scoring.metrics.share` does.

        Example:
            >>> Estimate(0.5, 0.25, 0.75).named("f1")
            {'f1': 0.5, 'f1_low': 0.25, 'f1_high': 0.75}
        """
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def estimates(
    metric: Callable[[np.ndarray], np.ndarray], photos: int, values: int = 1
) -> list[Estimate]:
    """Returns metrics of all photos with bootstrap intervals over drawn photos.

    An interval is for the metric of as many other photos. Its ends are percentiles of
    drawn photos less the bias of these, which is their mean less the metric of all: a
    photo that is drawn several times counts as a match for itself, which raises average
    precision.

    `metric` takes counts (resamples, photos), how many times each photo counts, and
    returns floats (resamples, metrics), NaN where there are none. `values` is how many
    values it computes per photo: up to 1,000 resamples are drawn, fewer where all would
    take more than about five seconds, but at least 100. The seed is fixed.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), sections 10.2
    (bias) and 13.3 (percentiles).

    Example:
        >>> numbers = np.arange(100.0)
        >>> (mean,) = estimates(lambda counts: counts @ numbers[:, None] / 100, 100)
        >>> mean.value, 42 < mean.low < 45, 54 < mean.high < 57
        (49.5, True, True)
    """
    whole = metric(np.ones((1, photos), np.int32))[0]
    drawn = np.concatenate([metric(counts) for counts in _resamples(photos, values)])
    return [
        Estimate(float(value), *_interval(float(value), column))
        for value, column in zip(whole, drawn.T, strict=True)
    ]


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Returns part / whole, NaN where whole is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), np.nan)


def mean_of_finite(values: np.ndarray) -> np.ndarray:
    """Returns means over the last axis without NaN, which a row of NaN has.

    Example:
        >>> mean_of_finite(np.array([[1.0, np.nan, 3.0]])).tolist()
        [2.0]
    """
    finite = np.isfinite(values)
    return ratio(np.where(finite, values, 0).sum(axis=-1), finite.sum(axis=-1))


def _interval(value, drawn):
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return float("nan"), float("nan")
    low, high = np.quantile(drawn, (0.025, 0.975)) - (drawn.mean() - value)
    # A metric keeps to its range, such as 0 to 1, and the interval has the estimate.
    low = min(max(low, min(drawn.min(), 0.0)), value)
    high = max(min(high, drawn.max()), value)
    return float(low), float(high)


def _resamples(photos: int, values: int) -> Iterator[np.ndarray]:
    """Yields int32 (resamples, photos): how many times each photo is drawn."""
    random = np.random.default_rng(_SEED)
    left = int(np.clip(VALUES // (photos * values), FEWEST_RESAMPLES, RESAMPLES))
    while left:
        rows = min(left, max(1, _VALUES_AT_ONCE // photos))
        drawn = random.integers(photos, size=(rows, photos))
        drawn += photos * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * photos)
        yield counts.reshape(rows, photos).astype(np.int32)
        left -= rows
