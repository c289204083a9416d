"""Encoded images to upright pixels: the whole image, or a window of it."""

import functools

import numpy as np
import tensorflow as tf

from train.data.transforms import exif
from zoo import photos

# Bytes of a usual JPEG by their places: its start, two tables and three colours.
_USUAL = {
    **{0: 0xFF, 1: 0xD8, 2: 0xFF, 3: 0xE0, 4: 0, 5: 16},
    **{20: 0xFF, 21: 0xDB, 22: 0, 23: 67, 89: 0xFF, 90: 0xDB, 91: 0, 92: 67},
    **{158: 0xFF, 159: 0xC0, 160: 0, 161: 17, 167: 3},
}


def decode_image(
    image, choose_window=None, *, honour_exif=True, bits=None
) -> tf.Tensor:
    """Decodes a file that `zoo.photos.decode` reads to the same RGB pixels, upright.

    Usual JPEGs and PNGs are decoded by TensorFlow, everything that it would see
    otherwise by `zoo.photos.decode`. Of a usual JPEG, little more than the window is
    decoded. Its pixels are to the last bit those of the whole image, which are those
    of the released code (TensorFlow's decoder with its default, fast transform).
    Damage outside of a window goes unnoticed.

    Pixels instead of a file's bytes stay as they are, gray ones become RGB. The window
    is one of the upright image, see `Split.decode`. Without `honour_exif`, all that
    TensorFlow can decode is decoded by it, and not turned. With `bits`, see
    `zoo.photos.decode`, it decodes no PNG of 16 bits.
    """
    if image.dtype != tf.string:
        pixels = tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image
        return _cut(pixels, choose_window)

    def jpeg_by_tensorflow(turn=None, shape=None):
        if choose_window is not None:
            return _decode_jpeg_window(image, choose_window, turn, shape)
        return exif.turned(_decode_whole(image), turn)

    def by_pillow():
        return _cut(_decode_with_pillow(image, bits), choose_window)

    def jpeg(turn=None):
        shape = tf.io.extract_jpeg_shape(image)
        return tf.cond(
            shape[2] != 4,  # not CMYK
            lambda: jpeg_by_tensorflow(turn, shape),
            exif.apart(by_pillow),
        )

    def other(turn=None):
        start = tf.strings.substr(image, 0, 4)
        is_tensorflows = start == b"\x89PNG"
        if honour_exif or bits is not None:
            is_tensorflows &= ~_is_deep_png(image)
        if not honour_exif:
            is_tensorflows |= start == b"GIF8"
        return tf.cond(
            is_tensorflows,
            lambda: _cut(exif.turned(_decode_whole(image), turn), choose_window),
            by_pillow,
        )

    def any_format():
        turn = exif.orientation(image)
        is_jpeg = tf.io.is_jpeg(image)
        is_whole = is_jpeg & (_ends(image) | _has_end_marker(image))
        return tf.cond(is_whole, lambda: jpeg(turn), lambda: other(turn))

    def unusual():
        # Without EXIF, and their end needs no search.
        is_fast = exif.is_bare(image) & _ends(image)
        return tf.cond(is_fast, jpeg, exif.apart(any_format))

    if honour_exif:
        pixels = tf.cond(
            _has_usual_tables(image) & _ends(image),
            jpeg_by_tensorflow,
            exif.apart(unusual),
        )
    else:
        pixels = tf.cond(tf.io.is_jpeg(image), jpeg_by_tensorflow, other)
    pixels.set_shape((None, None, 3))
    return pixels


def decode_in_graph(encoded: tf.Tensor, channels: int = 3) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF file to 3 or 1 channels, by TensorFlow's ops only.

    Files that these would see otherwise than `zoo.photos.decode` are refused.
    """
    start = tf.strings.substr(encoded, 0, 4)
    is_plain = tf.case(
        [
            (tf.io.is_jpeg(encoded), lambda: ~_is_cmyk(encoded)),
            (start == b"\x89PNG", lambda: ~_is_dark_png(encoded)),
            (start == b"GIF8", lambda: _is_plain_gif(encoded)),
        ],
        default=lambda: True,
    )
    message = (
        "serve_bytes does not read JPEG in CMYK, PNG of 16 bits that uses fewer, GIF "
        "with transparency, a comment or a frame smaller than itself: save it as JPEG."
    )
    with tf.control_dependencies([tf.debugging.Assert(is_plain, [message])]):
        encoded = tf.identity(encoded)
    return exif.turned(_decode_whole(encoded, channels), exif.orientation(encoded))


def _has_usual_tables(encoded):
    """Whether a file is surely a JPEG in three colours without EXIF: a quick test.

    Most encoders write JFIF's header, two quantization tables and the frame's header.

    Source: ITU-T T.81, annex B.2.
    """
    start = tf.io.decode_raw(encoded, tf.uint8, fixed_length=168)
    places, values = zip(*_USUAL.items(), strict=True)
    # The frame's marker is one of four.
    masks = [0xFC if place == 159 else 0xFF for place in places]
    found = tf.bitwise.bitwise_and(
        tf.gather(start, places), tf.constant(masks, tf.uint8)
    )
    return tf.reduce_all(found == tf.constant(values, tf.uint8))


def _ends(jpeg):
    """Whether the end marker of a JPEG is what its file ends with."""
    return tf.strings.substr(jpeg, -2, 2) == b"\xff\xd9"


def _has_end_marker(jpeg):
    """Whether the end marker of a JPEG stands before anything else that follows."""

    def search():
        found = tf.numpy_function(_python_search, [jpeg], tf.bool, stateful=False)
        return tf.ensure_shape(found, ())

    return tf.cond(tf.io.is_jpeg(jpeg) & ~_ends(jpeg), search, lambda: False)


def _python_search(jpeg):
    return photos.has_end_marker(np.asarray(jpeg, object).item())


def _is_cmyk(jpeg):
    return tf.io.extract_jpeg_shape(jpeg)[2] == 4


def _is_deep_png(png):
    """Whether a PNG has 16 bits per sample: cameras leave the high ones empty."""
    return tf.io.decode_raw(png, tf.uint8, fixed_length=25)[24] == 16


def _is_dark_png(png):
    """Whether a PNG has 16 bits per sample, and may have values of fewer bits."""

    def uses_fewer():
        levels = tf.io.decode_png(png, 1, tf.uint16)
        states_bits = tf.strings.regex_full_match(png, r"(?s)\C*sBIT\C*")
        return states_bits | (tf.reduce_max(tf.cast(levels, tf.int32)) < 2**12)

    return tf.cond(_is_deep_png(png), exif.apart(uses_fewer), lambda: False)


def _is_plain_gif(gif):
    """Whether one opaque frame that is as large as its GIF follows the header.

    Source: GIF89a Specification, sections 18 to 23 and 26.
    """
    # A palette of 256 colours, the extension that repeats animations, the frame's.
    content = tf.io.decode_raw(gif, tf.uint8, fixed_length=13 + 768 + 19 + 8 + 10)
    content = tf.cast(content, tf.int32)
    palette = tf.where(content[10] >= 128, 3 * 2 ** (content[10] % 8 + 1), 0)
    place = 13 + palette
    place += tf.where(tf.reduce_all(content[place : place + 2] == [0x21, 0xFF]), 19, 0)
    has_control = tf.reduce_all(content[place : place + 2] == [0x21, 0xF9])
    is_opaque = ~has_control | (content[place + 3] % 2 == 0)
    place += tf.where(has_control, 8, 0)
    frame = content[place : place + 9]
    whole = tf.concat([[0x2C, 0, 0, 0, 0], content[6:10]], 0)
    return is_opaque & tf.reduce_all(frame == whole)


def _decode_whole(encoded, channels=3):
    pixels = tf.io.decode_image(encoded, channels, expand_animations=False)
    pixels.set_shape((None, None, channels))
    return pixels


def _cut(pixels, choose_window):
    if choose_window is None:
        return pixels
    top, left, height, width = tf.unstack(choose_window(tf.shape(pixels)))
    return pixels[top : top + height, left : left + width]


def _decode_jpeg_window(encoded, choose_window, turn, shape=None):
    shape = tf.io.extract_jpeg_shape(encoded) if shape is None else shape
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


def _decode_with_pillow(encoded, bits):
    # Python, but Pillow decodes without its lock: images are decoded in parallel.
    decode = functools.partial(_pillow_pixels, bits=bits)
    pixels = tf.numpy_function(decode, [encoded], tf.uint8, stateful=False)
    checks = [tf.debugging.assert_positive(tf.size(pixels), "cannot be decoded")]
    with tf.control_dependencies(checks):
        return tf.ensure_shape(pixels, (None, None, 3))


def _pillow_pixels(encoded, bits):
    # Bytes in graphs, otherwise an array of them.
    file = np.asarray(encoded, object).item()
    try:
        return photos.decode(file, bits)
    # Leaving here it would be another error in graphs than in eager code.
    except ValueError:
        return np.zeros((0, 0, 3), np.uint8)
