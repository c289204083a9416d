"""Photos and what is laid over them."""

import numpy as np

from keras_vit.explain.figures.canvas import check_array


def as_photo(image):
    """Returns an image as it is shown, RGB in [0, 1].

    Args:
        image: array (height, width, 1 or 3), uint8 or float in [-1, 1] as models
            take it.

    Returns:
        float32 array (height, width, 3).

    Raises:
        ValueError: the shape, type or range is another.

    Example:

    >>> as_photo(np.full((1, 1, 1), 255, "uint8"))
    array([[[1., 1., 1.]]], dtype=float32)
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
    """Returns a photo (height, width, 3) without its colours.

    The weights are those of ITU-R BT.601.
    """
    return np.repeat(photo @ np.float32([[0.299], [0.587], [0.114]]), 3, axis=2)


def check_maps(maps, name, dimensions):
    """Returns `maps` as finite float32 numbers, none of them negative.

    The arguments and errors are those of `check_array`.
    """
    maps = check_array(maps, name, dimensions)
    if maps.min() < 0:
        raise ValueError(
            f"{name} must not be negative, got {maps.min():g}: attention and relevance "
            "are not; take the positive part of what has a sign."
        )
    return maps


def relative(maps):
    """Returns maps (..., rows, columns) divided by the maximum of each.

    A map of zeros stays one.

    >>> relative(np.array([[[1.0, 4.0]], [[0.0, 0.0]]]))
    array([[[0.25, 1.  ]],
           [[0.  , 0.  ]]])
    """
    largest = maps.max(axis=(-2, -1), keepdims=True)
    return maps / np.where(largest > 0, largest, 1)


def stretch(grid, height, width):
    """Returns values of patches for every pixel, smoothly.

    Bilinear between the middles of the patches; beyond those at the border the
    values stay.

    Args:
        grid: float array (rows, columns).
        height: int, pixels.
        width: int, pixels.

    Returns:
        float array (height, width).

    Example:

    >>> stretch(np.array([[0.0, 4.0]]), 1, 4)
    array([[0., 1., 3., 4.]])
    """
    rows, columns = grid.shape
    return _shares(height, rows) @ grid @ _shares(width, columns).T


def _shares(pixels, patches):
    """The share of each patch in each pixel of a line, (pixels, patches)."""
    shares = [
        np.interp(_places(pixels, patches) - 0.5, np.arange(patches), patch)
        for patch in np.eye(patches, dtype="float32")
    ]
    return np.stack(shares, axis=1).astype("float32")


def enlarge(grid, height, width):
    """Returns patches (rows, columns, channels) for every pixel, as they are."""
    rows, columns = grid.shape[:2]
    down, across = _places(height, rows), _places(width, columns)
    return grid[down.astype(int)][:, across.astype(int)]


def _places(pixels, patches):
    """Where the middles of the pixels of a line are, in patches."""
    return (np.arange(pixels) + 0.5) * patches / pixels
