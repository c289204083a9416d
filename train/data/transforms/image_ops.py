"""The 16 image operations of RandAugment, as the released code computes them.

Each takes a uint8 image `(height, width, 3)`, a level (the magnitude divided by ten, a
Python number) and a seed `(2,)`, and returns an image of the same shape and dtype. The
seed decides the sign or the place where there is one. docs/augmentation.md compares
them with keras-cv, Keras and PIL.

Source: big_vision, pp/archive/autoaugment.py at 642c086, itself from tensorflow/tpu,
efficientnet/autoaugment.py.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

# Fill with this gray what a moved image leaves, and cutout's squares.
_FILL = 128


def auto_contrast(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to 0..255."""
    values = tf.cast(image, tf.float32)
    low, high = (
        reduce(values, axis=(0, 1), keepdims=True)
        for reduce in (tf.reduce_min, tf.reduce_max)
    )
    scale = 255.0 / (high - low)
    stretched = _to_uint8(values * scale - low * scale)
    return tf.where(high > low, stretched, image)


def equalize(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Makes the histogram of each channel flat, by the rule of PIL."""
    pixels = tf.transpose(tf.reshape(tf.cast(image, tf.int32), (-1, 3)))
    histogram = tf.math.bincount(pixels, minlength=256, maxlength=256, axis=-1)
    brightest = tf.reduce_max(pixels, axis=1, keepdims=True)
    last = tf.gather(histogram, brightest, batch_dims=1)
    step = (tf.shape(pixels)[1] - last) // 255
    before = tf.cumsum(histogram, exclusive=True, axis=1)
    table = tf.minimum((before + step // 2) // tf.maximum(step, 1), 255)
    table = tf.where(step == 0, tf.range(256), table)
    looked_up = tf.gather(table, pixels, batch_dims=1)
    return tf.cast(tf.reshape(tf.transpose(looked_up), tf.shape(image)), tf.uint8)


def invert(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Subtracts every value from 255."""
    return 255 - image


def rotate(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Rotates by 30 degrees per level, either way."""
    angle = _either_sign(level * 30.0, seed) * (math.pi / 180.0)
    cos, sin = tf.cos(angle), tf.sin(angle)
    bottom, right = (side - 1 for side in _sides(image))
    x_offset = (right - (cos * right - sin * bottom)) / 2.0
    y_offset = (bottom - (sin * right + cos * bottom)) / 2.0
    return _move(image, [cos, -sin, x_offset], [sin, cos, y_offset])


def posterize(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Keeps the upper four bits per level, and as released one bit at least."""
    # TensorFlow shifts a uint8 by another: modulo 256, and by seven bits at most.
    lost = min((8 - int(level * 4)) % 256, 7)
    return tf.bitwise.left_shift(tf.bitwise.right_shift(image, lost), lost)


def solarize(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Inverts the values from a threshold on.

    The released threshold of 256 per level is a uint8 and wraps: magnitudes of 10 and
    20 invert the whole image, as 0 does, and 15 inverts its brighter half.
    """
    return tf.where(image < int(level * 256) % 256, image, 255 - image)


def color(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves towards gray or away from it."""
    return _blend(tf.image.rgb_to_grayscale(image), image, level)


def contrast(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves towards one gray or away from it.

    The released gray is not the mean: it is the number of pixels divided by 256, which
    is 196 at 224 x 224.
    """
    pixels = tf.cast(tf.reduce_prod(tf.shape(image)[:2]), tf.float32)
    return _blend(tf.floor(tf.minimum(pixels / 256.0, 255.0)), image, level)


def brightness(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves towards black or away from it."""
    return _blend(0.0, image, level)


def sharpness(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves towards a smoothed image or away from it; the edge stays as it is."""
    weights = tf.constant([[1, 1, 1], [1, 5, 1], [1, 1, 1]], tf.float32)  # of PIL
    kernel = weights[:, :, None, None] / 13.0
    smooth = tf.nn.depthwise_conv2d(
        tf.cast(image, tf.float32)[None],
        tf.tile(kernel, (1, 1, 3, 1)),
        strides=(1, 1, 1, 1),
        padding="VALID",
    )
    inside = tf.pad(tf.ones_like(smooth[0], tf.bool), ((1, 1), (1, 1), (0, 0)))
    smooth = tf.pad(_to_uint8(smooth[0]), ((1, 1), (1, 1), (0, 0)))
    return _blend(tf.where(inside, smooth, image), image, level)


def shear_x(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves each row by 0.3 of its number per level, either way."""
    shear = _either_sign(level * 0.3, seed)
    return _move(image, [1.0, shear, 0.0], [0.0, 1.0, 0.0])


def shear_y(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves each column by 0.3 of its number per level, either way."""
    shear = _either_sign(level * 0.3, seed)
    return _move(image, [1.0, 0.0, 0.0], [shear, 1.0, 0.0])


def translate_x(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves by 100 pixels per level to the left or to the right."""
    _, width = _sides(image)
    pixels = _rounded(_either_sign(level * 100.0, seed), width)
    return _move(image, [1.0, 0.0, pixels], [0.0, 1.0, 0.0])


def translate_y(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Moves by 100 pixels per level up or down."""
    height, _ = _sides(image)
    pixels = _rounded(_either_sign(level * 100.0, seed), height)
    return _move(image, [1.0, 0.0, 0.0], [0.0, 1.0, pixels])


def cutout(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Paints a square of 80 pixels per level gray, around any pixel."""
    seeds = tf.unstack(tf.random.split(seed, 2))
    sides = tf.unstack(tf.shape(image)[:2])
    square = rectangle(sides, [int(level * 40)] * 2, seeds)
    return tf.where(square[:, :, None], tf.constant(_FILL, image.dtype), image)


def rectangle(
    sides: Sequence[tf.Tensor],
    halves: Sequence[int | tf.Tensor],
    seeds: Sequence[tf.Tensor],
) -> tf.Tensor:
    """Returns which pixels are inside a rectangle around any pixel, `(height, width)`.

    Each argument has a value for the rows and one for the columns.
    """
    inside = []
    for side, half, seed in zip(sides, halves, seeds, strict=True):
        centre = tf.random.stateless_uniform((), seed, maxval=side, dtype=tf.int32)
        places = tf.range(side)
        inside.append((places >= centre - half) & (places < centre + half))
    return inside[0][:, None] & inside[1][None, :]


def solarize_add(image: tf.Tensor, level: float, seed: tf.Tensor) -> tf.Tensor:
    """Adds 110 per level to the values below 128."""
    brighter = tf.minimum(tf.cast(image, tf.int32) + int(level * 110), 255)
    return tf.where(image < 128, tf.cast(brighter, tf.uint8), image)


OPS = (
    *(auto_contrast, equalize, invert, rotate, posterize, solarize, color, contrast),
    *(brightness, sharpness, shear_x, shear_y, translate_x, translate_y, cutout),
    solarize_add,
)


def _blend(other, image, level):
    """Interpolates between images; extrapolates where the factor exceeds 1."""
    factor = level * 1.8 + 0.1
    other = tf.cast(other, tf.float32)
    return _to_uint8(other + factor * (tf.cast(image, tf.float32) - other))


def _to_uint8(values):
    return tf.cast(tf.clip_by_value(values, 0.0, 255.0), tf.uint8)


def _either_sign(value, seed):
    return tf.where(tf.random.stateless_uniform((), seed) < 0.5, -value, value)


def _sides(image):
    return tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))


def _rounded(pixels, side):
    """Rounds as a share of the side does: runs that began so go on with these bits."""
    return pixels / side * side


def _move(image, x_row, y_row):
    """Moves pixels: the one at (x, y) comes from (x_row, y_row) times (x, y, 1)."""
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=image[None],
        transforms=tf.stack([*x_row, *y_row, 0.0, 0.0])[None],
        output_shape=tf.shape(image)[:2],
        fill_value=float(_FILL),
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
    return moved[0]
