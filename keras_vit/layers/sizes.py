"""Sizes given as one int, or as (height, width)."""

import operator

import numpy as np


def positive_int(value, name, hint=""):
    """Returns `value` as a positive int.

    Args:
        value: int, one of NumPy too.
        name: str, what it is called in an error.
        hint: str, the end of the error: what to pass.

    Raises:
        ValueError: it is not one.

    Example:

    >>> positive_int(3, "classes")
    3
    """
    number = _positive_or_zero(value)
    if number < 1:
        raise ValueError(f"{name} must be a positive int, got {value!r}{hint}.")
    return number


def pair(size, name):
    """Returns `size` as a (height, width) tuple of positive ints.

    Args:
        size: int, or a sequence of two ints.
        name: str, what the size is called in an error.

    Returns:
        Tuple (height, width).

    Raises:
        ValueError: `size` is neither.

    Example:

    >>> pair(16, "patch_size")
    (16, 16)
    """
    sides = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    sides = tuple(_positive_or_zero(side) for side in sides)
    if len(sides) != 2 or min(sides) < 1:
        raise ValueError(
            f"{name} must be a positive int or a (height, width) pair of them, "
            f"got {size!r}."
        )
    return sides


def _positive_or_zero(value):
    """An int above zero, or 0 for what is none, as flags are."""
    if isinstance(value, (bool, np.bool_)):
        return 0
    try:
        return max(operator.index(value), 0)
    except TypeError:
        return 0
