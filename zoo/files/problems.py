"""What is wrong with the arrays of a file, listed in one error."""

from __future__ import annotations

import collections

import numpy as np

from zoo.files import dialects
from zoo.files.archive import CheckpointError

_LISTED = 20


def twins(keys) -> list[str]:
    """Returns a problem for each key that is there twice."""
    counts = collections.Counter(keys)
    return [f"two arrays are called {key}" for key in sorted(counts) if counts[key] > 1]


def wrong_dtypes(arrays: dict) -> list[str]:
    """Returns a problem for each array that is not of floats of up to 32 bits."""
    problems = []
    for name, array in arrays.items():
        try:
            dialects.to_float32(np.empty(0, array.dtype))
        except TypeError as error:
            problems.append(f"{name} has {error}")
    return problems


def refuse(path, what: str, problems: list[str]) -> None:
    """Raises a `CheckpointError` that lists the problems, if there are any."""
    if not problems:
        return
    listed = "".join(f"\n  {problem}" for problem in problems[:_LISTED])
    more = len(problems) - _LISTED
    raise CheckpointError(
        f"{path} is not {what}:{listed}" + (f"\n  and {more} more" if more > 0 else "")
    )
