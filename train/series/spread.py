"""How much the results of several runs differ."""

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict:
    """Returns mean, sample standard deviation and the 95% interval of the mean.

    The interval, `low` to `high`, is that of Student's t, within 0 and 1 as the values
    are shares. One value has neither that nor a deviation: these are None.

    Example:
        >>> found = spread([0.8, 0.9, 0.85])
        >>> [round(found[key], 3) for key in ("mean", "deviation", "low", "high")]
        [0.85, 0.05, 0.726, 0.974]
    """
    from scipy.stats import t

    count, mean = len(values), statistics.fmean(values)
    found = {"values": list(values), "mean": mean}
    if count == 1:
        return found | {"deviation": None, "low": None, "high": None}
    deviation = statistics.stdev(values)
    half = float(t.ppf(0.975, count - 1)) * deviation / count**0.5
    limits = {"low": max(mean - half, 0.0), "high": min(mean + half, 1.0)}
    return found | {"deviation": deviation, **limits}
