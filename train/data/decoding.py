"""Encoded images to pixels: the whole image, or a window of it."""

from collections.abc import Callable

import tensorflow as tf

# From an image's shape, int32 `(3,)`, to int32 `(4,)`: top, left, height and width.
ChooseWindow = Callable[[tf.Tensor], tf.Tensor]


def decode_image(
    image: tf.Tensor, choose_window: ChooseWindow | None = None
) -> tf.Tensor:
    """Decodes a JPEG, PNG, BMP or GIF; gray, palette and alpha become plain RGB.

    Of a JPEG, little more than the window is decoded. Its pixels are to the last bit
    those of the whole image, which are those of the released code (TensorFlow's
    decoder with its default, fast transform). Damage that a window does not reach
    goes unnoticed.

    Args:
        image: Scalar string, the bytes of a file; or pixels, `(height, width, 1)` or
            `(height, width, 3)`, which stay as they are.
        choose_window: Takes the image's shape and returns the window to decode; None
            for the whole image.

    Returns:
        `(height, width, 3)`, uint8 where the image was encoded; the first frame of an
        animation.

    Raises:
        tf.errors.InvalidArgumentError: when the bytes are no such image.
    """
    if image.dtype != tf.string:
        pixels = tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image
        return pixels if choose_window is None else _cut(pixels, choose_window)
    if choose_window is None:
        return _decode_whole(image)
    window = tf.cond(
        tf.io.is_jpeg(image),
        lambda: _decode_jpeg_window(image, choose_window),
        lambda: _cut(_decode_whole(image), choose_window),
    )
    window.set_shape((None, None, 3))
    return window


def _decode_whole(encoded):
    pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    pixels.set_shape((None, None, 3))
    return pixels


def _cut(pixels, choose_window):
    top, left, height, width = tf.unstack(choose_window(tf.shape(pixels)))
    return pixels[top : top + height, left : left + width]


def _decode_jpeg_window(encoded, choose_window):
    shape = tf.io.extract_jpeg_shape(encoded)
    top, left, height, width = tf.unstack(choose_window(shape))
    # Colours stored at half resolution are interpolated between columns. Where it stops
    # the decoder misses the next one, and pixels would be up to 50 levels off; two
    # columns by themselves it does not interpolate at all.
    first = tf.maximum(left - 2, 0)
    end = tf.minimum(left + width + 2, shape[1])
    wider = tf.io.decode_and_crop_jpeg(
        encoded, tf.stack([top, first, height, end - first]), channels=3
    )
    return wider[:, left - first : left - first + width]
