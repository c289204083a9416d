"""Batches of images."""

import numpy as np


def split(images, size):
    """Returns the images in batches of `size`, of which the last may be smaller."""
    return np.split(images, range(size, len(images), size))


def filled(images, size):
    """Returns the images followed by zeros, `size` of them."""
    widths = [(0, size - len(images))] + [(0, 0)] * (images.ndim - 1)
    return np.pad(images, widths)
