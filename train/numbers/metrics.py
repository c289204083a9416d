"""Metrics of numbers: errors with their intervals, beside those of one same answer."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from train.scoring.bootstrap import Estimate, estimates


@dataclasses.dataclass(frozen=True)
class NumberMetrics:
    """How far answers are from the truth, in its units; intervals are over photos.

    Attributes:
        photos: how many were answered.
        mean_absolute_error, root_mean_squared_error: with their 95% intervals.
        r2: 1 less the share of the squared differences from the mean of the truth that
            the errors are, with its interval; NaN where the truth is the same for all
            photos.
        median, mean: of the numbers of the photos that were trained on.
        absolute_error_of_median: the mean absolute error of always answering `median`.
        squared_error_of_mean: the root mean squared error of always answering `mean`.
        worst: integers (photos,), the places of photos by their errors, largest first.
    """

    photos: int
    mean_absolute_error: Estimate
    root_mean_squared_error: Estimate
    r2: Estimate
    median: float
    mean: float
    absolute_error_of_median: float
    squared_error_of_mean: float
    worst: np.ndarray


def number_metrics(
    answers: ArrayLike, truth: ArrayLike, trained_on: ArrayLike | None = None
) -> NumberMetrics:
    """Returns the metrics of answers, floats (photos,) or (photos, 1) as the truth is.

    `trained_on` are the numbers of the photos that were trained on, whose median and
    mean are what to answer without looking at a photo; by default those of the truth.

    Example:
        >>> found = number_metrics([1.0, 2.0, 6.0], [1.0, 3.0, 4.0], [3.0, 3.0, 9.0])
        >>> found.mean_absolute_error.value, found.absolute_error_of_median
        (1.0, 1.0)
        >>> found.median, found.worst.tolist()
        (3.0, [2, 1, 0])
    """
    answers, truth = _numbers("answers", answers), _numbers("truth", truth)
    if len(answers) != len(truth):
        raise ValueError(
            f"There must be one answer per photo, got {len(answers)} answers for "
            f"{len(truth)} photos."
        )
    known = truth if trained_on is None else _numbers("trained_on", trained_on)
    median, mean = float(np.median(known)), float(known.mean())
    errors = np.abs(answers - truth)
    # Squares of large numbers would lose the differences between them.
    centred = truth - truth.mean()
    terms = np.stack((errors, errors**2, centred, centred**2), axis=1)

    def metrics(counts):
        absolute, squared, shift, spread = (counts @ terms / len(truth)).T
        spread = spread - shift**2
        # Rounding leaves about 1e-16 of what would be 0.
        varies = spread > 1e-12 * np.mean(centred**2)
        r2 = np.where(varies, 1 - squared / np.where(varies, spread, 1), np.nan)
        return np.stack((absolute, np.sqrt(squared), r2), axis=1)

    absolute, squared, r2 = estimates(metrics, len(truth))
    return NumberMetrics(
        photos=len(truth),
        mean_absolute_error=absolute,
        root_mean_squared_error=squared,
        r2=r2,
        median=median,
        mean=mean,
        absolute_error_of_median=float(np.abs(truth - median).mean()),
        squared_error_of_mean=float(np.sqrt(np.mean((truth - mean) ** 2))),
        worst=np.argsort(-errors, kind="stable"),
    )


def _numbers(name, values):
    """Returns float64 (photos,)."""
    values = np.asarray(values, np.float64)
    is_column = values.ndim == 1 or values.shape[1:] == (1,)
    if not is_column or not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"{name} must be finite numbers of shape (photos,) or (photos, 1), not "
            f"none, got shape {values.shape} with {np.isfinite(values).sum()} finite."
        )
    return values.ravel()
