"""Photos at the size of a model, in the numbers of the released evaluation."""

import math

import numpy as np

from zoo.network.preparation import resized


def resize(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resizes a photo as the released evaluation does: bilinear, without antialias.

    Args:
        image: array (height, width, channels) of numbers.
        size: (height, width) in pixels.

    Returns:
        float32 array (height, width, channels) in the same range, the numbers of
        `tf.image.resize`.

    Example:
        >>> resize(np.array([[[0], [2]]]), (1, 4))[0, :, 0].tolist()
        [0.0, 0.5, 1.5, 2.0]
    """
    if image.shape[:2] == tuple(size):
        return image.astype("float32")
    top, bottom, down = places(image.shape[0], size[0])
    left, right, across = places(image.shape[1], size[1])
    # Columns first, of the rows that are read: those of a large photo are few.
    across, down = across[:, None], down[:, None, None]

    def row(places):
        rows = image[places].astype("float32", copy=False)
        first = rows[:, left]
        return first + (rows[:, right] - first) * across

    upper = row(top)
    return upper + (row(bottom) - upper) * down


def fitted(image: np.ndarray, size: tuple[int, int], preparation: str) -> np.ndarray:
    """Returns a decoded photo at a model's size, as a float32 array in its range.

    Images are (height, width, channels) of numbers in [0, 255]; `preparation` is as in
    `prepare`.
    """
    if preparation == "squash":
        return resize(image, size)
    if preparation == "central crop":
        return _central_crop(image, size)
    return resized(image, size, preparation)


def places(side: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns of each new place the two old ones beside it, and the second's weight."""
    scale = np.float32(side) / np.float32(new)
    places = (np.arange(new, dtype="float32") + np.float32(0.5)) * scale
    places -= np.float32(0.5)
    floor = np.floor(places)
    first = np.maximum(floor, 0).astype(int)
    second = np.minimum(np.ceil(places), side - 1).astype(int)
    return first, second, places - floor


def _central_crop(image, size):
    bigger = _bigger(image.shape[:2], size)
    start = (bigger - size) // 2
    for axis in range(2):
        image = _averaged(image, axis, bigger[axis], start[axis], size[axis])
    return image


def _bigger(sides, size):
    """Returns the (height, width) of which the central crop has 7/8 or less."""
    # In float32, which decides how they are rounded.
    sides, new = np.float32(sides), np.float32(size)
    scale = (new / sides).max() * np.float32(8) / np.float32(7)
    return np.maximum(np.round(sides * scale).astype(int), size)


def _averaged(image, axis, new, start, count):
    """Returns the means over equal parts of an axis, as `method="area"` has them.

    These are `count` of the `new` parts, from `start` on.
    """
    image = np.moveaxis(image, axis, 0)
    lines = image.reshape(len(image), -1)
    step = np.float32(len(image)) / np.float32(new)
    ends = np.arange(start, start + count + 1, dtype="float32")[:, None] * step
    firsts = np.floor(ends[:-1])
    places = firsts + np.arange(math.ceil(step) + 1, dtype="float32")
    shares = np.minimum(places + 1, ends[1:]) - np.maximum(places, ends[:-1])
    shares = np.where(places < len(image), np.maximum(shares, 0), np.float32(0))
    shares /= shares.sum(axis=1, keepdims=True)
    rows = np.empty((count, lines.shape[1]), "float32")
    for row, first, weights in zip(rows, firsts[:, 0].astype(int), shares, strict=True):
        parts = lines[first : first + len(weights)]
        np.matmul(weights[: len(parts)], parts.astype("float32"), out=row)
    return np.moveaxis(rows.reshape(count, *image.shape[1:]), 0, axis)
