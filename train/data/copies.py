"""Copies among photos: identical files, and the same photo saved otherwise."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence

import numpy as np

from train.data.fingerprint_cache import has_keys, known
from train.data.fingerprints import Fingerprint
from train.data.near_copies import near_pairs
from train.data.sources.splits import Split, is_of_files
from zoo.common.regular_files import open_regular

# With more examples our own splits separate identical files alone: decoding them all
# would take minutes whenever they have changed.
MOST_DECODED = 20_000


def groups(split: Split) -> np.ndarray:
    """Returns integers (examples,), alike for copies: the place of the first of them.

    This is what our own splits are made by, each time that data are loaded. Of more
    than `MOST_DECODED` examples only identical ones count, which are found without
    decoding; so it is for files of one size, and for records whose hashes are known.
    Other examples, which published data sets have, are not compared.
    """
    count = split.num_examples
    if not has_keys(split):
        return np.arange(count)
    if count > MOST_DECODED:
        return joined(count, identical(digests([split])))
    looked_at = known(split)
    same = identical([one.digest for one in looked_at])
    return joined(count, [*same, *near(looked_at)])


def copied(split: Split, others: Split) -> np.ndarray:
    """Returns which files of a split are copies of files of another one, bools.

    Of more than `MOST_DECODED` files together only identical ones count, as in
    `groups`.
    """
    count, total = split.num_examples, split.num_examples + others.num_examples
    if total > MOST_DECODED:
        same = joined(total, identical(digests([split, others])))
    else:
        looked_at = [*known(split), *known(others)]
        links = [*identical([one.digest for one in looked_at]), *near(looked_at)]
        same = joined(total, links)
    return np.isin(same[:count], same[count:])


def digests(splits: Sequence[Split]) -> list[bytes]:
    """Returns what is equal for identical examples of the splits of a data set.

    Of files, those of equal size alone are read.
    """
    if not all(map(is_of_files, splits)):
        return [hash.tobytes() for split in splits for hash in split.hashes]
    paths = [path for split in splits for path in split.arrays[0]]
    told_apart = list(map(_size, paths))
    for group in identical(told_apart):
        for place in group:
            told_apart[place] += _digest(paths[place])
    return told_apart


def _size(path):
    with contextlib.suppress(OSError):
        if size := os.path.getsize(path):
            return b"%d " % size
    return b""


def _digest(path):
    with contextlib.suppress(OSError), open_regular(path) as file:
        return hashlib.file_digest(file, "blake2b").digest()
    return os.fsencode(path)


def identical(digests: Sequence[bytes]) -> list[np.ndarray]:
    """Returns the places of each digest that occurs several times; no empty ones.

    Example:
        >>> [group.tolist() for group in identical([b"a", b"b", b"a", b"", b""])]
        [[0, 2]]
    """
    places: dict[bytes, list[int]] = {}
    for place, digest in enumerate(digests):
        if digest:
            places.setdefault(digest, []).append(place)
    return [np.array(group) for group in places.values() if len(group) > 1]


def grouped(groups: np.ndarray) -> list[np.ndarray]:
    """Returns the places of each group of several, as `groups` has them.

    Example:
        >>> [group.tolist() for group in grouped(np.array([0, 1, 2, 1, 1]))]
        [[1, 3, 4]]
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    return [group for group in np.split(order, starts) if len(group) > 1]


def near(fingerprints: Sequence[Fingerprint]) -> np.ndarray:
    """Returns the pairs of places of photos that are near-identical, (pairs, 2).

    Of identical photos, which count as one, the first alone is in a pair.
    """
    is_first = {}
    for place, one in enumerate(fingerprints):
        if one.has_details:
            is_first.setdefault(one.digest, place)
    places = sorted(is_first.values())
    if len(places) < 2:
        return np.zeros((0, 2), int)
    small = np.stack([fingerprints[place].small for place in places])
    return np.take(places, near_pairs(small))


def joined(count: int, links: Iterable[Iterable[int]]) -> np.ndarray:
    """Returns integers (count,): the first place that each place is linked with.

    `links` are pairs or groups of places. A place without links has its own number.

    Example:
        >>> joined(5, [(1, 3), (3, 4)])
        array([0, 1, 2, 1, 1])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, columns = [], []
    for first, *others in links:
        rows += [first] * len(others)
        columns += others
    graph = coo_array((np.ones(len(rows)), (rows, columns)), (count, count))
    _, numbers = connected_components(graph, directed=False)
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    return first[inverse]
