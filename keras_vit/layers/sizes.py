"""Sizes: one int, or (height, width); a number of tokens on a grid of patches."""

import math
import operator

import numpy as np

# The class token.
MAX_PREFIX_TOKENS = 1


def positive_int(value, name, hint=""):
    """Returns `value` as a positive int; `name` and `hint` begin and end the error.

    Raises:
        ValueError: it is not one.
    """
    number = _positive_or_zero(value)
    if number < 1:
        raise ValueError(f"{name} must be a positive int, got {value!r}{hint}.")
    return number


def pair(size, name):
    """Returns an int or a pair as (height, width); `name` begins the error.

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


def prefix_tokens(num_tokens, grid_size, name, remedy):
    """Returns how many of a sequence's tokens come before those of the patches.

    Args:
        num_tokens: int, all of them.
        grid_size: (rows, columns) of the patches.
        name: str, what has the tokens, for the error.
        remedy: str, the end of the error.

    Raises:
        ValueError: the tokens do not fit the grid.

    Example:

    >>> prefix_tokens(197, (14, 14), "ViT-B_16", "")
    1
    """
    others = num_tokens - math.prod(grid_size)
    if not 0 <= others <= MAX_PREFIX_TOKENS:
        rows, columns = grid_size
        raise ValueError(
            f"{name} has a grid of {rows}x{columns} patches and at most one class "
            f"token, got {num_tokens} tokens: {remedy}."
        )
    return others


def _positive_or_zero(value):
    """Returns an int above zero, or 0 for anything else, as flags give it."""
    if isinstance(value, (bool, np.bool_)):
        return 0
    try:
        return max(operator.index(value), 0)
    except TypeError:
        return 0
