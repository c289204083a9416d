"""A part of a split, for quick trials and for studies of the amount of data."""

import dataclasses

import numpy as np

from train.data.splits import Split, pick

_SEED = 0


def limited(split: Split, count: int | None) -> Split:
    """Takes at most so many examples of a split, a random choice that is always alike.

    A smaller choice is part of a larger one.

    Args:
        split: The split.
        count: How many examples, None for all.

    Returns:
        A split of them, in their order.
    """
    if count is None or count >= split.num_examples:
        return split
    # RandomState because NumPy keeps its stream the same in every version.
    places = np.random.RandomState(_SEED).permutation(split.num_examples)[:count]
    return dataclasses.replace(
        pick(split, np.sort(places)),
        name=f"{split.name} ({count:,} of {split.num_examples:,})",
    )


def spread(count, number, without=()):
    """Returns places that are evenly spread over a split.

    Splits often have their classes in order.

    Args:
        count: int, of the examples of the split.
        number: int, how many places; all there are if fewer.
        without: places that are not wanted.

    Returns:
        Integers, ascending.

    Example:

    >>> spread(10, 3).tolist(), spread(10, 3, without=[0, 4, 9]).tolist()
    ([0, 4, 9], [1, 5, 8])
    """
    free = np.setdiff1d(np.arange(count), without)
    number = min(number, len(free))
    return free[np.linspace(0, len(free) - 1, number).astype(int)]
