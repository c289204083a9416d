"""Choices of examples: held out parts, stratified subsets, evenly spaced places."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from train.data import copies
from train.data.checking import DataError
from train.data.labels import strata
from train.data.sources.splits import Source, Split, pick

# Seeds `np.random.RandomState`, whose stream NumPy keeps in every version.
_SEED = 0


def divide(
    name: str,
    class_names: Iterable[str],
    parts: dict[str, Split],
    fraction: float | None,
    layout: str = "",
    ignored: tuple[str, ...] = (),
) -> Source:
    """Makes a source of the `Split`s "train" and some of "validation" and "test".

    "validation" is the test where there is no other, as in ImageNet. The validation
    split is then a fixed part of "train", stratified by class. `layout` says in
    messages what the data should look like. If the fraction is None, the only part is
    "all".
    """
    total = sum(part.num_examples for part in parts.values())
    own: dict[str, Any] = {"ignored": ignored, "total": total}
    if fraction is None:
        return Source(name, tuple(class_names), all=parts["all"], **own)
    if "train" not in parts or len(parts) == 1:
        lacking = "test" if "train" in parts else "train"
        raise DataError(f"{name} has nothing for {lacking}: {layout}")
    train, validation = parts["train"], None
    if "test" in parts and "validation" in parts:
        validation = parts["validation"]
    elif count := validation_size(train.name, train.num_examples, fraction):
        kept, held = hold_out(strata(train.labels()), count, copies.groups(train))
        if not held.size:
            raise DataError(
                f"all {train.num_examples} images of {train.name} are copies of one, "
                "which cannot be both for training and for validation: add others, or "
                "pass validation_fraction=0"
            )
        part = pick(train, held)
        validation = replace(part, name=f"the validation part of {train.name}")
        train = pick(train, kept)
    test = parts.get("test") or parts["validation"]
    return Source(name, tuple(class_names), train, validation, test, **own)


def validation_size(name: str, num_examples: int, fraction: float) -> int:
    """Returns how many examples a fraction of a training set holds out."""
    count = round(num_examples * fraction) if 0 <= fraction < 1 else -1
    if count < 0 or count >= num_examples or (count == 0) != (fraction == 0):
        raise DataError(
            f"validation_fraction={fraction} of the {num_examples} examples of {name} "
            "must leave at least one for validation and one for training: pass a "
            "number in [0, 1), such as 0.02, or 0 for no validation split"
        )
    return count


def hold_out(
    labels: np.ndarray, count: int, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the indices kept and the `count` held out, both ascending, always alike.

    The examples are shuffled with a fixed seed and sorted by class, then evenly
    spaced ones are held out, so every class gives its share to within one example.

    `groups` are what `train.data.copies.groups` returns: the first of copies is held
    out or kept, and the others go with it. `count` is then the number that would be
    held out without copies; of 100 examples that are 90 photos and copies of these, 9
    photos are held out instead of 10.
    """
    labels = np.asarray(labels)
    if groups is not None:
        _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
        if len(first) < len(labels):
            kept, held = hold_out(labels[first], _share(count, len(labels), len(first)))
            is_held = np.isin(inverse, held)
            return np.flatnonzero(~is_held), np.flatnonzero(is_held)
    by_class = _shuffled_by_class(labels, np.random.RandomState(_SEED))
    spaced = (2 * np.arange(count) + 1) * len(labels) // (2 * max(count, 1))
    held = np.sort(by_class[spaced])
    return np.setdiff1d(np.arange(len(labels)), held), held


def _share(count, total, photos):
    """Returns how many of some photos are held out, where it is `count` of a total."""
    return min(max(round(count * photos / total), min(count, 1)), photos - 1)


def with_test_part(whole: Split, class_names: Sequence[str]) -> dict[str, Split]:
    """Divides a data set without parts into "train" and "test", always alike.

    A fifth of each class is the test, at least one; copies of a photo go where the
    first of them goes, whatever their classes. Raises a `DataError` for a class of one
    photo.
    """
    labels, groups = whole.labels(), copies.groups(whole)
    if labels.ndim > 1 or labels.dtype.kind not in "iu":
        return _with_test_of(whole, *hold_out(strata(labels), _fifth(labels), groups))
    is_first = groups == np.arange(len(labels))
    is_held = np.zeros(len(labels), bool)
    for number, name in enumerate(class_names):
        own = np.flatnonzero(labels == number)
        places = own[is_first[own]]
        if len(own) and len(places) < 2:
            raise DataError(_one_photo(whole, name, own))
        _, held = hold_out(np.zeros(len(places)), _fifth(places))
        is_held[places[held]] = True
    is_held = is_held[groups]
    return _with_test_of(whole, np.flatnonzero(~is_held), np.flatnonzero(is_held))


def _fifth(photos):
    return max(1, len(photos) // 5)


def _with_test_of(whole, kept, held):
    """Returns the parts "train" and "test", by the places of their photos."""
    test = replace(pick(whole, held), name=f"the test part of {whole.name}")
    return {"train": pick(whole, kept), "test": test}


def _one_photo(whole, name, own):
    """Says that a class has one photo, or nothing but copies."""
    first = whole.locate(int(own[0]))
    what = f"one image, {first}"
    if len(own) > 1:
        what = (
            f"{len(own)} images, such as {first}, that are copies of one photo or of "
            "those of other classes"
        )
    return (
        f"{whole.name}: the class {name!r} has {what}, which cannot be both for "
        "training and for the test: add some, or remove it"
    )


def _shuffled_by_class(labels, random):
    shuffled = random.permutation(len(labels))
    return shuffled[np.argsort(np.asarray(labels)[shuffled], kind="stable")]


def limited(split: Split, count: int | None) -> Split:
    """Returns at most `count` examples of a split, a random choice, always the same.

    Each class has its share of them, see `shares`. A smaller choice is part of a larger
    one. No image is decoded. A count of None takes all.
    """
    if count is None or count >= split.num_examples:
        return split
    labels = strata(split.labels())
    random = np.random.RandomState(_SEED)
    by_class = _shuffled_by_class(labels, random)
    _, sizes = np.unique(labels, return_counts=True)
    taken = shares(sizes, count, random.permutation(len(sizes)))
    classes = np.split(by_class, np.cumsum(sizes)[:-1])
    chosen = [own[:number] for own, number in zip(classes, taken, strict=True)]
    places = np.sort(np.concatenate(chosen))
    name = f"{split.name} ({count:,} of {split.num_examples:,})"
    return replace(pick(split, places), name=name)


def shares(sizes: np.ndarray, count: int, ranks: np.ndarray) -> np.ndarray:
    """Divides a number among classes by their `sizes`, to within one.

    Each class gets at least one, if the number is large enough for that: the rest are
    then the shares of a slightly smaller number. A larger number gives no class less.
    `ranks` say which class goes first where all else is equal: of 10 for the sizes 60,
    30, 9 and 1 the shares are 5, 3, 1 and 1.
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

    Example `k` of `size` is due in a window: after it would be ahead of its share by
    one whole, before it falls behind by one. The window that ends first goes first.

    Source: R. Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980.
    """
    total = int(np.sum(sizes))

    def windows(number: int) -> Iterator:
        size, rank = int(sizes[number]), int(ranks[number])
        for k in range(size):
            begin, end = k * total // size, -(-(k + 1) * total // size)
            yield begin, end, rank, number

    due = []
    turn = 0
    for begin, *window in heapq.merge(*map(windows, range(len(sizes)))):
        while turn < begin:
            yield heapq.heappop(due)[-1]
            turn += 1
        heapq.heappush(due, window)
    while due:
        yield heapq.heappop(due)[-1]


def spread(
    count: int, number: int, without: Sequence[int] | np.ndarray = ()
) -> np.ndarray:
    """Returns evenly spaced indices, `number` of `count` or all if there are fewer.

    >>> spread(10, 3).tolist(), spread(10, 3, without=[0, 4, 9]).tolist()
    ([0, 4, 9], [1, 5, 8])
    """
    free = np.setdiff1d(np.arange(count), without)
    number = min(number, len(free))
    return free[np.linspace(0, len(free) - 1, number).astype(int)]
