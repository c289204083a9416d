"""Sizes: one int, or (height, width); a number of tokens on a grid of patches."""

import math

from zoo.network import pair, positive_int
from zoo.released_names import PREFIX_TOKENS

__all__ = ["pair", "positive_int", "prefix_tokens"]
# The class token.
MAX_PREFIX_TOKENS = sum(PREFIX_TOKENS.values())


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
