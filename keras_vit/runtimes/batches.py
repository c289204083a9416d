"""Batches of images."""

from collections.abc import Callable

import numpy as np

from zoo.common.machine import threads


def in_batches(
    compute: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int
) -> np.ndarray:
    """Returns what a function gives for images: `size` at a time, the rest at last."""
    batches = np.split(images, range(size, len(images), size))
    outputs = [compute(batch) for batch in batches]
    return np.concatenate(outputs) if outputs[1:] else outputs[0]


def parts_side_by_side(count: int, precision: str) -> int:
    """Returns in how many equal parts a runtime had better compute a batch.

    In int8 two halves, by half of the processors each, take less time than the whole
    (docs/performance.md).
    """
    is_even = count > 1 and count % 2 == 0
    return 2 if precision == "int8" and is_even and threads() > 1 else 1


def filled(images: np.ndarray, size: int) -> np.ndarray:
    """Returns the images followed by zeros, `size` of them."""
    if len(images) == size:
        return images
    widths = [(0, size - len(images))] + [(0, 0)] * (images.ndim - 1)
    return np.pad(images, widths)
