"""From raw seconds to medians, ratios and shares of the limit."""

import numpy as np

# A run whose calibration varies more says nothing.
MOST_VARIATION = 0.15


def summarize(records, reference=None, calibration=None):
    """Returns what the measurements mean.

    Args:
        records: list of dicts with `name`, `ours`, `items`, `operations`, `error`
            (None, or a str), `seconds` and `cpu_seconds` (lists of rounds, each a list
            of repeats), `peak_bytes`.
        reference: str, name of the contender that ratios refer to; where there is
            none, or it failed, the first that is not ours, or else the first.
        calibration: such a record of the matrix product, or None.

    Returns:
        Dict of `contenders` (the records, with more), `reference`, `calibration` and
        `void`, which is whether the machine was too noisy for the ratios to count.
    """
    calibration = _calibration(calibration)
    rate = calibration.get("operations_per_second")
    running = [record for record in records if record["error"] is None]
    references = (
        [record for record in running if record["name"] == reference]
        or [record for record in running if not record["ours"]]
        or running
    )
    baseline = references[0] if references else None
    contenders = [
        record
        if record["error"] is not None
        else {**record, **_figures(record, baseline, rate)}
        for record in records
    ]
    return {
        "contenders": contenders,
        "reference": baseline and baseline["name"],
        "calibration": calibration,
        "void": calibration.get("variation", 0.0) > MOST_VARIATION,
    }


def round_medians(record):
    """Returns the median seconds of each round as an array."""
    return np.array([np.median(repeats) for repeats in record["seconds"]])


def _figures(record, baseline, rate):
    seconds = np.concatenate(record["seconds"])
    median = float(np.median(seconds))
    ratios = round_medians(baseline) / round_medians(record)
    share = None
    if rate and record["operations"]:
        share = record["operations"] / median / rate
    return {
        "p50": median,
        "p95": float(np.percentile(seconds, 95)),
        "best": float(seconds.min()),
        "items_per_second": record["items"] / median,
        "cpu_p50": float(np.median(np.concatenate(record["cpu_seconds"]))),
        "ratio": float(np.median(ratios)),
        "ratios": ratios.tolist(),
        "share_of_limit": share,
    }


def _calibration(record):
    if record is None:
        return {}
    if record["error"] is not None:
        return {"error": record["error"]}
    rates = record["operations"] / round_medians(record)
    return {
        "operations_per_second": float(np.median(rates)),
        "variation": float(1 - rates.min() / rates.max()),
        "seconds": record["seconds"],
        "cpu_seconds": record["cpu_seconds"],
    }
