"""Photos, and maps of their patches."""

import numpy as np

from keras_vit.explain.figures.canvas import check_array


def as_photo(image):
    """Returns an image as it is shown, float32 RGB in [0, 1].

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1] as models
            take it.

    Raises:
        ValueError: the shape, type or range is another.
    """
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[2] not in (1, 3) or not image.size:
        raise ValueError(
            f"An image must be of shape (height, width, 1 or 3), got {image.shape}: "
            "pass images one by one, and of other channels those to be shown."
        )
    if image.dtype == np.uint8:
        photo = image.astype("float32") / 255
    elif image.dtype.kind != "f":
        raise ValueError(
            f"An image must be uint8, or float in [-1, 1], got {image.dtype}: pass it "
            "as the model takes it."
        )
    # Resizing with a bicubic or Lanczos kernel overshoots the range a little.
    elif not np.abs(image).max() <= 2:
        raise ValueError(
            f"A float image must be in [-1, 1], got values from {image.min():g} to "
            f"{image.max():g}: pass it through keras_vit.preprocess_input."
        )
    else:
        photo = (np.clip(image.astype("float32"), -1, 1) + 1) / 2
    return np.broadcast_to(photo, (*photo.shape[:2], 3))


def as_grey(photo):
    """Returns a photo (height, width, 3) in grey, weighted as in ITU-R BT.601."""
    return np.repeat(photo @ np.float32([[0.299], [0.587], [0.114]]), 3, axis=2)


def check_maps(maps, name, dimensions):
    """Returns `maps` as `check_array` does, refusing negative numbers."""
    maps = check_array(maps, name, dimensions)
    if maps.min() < 0:
        raise ValueError(
            f"{name} must not be negative, got {maps.min():g}: attention and relevance "
            "are not; take the positive part of what has a sign."
        )
    return maps


def relative(maps):
    """Returns maps (..., rows, columns) divided by the maximum of each, if not 0."""
    largest = maps.max(axis=(-2, -1), keepdims=True)
    return maps / np.where(largest > 0, largest, 1)


def stretch(grid, height, width):
    """Returns a grid (rows, columns) for every pixel, bilinear between the patches."""
    # matplotlib, which draws what comes of it, needs Pillow.
    from PIL import Image

    image = Image.fromarray(np.asarray(grid, "float32"))
    return np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
