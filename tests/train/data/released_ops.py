"""The released RandAugment's definitions a second time: PIL, else float64 NumPy.

Each takes a uint8 image `(height, width, 3)`, the magnitude, and the sign or the
centre that the released code draws.
"""

import numpy as np
from PIL import Image, ImageOps

GRAY = 128


def auto_contrast(image, magnitude):
    return np.asarray(ImageOps.autocontrast(Image.fromarray(image)))


def equalize(image, magnitude):
    return np.asarray(ImageOps.equalize(Image.fromarray(image)))


def invert(image, magnitude):
    return np.asarray(ImageOps.invert(Image.fromarray(image)))


def posterize(image, magnitude):
    # PIL would keep no bit at magnitude 0; TensorFlow shifts by seven bits at most.
    bits = max(int(magnitude / 10 * 4), 1)
    return np.asarray(ImageOps.posterize(Image.fromarray(image), bits))


def solarize(image, magnitude):
    threshold = int(magnitude / 10 * 256) % 256
    return np.asarray(ImageOps.solarize(Image.fromarray(image), threshold))


def solarize_add(image, magnitude):
    added = np.minimum(image.astype(int) + int(magnitude / 10 * 110), 255)
    return np.where(image < 128, added, image).astype(np.uint8)


def color(image, magnitude):
    gray = image @ np.array([0.2989, 0.587, 0.114])
    return blend(np.floor(gray * 255.5 / 255)[..., None], image, magnitude)


def contrast(image, magnitude):
    height, width, _ = image.shape
    return blend(np.floor(min(height * width / 256, 255)), image, magnitude)


def brightness(image, magnitude):
    return blend(0, image, magnitude)


def sharpness(image, magnitude):
    smooth = image.astype(float)
    rows, columns = image.shape[0] - 2, image.shape[1] - 2
    total = 4 * smooth[1:-1, 1:-1]
    for row in range(3):
        for column in range(3):
            total += smooth[row : row + rows, column : column + columns]
    smooth[1:-1, 1:-1] = np.floor(total / 13)
    return blend(smooth, image, magnitude)


def blend(other, image, magnitude):
    factor = magnitude / 10 * 1.8 + 0.1
    return np.clip(other + factor * (image - other), 0, 255).astype(np.uint8)


def rotate(image, magnitude, sign):
    angle = sign * np.deg2rad(magnitude / 10 * 30)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = np.array([image.shape[1] - 1, image.shape[0] - 1]) / 2
    return move(image, turn, centre - turn @ centre)


def shear_x(image, magnitude, sign):
    return move(image, np.array([[1, sign * magnitude / 10 * 0.3], [0, 1]]), (0, 0))


def shear_y(image, magnitude, sign):
    return move(image, np.array([[1, 0], [sign * magnitude / 10 * 0.3, 1]]), (0, 0))


def translate_x(image, magnitude, sign):
    return move(image, np.eye(2), (sign * magnitude / 10 * 100, 0))


def translate_y(image, magnitude, sign):
    return move(image, np.eye(2), (0, sign * magnitude / 10 * 100))


def move(image, matrix, offset):
    """Takes each pixel (x, y) from the nearest one to `matrix @ (x, y) + offset`.

    Where two are equally near to within a thousandth, float32 may take either: such
    pixels are NaN.
    """
    height, width, _ = image.shape
    y, x = np.mgrid[:height, :width]
    places = np.einsum("ij,jhw->ihw", matrix, np.stack([x, y])) + np.reshape(
        offset, (2, 1, 1)
    )
    from_x, from_y = np.floor(places + 0.5).astype(int)
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    moved = np.full(image.shape, float(GRAY))
    moved[inside] = image[from_y[inside], from_x[inside]]
    tied = (np.abs(places % 1 - 0.5) < 1e-3).any(axis=0)
    moved[tied] = np.nan
    return moved


def cutout(image, magnitude, centre):
    half = int(magnitude / 10 * 40)
    row, column = centre
    cut = image.copy()
    cut[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = GRAY
    return cut
