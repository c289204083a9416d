"""Photos to a model's size by TensorFlow's operations alone, for exported graphs."""

import math

import numpy as np
import PIL
import tensorflow as tf

from train.data.transforms.preprocessing import squash
from zoo.network.preparation import Preparation

# Pillow's kernels reach so far, in pixels of the smaller of both images.
_REACH = {"box": 0.5, "bilinear": 1.0, "hamming": 1.0, "bicubic": 2.0, "lanczos": 3.0}
# From release 13 on, Pillow makes the rows of some photos before the columns.
_ROWS_MAY_BE_FIRST = int(PIL.__version__.partition(".")[0]) >= 13


def fitted_in_graph(
    images: tf.Tensor, size: tuple[int, int], preparation: str
) -> tf.Tensor:
    """Brings images to a model's size, as `zoo.photos.fitted` does.

    An image or a batch `(..., height, width, channels)` in [0, 255] to float32
    `(..., *size, channels)`. Pixels of uint8 are rounded after the columns and after
    the rows, in the order of the Pillow that is installed here: they differ from its
    by one or two levels of 255, floats by 0.001.

    Source:
        `precompute_coeffs` and `ImagingResample` of Pillow's `Resample.c`.
    """
    if preparation == "squash":
        return squash(images, size)
    said = Preparation.of(preparation)
    sides = tf.shape(images)[-3:-1]
    bigger = _bigger(sides, size, said)
    start = _start(bigger, size, said)
    rounds = images.dtype == tf.uint8 and said is not None
    across, down = (
        _weights(said, sides[axis], bigger[axis], start[axis], size[axis])
        for axis in (1, 0)
    )

    def rounded(pixels: tf.Tensor) -> tf.Tensor:
        return (
            tf.clip_by_value(tf.floor(pixels + 0.5), 0.0, 255.0) if rounds else pixels
        )

    def columns(pixels: tf.Tensor) -> tf.Tensor:
        return rounded(tf.einsum("ow,...hwc->...hoc", across, pixels))

    def rows(pixels: tf.Tensor) -> tf.Tensor:
        return rounded(tf.einsum("oh,...hwc->...owc", down, pixels))

    images = tf.cast(images, tf.float32)
    if not rounds or not _ROWS_MAY_BE_FIRST:
        return rows(columns(images))
    less = sides - bigger
    is_tall = (less[0] > 0) & (2 * less[1] < less[0])
    return tf.cond(
        is_tall, lambda: columns(rows(images)), lambda: rows(columns(images))
    )


def _bigger(sides, size, said):
    """Returns the (height, width) of the image that the model's is cut out of."""
    if said is None:
        new = tf.constant(size, tf.float32)
        sides = tf.cast(sides, tf.float32)
        scale = tf.reduce_max(new / sides) * 8 / 7
        return tf.maximum(tf.cast(tf.round(sides * scale), tf.int32), size)
    bigger = tuple(math.floor(side / said.share) for side in size)
    if said.fit == "squash":
        return tf.constant(bigger)
    sides = tf.cast(sides, tf.float64)
    if bigger[0] == bigger[1]:
        new = tf.floor(bigger[0] * sides / tf.reduce_min(sides))
    else:
        new = tf.round(sides / tf.reduce_min(sides / np.float64(bigger)))
    return tf.cast(new, tf.int32)


def _start(bigger, size, said):
    if said is not None and said.library == "timm":
        return tf.cast(tf.round(tf.cast(bigger - size, tf.float64) / 2), tf.int32)
    return (bigger - size) // 2


def _weights(said, side, new, start, count):
    """Returns the weights of the old pixels of an axis in the new ones.

    Float32 (count, side), for `count` of `new` places from `start` on; rows sum to 1.
    """
    # Compute in float64: in float32 ties would be broken unlike in Pillow.
    step = tf.cast(side / new, tf.float64)
    old = tf.range(tf.cast(side, tf.float64))
    places = tf.cast(tf.range(count) + start, tf.float64)[:, None]
    if said is None:  # the mean over equal areas
        shares = tf.minimum(old + 1, (places + 1) * step) - tf.maximum(
            old, places * step
        )
        weights = tf.maximum(shares, 0)
    elif said.interpolation == "nearest":
        # Add up steps as Pillow does: products are rounded differently.
        steps = tf.concat([[step / 2], tf.fill([new - 1], step)], axis=0)
        chosen = tf.floor(tf.cumsum(steps)[start : start + count, None])
        weights = tf.cast(old == chosen, tf.float64)
    else:
        # Pillow widens its kernel where a photo gets smaller.
        widened = tf.maximum(step, 1)
        reach = _REACH[said.interpolation] * widened
        centres = (places + 0.5) * step
        first, last = (
            tf.floor(tf.maximum(place + 0.5, 0))
            for place in (centres - reach, centres + reach)
        )
        kernel = _kernel(said.interpolation, (old + 0.5 - centres) / widened)
        weights = tf.where((old >= first) & (old < last), kernel, 0)
    weights /= tf.reduce_sum(weights, axis=1, keepdims=True)
    return tf.cast(weights, tf.float32)


def _kernel(name, x):
    """Returns a kernel of Pillow at distances, within its reach."""
    away = tf.abs(x)
    if name == "box":
        return tf.cast((x > -0.5) & (x <= 0.5), x.dtype)
    if name == "bilinear":
        return 1 - away
    if name == "hamming":
        return _sinc(x) * (0.54 + 0.46 * tf.cos(math.pi * x))
    if name == "lanczos":
        return _sinc(x) * _sinc(x / 3)
    # This is Keys's cubic kernel with a = -0.5.
    near = (1.5 * away - 2.5) * away * away + 1
    far = ((-0.5 * away + 2.5) * away - 4) * away + 2
    return tf.where(away < 1, near, tf.where(away < 2, far, 0))


def _sinc(x):
    angle = math.pi * x
    # The 1 has a type of its own where a graph is traced.
    one = tf.ones_like(x)
    return tf.where(x == 0, one, tf.math.divide_no_nan(tf.sin(angle), angle))
