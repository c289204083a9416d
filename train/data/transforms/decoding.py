"""Encoded images to upright pixels: the whole image, or a window of it."""

import numpy as np
import tensorflow as tf

from train.data.transforms import exif
from zoo import photos


def decode_image(image, choose_window=None, *, honour_exif=True) -> tf.Tensor:
    """Decodes a JPEG, PNG, GIF, BMP, WebP or HEIC file to RGB, upright.

    The content decides, not the name of the file. Gray and palettes become RGB,
    transparency is dropped, of an animation the first frame is taken. Of a JPEG, little
    more than the window is decoded. Its pixels are to the last bit those of the whole
    image, which are those of the released code (TensorFlow's decoder with its default,
    fast transform). Damage outside of a window goes unnoticed.

    Pixels instead of a file's bytes stay as they are, gray ones become RGB. The window
    is one of the upright image, see `Split.decode`. `honour_exif` is about JPEG and
    PNG: the formats that Pillow decodes are always turned upright.
    """
    if image.dtype != tf.string:
        pixels = tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image
        return _cut(pixels, choose_window)

    def jpeg(turn=None):
        if choose_window is not None:
            return _decode_jpeg_window(image, choose_window, turn)
        return exif.turned(_decode_whole(image), turn)

    def other(turn=None):
        start = tf.strings.substr(image, 0, 4)
        pixels = tf.cond(
            (start == b"\x89PNG") | (start == b"GIF8"),
            lambda: exif.turned(_decode_whole(image), turn),
            lambda: _decode_with_pillow(image),
        )
        return _cut(pixels, choose_window)

    def any_format():
        turn = exif.orientation(image)
        is_jpeg = tf.io.is_jpeg(image)
        return tf.cond(is_jpeg, lambda: jpeg(turn), lambda: other(turn))

    if honour_exif:
        pixels = tf.cond(exif.is_bare(image), jpeg, exif.apart(any_format))
    else:
        pixels = tf.cond(tf.io.is_jpeg(image), jpeg, other)
    pixels.set_shape((None, None, 3))
    return pixels


def decode_in_graph(encoded: tf.Tensor, channels: int = 3) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF file to 3 or 1 channels, by TensorFlow's ops only."""
    return exif.turned(_decode_whole(encoded, channels), exif.orientation(encoded))


def _decode_whole(encoded, channels=3):
    pixels = tf.io.decode_image(encoded, channels, expand_animations=False)
    pixels.set_shape((None, None, channels))
    return pixels


def _cut(pixels, choose_window):
    if choose_window is None:
        return pixels
    top, left, height, width = tf.unstack(choose_window(tf.shape(pixels)))
    return pixels[top : top + height, left : left + width]


def _decode_jpeg_window(encoded, choose_window, turn):
    shape = tf.io.extract_jpeg_shape(encoded)
    window = exif.stored_window(choose_window, shape, turn)
    top, left, height, width = tf.unstack(window)
    # Colours stored at half resolution are interpolated between columns. At the edge of
    # a window the decoder lacks the next one, and pixels would be up to 50 levels off;
    # two columns by themselves it does not interpolate at all.
    first = tf.maximum(left - 2, 0)
    end = tf.minimum(left + width + 2, shape[1])
    wider_window = tf.stack([top, first, height, end - first])
    pixels = tf.io.decode_and_crop_jpeg(encoded, wider_window, channels=3)
    return exif.turned(pixels[:, left - first : left - first + width], turn)


def _decode_with_pillow(encoded):
    # Python, but Pillow decodes without its lock: images are decoded in parallel.
    pixels = tf.numpy_function(_pillow_pixels, [encoded], tf.uint8, stateful=False)
    checks = [tf.debugging.assert_positive(tf.size(pixels), "cannot be decoded")]
    with tf.control_dependencies(checks):
        return tf.ensure_shape(pixels, (None, None, 3))


def _pillow_pixels(encoded):
    # Bytes in graphs, otherwise an array of them.
    file = np.asarray(encoded, object).item()
    try:
        return photos.decode(file)
    # Leaving here it would be another error in graphs than in eager code.
    except ValueError:
        return np.zeros((0, 0, 3), np.uint8)
