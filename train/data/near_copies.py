"""Near-identical pictures: which are the same photo, saved otherwise.

A photo may have been resized, saved again, made brighter, mirrored, or cut by about a
twentieth. Candidates are pictures whose frequencies are alike; those stay that are
alike where one of them is cut, too; each of these is confirmed by laying one picture
over the other and comparing their details.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from train.data.alignment import interpolation, likeness
from zoo.store.progress import progress_bar

# Frequencies of the cosine transform in each direction.
_FREQUENCIES = 8
# The least cosine of candidates, that of those where one is cut, and the least likeness
# of copies.
_CANDIDATE, _CUT, _COPY = 0.65, 0.9, 0.8
# Each side is cut by one of these parts: with the others, every cut of up to a
# twentieth is nearly one of them.
_PARTS = (0.0125, 0.0375)
# Pictures that are compared with so many others at a time.
_ROWS, _COLUMNS = 1024, 8192
# Fewer are compared without a progress bar.
_SHOWN_PHOTOS = 20_000
# Pairs that are confirmed at a time.
_PAIRS = 4096


def near_pairs(small: np.ndarray) -> np.ndarray:
    """Returns the pairs of near-identical pictures, integers (pairs, 2).

    The first of a pair has the lower number. `small` are uint8 (pictures, side, side),
    each of some contrast.
    """
    whole = _frequencies(small)
    cut = _cut_frequencies(small)
    confirmed = [np.zeros((0, 2), int)]
    for is_mirrored in (False, True):
        signs = _mirrored() if is_mirrored else np.float32(1)
        for pairs in _candidates(whole, whole * signs, is_mirrored):
            for start in range(0, len(pairs), _PAIRS):
                some = pairs[start : start + _PAIRS]
                first, second = some.T
                is_near = _alike(cut[first], signs * whole[second])
                is_near |= _alike(cut[second], signs * whole[first])
                some = some[is_near]
                first, second = some.T
                other = small[second][:, :, :: -1 if is_mirrored else 1]
                confirmed.append(some[likeness(small[first], other) >= _COPY])
    return np.unique(np.concatenate(confirmed), axis=0)


def _candidates(
    rows: np.ndarray, columns: np.ndarray, is_mirrored: bool
) -> Iterator[np.ndarray]:
    """Yields the pairs whose frequencies agree, integers (pairs, 2)."""
    count = len(rows)
    bar = progress_bar(
        total=count,
        unit="photo",
        desc="comparing mirrored photos" if is_mirrored else "comparing photos",
        disable=count < _SHOWN_PHOTOS,
    )
    with bar:
        for row in range(0, count, _ROWS):
            some = rows[row : row + _ROWS]
            for column in range(row, count, _COLUMNS):
                cosines = some @ columns[column : column + _COLUMNS].T
                pairs = np.argwhere(cosines >= _CANDIDATE) + (row, column)
                yield pairs[pairs[:, 0] < pairs[:, 1]]
            bar.update(len(some))


def _alike(cut, whole):
    """Returns whether one of the cuts of each picture agrees with a whole one."""
    cosines = cut.astype("float32") @ whole[:, :, None]
    return cosines.max(axis=(1, 2)) >= _CUT


def _frequencies(small, rows=None, columns=None):
    """Returns float32 (pictures, numbers) of length 1, without the mean.

    Rows and columns are taken through matrices before. The amplitudes of photos fall as
    the frequency rises: all count alike here.
    """
    cosines = _cosines(small.shape[1])
    down = cosines if rows is None else cosines @ rows
    across = cosines if columns is None else cosines @ columns
    amplitudes = down @ small.astype("float32") @ across.T
    ranks = np.arange(_FREQUENCIES, dtype="float32")
    amplitudes *= np.hypot(ranks[:, None], ranks)
    amplitudes = amplitudes.reshape(len(small), -1)
    return amplitudes / np.maximum(
        np.linalg.norm(amplitudes, axis=1, keepdims=True), 1e-6
    )


def _cosines(side):
    places = (np.arange(side) + 0.5) * np.pi / side
    return np.cos(np.arange(_FREQUENCIES)[:, None] * places).astype("float32")


def _cut_frequencies(small):
    """Returns the frequencies of pictures that are cut, float16 (pictures, cuts, n)."""
    sides = [
        _cutting(small.shape[1], *parts) for parts in itertools.product(_PARTS, _PARTS)
    ]
    return np.stack(
        [
            _frequencies(small, rows, columns).astype("float16")
            for rows, columns in itertools.product(sides, sides)
        ],
        axis=1,
    )


def _cutting(side, first, last):
    """Returns the matrix that cuts these parts off a side, and stretches the rest."""
    stretch, shift = np.array([-(first + last)]), np.array([first - last])
    return interpolation(side, stretch, shift)[0]


def _mirrored():
    """Returns what frequencies are multiplied by if a picture is mirrored."""
    return np.tile((-1.0) ** np.arange(_FREQUENCIES), _FREQUENCIES).astype("float32")
