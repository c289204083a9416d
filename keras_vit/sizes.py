"""Sizes given as one int or as (height, width)."""


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
    if len(sides) != 2 or any(
        isinstance(side, bool) or not isinstance(side, int) or side < 1
        for side in sides
    ):
        raise ValueError(
            f"{name} must be a positive int or a (height, width) pair of them, "
            f"got {size!r}."
        )
    return sides
