"""Photos of any size for a model of one size: whole, or window by window."""

import itertools
import math
from collections.abc import Callable

import numpy as np

from zoo import photos

# A photo that needs more windows than this would have gigabytes of logits.
_MOST_WINDOWS = 16

# Images (photos, height, width, 3) in [-1, 1] to scores (photos, rows, columns,
# classes), perhaps of a coarser grid.
Answer = Callable[[np.ndarray], np.ndarray]


def whole(photo: np.ndarray, answer: Answer, size: tuple[int, int]) -> np.ndarray:
    """Returns the scores of a photo that is squashed to the model's size.

    Args:
        photo: uint8 array (height, width, 3).
        answer: a model, see `Answer`.
        size: the model's (height, width).

    Returns:
        float32 array (rows, columns, classes), of the grid that the model answers in.
        `train.masks.drawing.class_map` brings it to the photo's size.
    """
    return np.asarray(answer(_model_range(photos.resize(photo, size))[None]))[0]


def sliding(
    photo: np.ndarray, answer: Answer, size: tuple[int, int], batch_size: int = 8
) -> np.ndarray:
    """Returns the scores of a photo, averaged over windows of the model's size.

    The photo keeps its aspect. It is resized until the model's size just fits into it;
    as few windows as cover it follow each other along its longer side at equal
    distances. It is resized as for training, bilinear without antialias, where the
    source has antialias.

    Args:
        photo: uint8 array (height, width, 3).
        answer: a model, see `Answer`; coarser scores are resized, bilinear, to the
            window.
        size: the model's (height, width).
        batch_size: windows that the model answers at a time.

    Returns:
        float32 array (height, width, classes) of the resized photo.

    Raises:
        ValueError: the photo needs more than 16 windows.

    Source: Your ViT is Secretly an Image Segmentation Model (arXiv 2503.19108), its
    code's inference for semantic segmentation.

    Example:
        >>> photo = np.zeros((4, 10, 3), "uint8")
        >>> sliding(photo, lambda images: images, (4, 4)).shape
        (4, 10, 3)
    """
    sides = scaled_size(photo.shape[:2], size)
    places = [*itertools.product(*map(starts, sides, size))]
    if len(places) > _MOST_WINDOWS:
        raise ValueError(
            f"a photo of {photo.shape[1]} x {photo.shape[0]} pixels needs "
            f"{len(places)} windows, where {_MOST_WINDOWS} are the most: cut it, or "
            "evaluate it whole"
        )
    image = _model_range(photos.resize(photo, sides))
    total, covered = None, np.zeros((*sides, 1), np.float32)
    for place, scores in _answers(image, places, answer, size, batch_size):
        if total is None:
            total = np.zeros((*sides, scores.shape[-1]), np.float32)
        total[place] += scores
        covered[place] += 1
    return total / covered


def _answers(image, places, answer, size, batch_size):
    """Yields the part of the image that each window is, and its scores."""
    slices = [
        tuple(
            slice(start, start + side) for start, side in zip(place, size, strict=True)
        )
        for place in places
    ]
    for first in range(0, len(slices), batch_size):
        batch = slices[first : first + batch_size]
        scores = answer(np.stack([image[window] for window in batch]))
        for window, one in zip(batch, np.asarray(scores), strict=True):
            yield window, photos.resize(one, size)


def scaled_size(sides: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Returns the size of a photo of which a model's size covers one side exactly.

    Example:
        >>> scaled_size((480, 640), (512, 512))
        (512, 683)
    """
    scale = max(new / side for new, side in zip(size, sides, strict=True))
    height, width = (
        max(round(side * scale), new) for new, side in zip(size, sides, strict=True)
    )
    return height, width


def starts(side: int, window: int) -> list[int]:
    """Returns where windows begin that cover a side, equally far from each other.

    Example:
        >>> starts(683, 512), starts(512, 512), starts(1100, 512)
        ([0, 171], [0], [0, 294, 588])
    """
    count = math.ceil(side / window)
    # Whole numbers: as floats, the last window may end a pixel before the side does.
    return [n * (side - window) // max(count - 1, 1) for n in range(count)]


def _model_range(image):
    return (image - np.float32(127.5)) / np.float32(127.5)
