"""Lays small pictures over each other, and compares their details."""

import numpy as np
from scipy.ndimage import gaussian_filter

# Resolutions at which pictures are laid over each other, and the rounds at each.
_ROUNDS = {16: 4, 32: 4}
# This part of a side is not compared, as the other picture may lack it.
_MARGIN = 1 / 16
# The most that a side may be stretched or moved, of half the side.
_MOST_MOVED = 0.16
# At the coarse resolution pairs that agree less are given up.
_COARSE = 0.75
# Details are what differs from a blurred picture; of these pixels is the blur.
_BLUR = 2.0
# This part of the mean details counts as none: outlines of two plates are alike.
_FAINT = 0.25


def likeness(small: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns the correlation of the details of pictures, floats (pairs,).

    Each picture is stretched and moved along rows and columns until it lies on the
    other one of its pair. Both are uint8 (pairs, side, side); where no small movement
    brings them together the likeness is 0.

    Source: Lucas and Kanade, An Iterative Image Registration Technique, 1981.
    """
    correlations = np.zeros(len(small))
    left = np.arange(len(small))
    moves = np.zeros((len(small), 4), "float32")
    for side, rounds in _ROUNDS.items():
        if not left.size:
            return correlations
        pictures, wanted = (_reduced(rows[left], side) for rows in (small, others))
        moves = _laid(pictures, wanted, moves, rounds)
        moved = _moved(pictures, moves)
        agreement = _correlation(moved, wanted)
        is_near = (np.abs(moves) <= _MOST_MOVED).all(axis=1) & (agreement >= _COARSE)
        left, moves = left[is_near], moves[is_near]
    details = _correlation(_details(moved[is_near]), _details(wanted[is_near]))
    correlations[left] = details
    return correlations


def _reduced(pictures, side):
    pictures = pictures.astype("float32")
    count, full = pictures.shape[:2]
    step = full // side
    if step == 1:
        return pictures
    return pictures.reshape(count, side, step, side, step).mean(axis=(2, 4))


def _laid(pictures, wanted, moves, rounds):
    """Returns the movements, improved: stretch and shift of rows, and of columns."""
    side = pictures.shape[1]
    inner = _inner(side)
    along = ((2 * np.arange(side) + 1) / side - 1).astype("float32")
    wanted = _standard(wanted[:, inner, inner])
    for _ in range(rounds):
        moved = _moved(pictures, moves)
        scale = moved[:, inner, inner].std(axis=(1, 2), keepdims=True) + 1e-6
        down, across = np.gradient(moved / scale, 2 / side, axis=(1, 2))
        slopes = [down * along[:, None], down, across * along, across]
        slopes = np.stack([slope[:, inner, inner] for slope in slopes], axis=1)
        slopes = slopes.reshape(len(slopes), 4, -1)
        missing = wanted - _standard(moved[:, inner, inner])
        normal = slopes @ slopes.transpose(0, 2, 1) + 1e-3 * np.eye(4, dtype="float32")
        right = slopes @ missing.reshape(len(missing), -1, 1)
        moves = moves + np.linalg.solve(normal, right)[:, :, 0]
        moves = np.clip(moves, -2 * _MOST_MOVED, 2 * _MOST_MOVED)
    return moves


def _moved(pictures, moves):
    """Returns pictures stretched and moved, (pairs, side, side), interpolated."""
    rows = interpolation(pictures.shape[1], moves[:, 0], moves[:, 1])
    columns = interpolation(pictures.shape[2], moves[:, 2], moves[:, 3])
    return rows @ pictures @ columns.transpose(0, 2, 1)


def interpolation(side: int, stretch: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns the matrix of each movement of a side, float32 (movements, side, side).

    A place of -1 to 1 becomes (1 + stretch) times that and shift; levels there are
    interpolated linearly.
    """
    along = (2 * np.arange(side) + 1) / side - 1
    places = along + stretch[:, None] * along + shift[:, None]
    places = np.clip(((places + 1) * side - 1) / 2, 0, side - 1)
    distances = np.abs(places[:, :, None] - np.arange(side))
    return np.maximum(0, 1 - distances).astype("float32")


def _details(pictures):
    """Returns the details of pictures, those of all places equally strong."""
    details = pictures - _blurred(pictures)
    power = np.square(details)
    faint = _FAINT**2 * power.mean(axis=(1, 2), keepdims=True) + 1e-6
    return details / np.sqrt(np.maximum(_blurred(power), 0) + faint)


def _blurred(pictures):
    return gaussian_filter(pictures, (0, _BLUR, _BLUR), mode="nearest")


def _correlation(pictures, others):
    inner = _inner(pictures.shape[1])
    one, other = (_standard(rows[:, inner, inner]) for rows in (pictures, others))
    return (one * other).mean(axis=(1, 2))


def _standard(pictures):
    pictures = pictures - pictures.mean(axis=(1, 2), keepdims=True)
    return pictures / (pictures.std(axis=(1, 2), keepdims=True) + 1e-6)


def _inner(side):
    margin = round(side * _MARGIN)
    return slice(margin, side - margin)
