"""Batches of images."""

from collections.abc import Callable

import numpy as np


def in_batches(
    compute: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int
) -> np.ndarray:
    """Returns what a function gives for images: `size` at a time, the rest at last."""
    batches = np.split(images, range(size, len(images), size))
    outputs = [compute(batch) for batch in batches]
    return np.concatenate(outputs) if outputs[1:] else outputs[0]


def filled(images: np.ndarray, size: int) -> np.ndarray:
    """Returns the images followed by zeros, `size` of them."""
    if len(images) == size:
        return images
    widths = [(0, size - len(images))] + [(0, 0)] * (images.ndim - 1)
    return np.pad(images, widths)
