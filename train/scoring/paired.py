"""Two classifiers on the same images: McNemar's test, and the difference."""

from dataclasses import dataclass

import numpy as np

from train.scoring.metrics import Z95


@dataclass(frozen=True)
class Difference:
    """How much the second of two classifiers is better than the first.

    Attributes:
        gain: the accuracy of the second minus that of the first.
        low, high: the 95% interval of the gain.
        p: the probability of counts at least as uneven if both were equally good.
        first_only: how many images the first alone answers correctly.
        second_only: how many the second alone answers correctly.
    """

    gain: float
    low: float
    high: float
    p: float
    first_only: int
    second_only: int


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    """Compares the answers of two classifiers to the same images.

    Both are bools (images,): whether an answer is correct.

    Example:
        >>> import numpy as np
        >>> found = difference(np.arange(50) < 40, np.arange(50) < 45)
        >>> found.gain, found.first_only, found.second_only, found.p
        (0.1, 0, 5, 0.0625)
    """
    first_only, second_only = np.sum(first & ~second), np.sum(second & ~first)
    return from_counts(int(first_only), int(second_only), len(first))


def from_counts(first_only: int, second_only: int, examples: int) -> Difference:
    """Compares two classifiers by the images that one of them alone gets right.

    `p` is of McNemar's test, by the exact binomial distribution, and the interval by
    `interval_of_gain`.
    """
    from scipy.stats import binomtest

    differing = first_only + second_only
    p = binomtest(second_only, differing).pvalue if differing else 1.0
    total = second_only - first_only
    low, high = interval_of_gain(total, differing, examples)
    return Difference(
        gain=total / examples,
        low=low,
        high=high,
        p=float(p),
        first_only=first_only,
        second_only=second_only,
    )


def interval_of_gain(
    total: float, squares: float, examples: int
) -> tuple[float, float]:
    """Returns the ends of the 95% interval of the mean of what images gain, -1 to 1.

    `total` and `squares` are the sums of their gains and of the squares of these.

    Source: Agresti and Min, Simple improved confidence intervals for comparing matched
    proportions, Statistics in Medicine 24 (2005): Wald's, after half an image more that
    gains 1, half of one that loses 1, and one that does neither.
    """
    count = examples + 2
    centre = total / count
    spread = Z95 * np.sqrt(squares + 1 - count * centre**2) / count
    return float(max(centre - spread, -1)), float(min(centre + spread, 1))
