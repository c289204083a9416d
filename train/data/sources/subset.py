"""A part of a split, for quick trials and for studies of the amount of data."""

import dataclasses
import heapq

import numpy as np

from train.data.sources.splits import Split, pick

_SEED = 0


def limited(split: Split, count: int | None) -> Split:
    """Takes at most so many examples of a split, a random choice that is always alike.

    Each class has its share of them, see `shares`. A smaller choice is part of a larger
    one. No image is decoded.

    Args:
        split: The split.
        count: How many examples, None for all.

    Returns:
        A split of them, in their order.
    """
    if count is None or count >= split.num_examples:
        return split
    labels = split.labels()
    # RandomState because NumPy keeps its stream the same in every version.
    random = np.random.RandomState(_SEED)
    shuffled = random.permutation(split.num_examples)
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    by_class = shuffled[np.argsort(classes[shuffled], kind="stable")]
    ends = np.cumsum(sizes)
    taken = shares(sizes, count, random.permutation(len(sizes)))
    places = np.sort(
        np.concatenate(
            [
                by_class[start : start + number]
                for start, number in zip(ends - sizes, taken, strict=True)
            ]
        )
    )
    return dataclasses.replace(
        pick(split, places),
        name=f"{split.name} ({count:,} of {split.num_examples:,})",
        known_labels=labels[places],
    )


def shares(sizes, count, ranks):
    """Divides a number among classes by their sizes, to within one.

    Each class has one at least, if the number is large enough for that: what the others
    then have are the shares of a slightly smaller number. A larger number gives no
    class less.

    Args:
        sizes: ints, how many examples each class has, at least one.
        count: int, how many to choose, at most all.
        ranks: ints, which class goes first where all else is equal.

    Returns:
        Integers, how many of each class.

    Example:

    >>> shares([60, 30, 9, 1], 10, [0, 1, 2, 3]).tolist()
    [5, 3, 1, 1]
    """
    for_all = count >= len(sizes)
    left = count - len(sizes) if for_all else count
    taken = np.full(len(sizes), int(for_all))
    seen = set()
    for number in _turns(sizes, ranks):
        if not left:
            break
        # Every class has its first already, or gets no more than that.
        if (number in seen) == for_all:
            taken[number] += 1
            left -= 1
        seen.add(number)
    return taken


def _turns(sizes, ranks):
    """Yields classes so that after every turn each had its share, to within one.

    The example `k` of `size` of a class is due in a window: after it would be ahead
    of its share by one whole, before it falls behind by one. Of those in theirs the
    window that ends first goes first.

    Source: R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32
    (1980).
    """
    total = int(np.sum(sizes))
    done = [0] * len(sizes)
    waiting = [(1, number) for number in range(len(sizes))]
    due = []
    for turn in range(1, total + 1):
        while waiting and waiting[0][0] <= turn:
            _, number = heapq.heappop(waiting)
            end = -(-(done[number] + 1) * total // int(sizes[number]))
            heapq.heappush(due, (end, int(ranks[number]), number))
        *_, number = heapq.heappop(due)
        yield number
        done[number] += 1
        if done[number] < sizes[number]:
            begin = done[number] * total // int(sizes[number]) + 1
            heapq.heappush(waiting, (begin, number))


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
