"""Choices of examples: held out parts, stratified subsets, evenly spaced places."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from train.data.sources.splits import DataError, Source, Split, pick

_SEED = 0


def divide(
    name: str,
    class_names: Sequence[str],
    parts: Mapping[str, Split],
    validation_fraction: float,
    layout: str,
) -> Source:
    """Makes a source of "train" and some of "validation" and "test".

    "validation" is the test where there is no other, as in ImageNet. Otherwise it is
    the validation split, and where there is none, that is a fixed part of "train",
    stratified by class. `layout` says in messages what the data should look like.

    Raises:
        DataError: when there is nothing to train or to test on, or when the fraction
            is unusable.
    """
    if "train" not in parts or len(parts) == 1:
        lacking = "test" if "train" in parts else "train"
        raise DataError(f"{name} has nothing for {lacking}: {layout}")
    train = parts["train"]
    if "test" in parts and "validation" in parts:
        validation = parts["validation"] if validation_fraction else None
    else:
        validation = None
        count = validation_size(train.name, train.num_examples, validation_fraction)
        if count:
            kept, held = hold_out(train.labels(), count)
            validation = replace(
                pick(train, held), name=f"the validation part of {train.name}"
            )
            train = pick(train, kept)
    return Source(
        name=name,
        class_names=tuple(class_names),
        train=train,
        validation=validation,
        test=parts.get("test") or parts["validation"],
    )


def validation_size(name: str, num_examples: int, fraction: float) -> int:
    """Returns how many examples a fraction of a training set holds out.

    Raises:
        DataError: when the fraction is out of range or leaves a part empty.
    """
    count = round(num_examples * fraction) if 0 <= fraction < 1 else -1
    if count < 0 or count >= num_examples or (count == 0) != (fraction == 0):
        raise DataError(
            f"validation_fraction={fraction} of the {num_examples} examples of {name} "
            "must leave at least one for validation and one for training: pass a "
            "number in [0, 1), such as 0.02, or 0 for no validation split"
        )
    return count


def hold_out(labels: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides examples in two parts with the same mix of classes, always alike.

    The examples are shuffled with a fixed seed and sorted by class, then evenly
    spaced ones are held out, so every class gives its share to within one example.

    Returns:
        The indices kept and the `count` indices held out, both ascending.
    """
    labels = np.asarray(labels)
    # RandomState because NumPy keeps its stream the same in every version.
    shuffled = np.random.RandomState(_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    spaced = (2 * np.arange(count) + 1) * len(labels) // (2 * max(count, 1))
    held = np.sort(by_class[spaced])
    return np.setdiff1d(np.arange(len(labels)), held), held


def limited(split: Split, count: int | None) -> Split:
    """Returns at most so many examples of a split, a random choice, always the same.

    Each class has its share of them, see `shares`. A smaller choice is part of a larger
    one. No image is decoded. A count of None takes all.
    """
    if count is None or count >= split.num_examples:
        return split
    labels = split.labels()
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
    return replace(
        pick(split, places),
        name=f"{split.name} ({count:,} of {split.num_examples:,})",
        known_labels=labels[places],
    )


def shares(sizes, count, ranks):
    """Divides a number among classes by their sizes, to within one.

    Each class gets at least one, if the number is large enough for that: the rest are
    then the shares of a slightly smaller number. A larger number gives no class less.

    Args:
        sizes: ints, how many examples each class has, at least one.
        count: int, how many to choose, at most all.
        ranks: ints, which class goes first where all else is equal.

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
    """Returns evenly spaced indices, `number` of `count` or all if there are fewer.

    >>> spread(10, 3).tolist(), spread(10, 3, without=[0, 4, 9]).tolist()
    ([0, 4, 9], [1, 5, 8])
    """
    free = np.setdiff1d(np.arange(count), without)
    number = min(number, len(free))
    return free[np.linspace(0, len(free) - 1, number).astype(int)]
