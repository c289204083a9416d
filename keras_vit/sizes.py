"""Sizes given as one int or as (height, width)."""

import operator


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
    try:
        sides = tuple(operator.index(side) for side in sides)
    except TypeError:
        sides = ()
    if len(sides) != 2 or min(sides) < 1:
        raise ValueError(
            f"{name} must be a positive int or a (height, width) pair of them, "
            f"got {size!r}."
        )
    return sides
