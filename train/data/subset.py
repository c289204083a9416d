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
