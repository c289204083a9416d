"""Encoded images to upright pixels: the whole image, or a window of it."""

import functools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from train.data.transforms import exif, served_files
from zoo import photos
from zoo.common import limits

# No photo of 24 bits per pixel, or of 32, is too large if the higher bytes of its
# height and width are at most these.
_MOST_OF_24, _MOST_OF_32 = (
    math.isqrt(min(limits.PHOTO_PIXELS, 8 * limits.PHOTO_VALUES // bits)) // 256 - 1
    for bits in (24, 32)
)
# A usual JPEG has these bytes at these places: its start, two quantization tables, the
# baseline frame of three colours, the four usual tables of codes, and the scan: nothing
# else can be between them. `_MOST_OF_24` bounds the frame's size.
_USUAL_JPEG = {
    0: b"\xff\xd8\xff\xe0\x00\x10",
    20: b"\xff\xdb\x00\x43",
    89: b"\xff\xdb\x00\x43",
    158: b"\xff\xc0\x00\x11\x08",
    167: b"\x03",
    177: b"\xff\xc4\x00\x1f",
    210: b"\xff\xc4\x00\xb5",
    393: b"\xff\xc4\x00\x1f",
    426: b"\xff\xc4\x00\xb5",
    609: b"\xff\xda",
}
_MOST_OF_JPEG = {163: _MOST_OF_24, 165: _MOST_OF_24}
# A usual PNG has its start, then the sides and the bits of a sample.
_USUAL_PNG = {0: b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00", 20: b"\x00\x00"}
_MOST_OF_PNG = {18: _MOST_OF_32, 22: _MOST_OF_32, 24: 8}
# A small PNG has at most this many bytes, and no orientation or packed text.
_SMALL_PNG, _UNUSUAL_IN_PNG = 2**16, r"(?s)\CPNG\C*(?:eXIf|[zi]TXt)\C*"
# This many bytes of a JPEG usually reach into its first scan. Doubling the steps from
# one segment to the next this often passes 16 segments, which is enough.
_HEAD, _DOUBLINGS = 1024, 4
# Segments of these markers may stand there, all but EXIF: frames, tables, application
# data, comments.
_MARKERS = (*range(0xC0, 0xC3), 0xC4, 0xDB, 0xDD, 0xE0, *range(0xE2, 0xF0), 0xFE)
_IS_SEGMENT = np.isin(np.arange(2**16), [0xFF00 + marker for marker in _MARKERS])
_SCAN, _START_OF_JPEG = 0xFFDA, 0xFFD8
_END_OF_JPEG, _END_OF_PNG = b"\xff\xd9", b"\0\0\0\0IEND\xaeB`\x82"
# Pillow computes this transform of JPEG.
_PILLOWS = "INTEGER_ACCURATE"
# PNG's types of colour have this many samples per pixel.
_PNG_SAMPLES = [1, 0, 3, 1, 2, 0, 4]
# A GIF has at most this many bytes before its first frame (a palette of 256 colours,
# the extensions of animations and of the frame), and a frame before its pixels.
_GIF_HEAD, _GIF_FRAME = 13 + 768 + 19 + 8, 10 + 768 + 1
# A GIF's pixels come in at most this many parts, usually of 255 bytes.
_GIF_PARTS = 2**20


def decode_image(
    image: tf.Tensor,
    choose_window: Callable[[tf.Tensor], tf.Tensor] | None = None,
    *,
    honour_exif: bool = True,
    bits: int | None = None,
    fast: bool = False,
    name: str | tf.Tensor = "This file",
) -> tf.Tensor:
    """Decodes a file that `zoo.photos.decode` reads to the same RGB pixels, upright.

    Plain JPEGs and PNGs are decoded by TensorFlow, everything that it would see
    otherwise by `zoo.photos.decode`. Little more than the window of a plain JPEG is
    decoded, to the same pixels. Damage outside of a window goes unnoticed.

    With `fast`, pixels of a JPEG are those of the released code's training: by
    TensorFlow's default, fast transform, which is a few levels off. The same holds
    without `honour_exif`.

    Pixels instead of a file's bytes stay as they are, gray ones become RGB. The window
    is one of the upright image, see `Split.decode`. Without `honour_exif`, all that
    TensorFlow can decode is decoded by it, and not turned. With `bits`, see
    `zoo.photos.decode`, TensorFlow decodes no PNG of 16 bits. Messages of Pillow's
    decoding have `name`, a str or a scalar string tensor.
    """
    if image.dtype != tf.string:
        pixels = tf.image.grayscale_to_rgb(image) if image.shape[-1] == 1 else image
        return cut(pixels, choose_window)
    method = "" if fast or not honour_exif else _PILLOWS
    turn = (
        _plain_orientation(image) if honour_exif else _known_to_tensorflow(image, bits)
    )

    def jpeg(turn: tf.Tensor | None = None) -> tf.Tensor:
        if choose_window is not None:
            return _decode_jpeg_window(image, choose_window, turn, method)
        return exif.turned(tf.io.decode_jpeg(image, 3, dct_method=method), turn)

    def whole() -> tf.Tensor:
        return tf.cond(
            turn > 0,
            lambda: exif.turned(_decode_whole(image), turn),
            lambda: _decode_with_pillow(image, name, bits),
        )

    def not_upright_jpeg() -> tf.Tensor:
        return tf.cond(
            is_jpeg & (turn > 1),
            lambda: jpeg(turn),
            lambda: cut(whole(), choose_window),
        )

    # Every node takes time, also in a branch that is not taken.
    is_jpeg = tf.io.is_jpeg(image)
    pixels = tf.cond(is_jpeg & (turn == 1), jpeg, exif.apart(not_upright_jpeg))
    pixels.set_shape((None, None, 3))
    return pixels


def decode_in_graph(
    encoded: tf.Tensor, channels: int = 3, bits: int | None = None
) -> tf.Tensor:
    """Decodes a JPEG, PNG or GIF file to 3 or 1 channels, by TensorFlow's ops only.

    Files that these would see otherwise than `zoo.photos.decode` are refused.
    """
    start = tf.strings.substr(encoded, 0, 4)
    is_plain = tf.case(
        [
            (tf.io.is_jpeg(encoded), lambda: _is_plain_jpeg(encoded)),
            (start == b"\x89PNG", lambda: _is_plain_png(encoded, bits)),
            (start == b"GIF8", lambda: _is_plain_gif(encoded)),
        ],
        default=lambda: False,
    )
    message = (
        f"serve_bytes does not read this file: it takes {served_files(bits)}, and no "
        f"more than {limits.PHOTO_PIXELS:,} pixels or {limits.PHOTO_VALUES:,} bytes of "
        "their values. Save it as JPEG."
    )
    with tf.control_dependencies([tf.debugging.Assert(is_plain, [message])]):
        encoded = tf.identity(encoded)

    def whole() -> tf.Tensor:
        return _decode_whole(_without_animation(encoded), channels)

    def other() -> tf.Tensor:
        if bits is None:
            return whole()
        is_deep = (start == b"\x89PNG") & _is_deep_png(encoded)
        return tf.cond(is_deep, lambda: _of_bits(encoded, channels, bits), whole)

    pixels = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.io.decode_jpeg(encoded, channels, dct_method=_PILLOWS),
        other,
    )
    pixels.set_shape((None, None, channels))
    return exif.turned(pixels, exif.orientation(encoded))


def _is_usual_jpeg(encoded):
    """Whether a file is surely a whole JPEG in colour without EXIF: the quickest test.

    Most encoders write JFIF's header and all tables in this way.

    Source: ITU-T T.81, annexes B.2 and K.3.
    """
    has_start = _starts_with(encoded, _USUAL_JPEG, _MOST_OF_JPEG)
    return has_start & _ends(encoded, _END_OF_JPEG)


def _is_usual_png(encoded):
    """Whether a file is surely a small PNG that is plain and upright: a quick test.

    In a large one, this search would take longer than `photos.plain_orientation`.
    """
    start = tf.strings.substr(encoded, 0, _SMALL_PNG)
    is_usual = ~tf.strings.regex_full_match(start, _UNUSUAL_IN_PNG)
    is_usual &= _starts_with(encoded, _USUAL_PNG, _MOST_OF_PNG)
    return is_usual & (start == encoded) & _ends(encoded, _END_OF_PNG)


def _starts_with(encoded, contents, most):
    """Whether a file has certain bytes at certain places, and small enough others.

    `contents` has bytes by the place of the first, `most` a number by the place of a
    byte.
    """
    fixed = {
        place + number: byte
        for place, content in contents.items()
        for number, byte in enumerate(content)
    }
    places = [*fixed, *most]
    start = tf.io.decode_raw(encoded, tf.uint8, fixed_length=max(places) + 1)
    values = tf.gather(start, places)
    least = tf.constant([*fixed.values(), *[0] * len(most)], tf.uint8)
    largest = tf.constant([*fixed.values(), *most.values()], tf.uint8)
    return tf.reduce_all((values >= least) & (values <= largest))


def _ends(encoded, end):
    place = tf.maximum(tf.strings.length(encoded) - len(end), 0)
    return tf.strings.substr(encoded, place, len(end)) == end


def _is_bare_jpeg(encoded):
    """Whether a file is surely a JPEG that ends, without EXIF: a quick test.

    Source: ITU-T T.81, annex B.
    """
    head = tf.io.decode_raw(encoded, tf.uint8, fixed_length=_HEAD)
    head = tf.cast(head, tf.int32)
    numbers = 256 * head[:-1] + head[1:]
    markers, lengths = numbers[:-2], numbers[2:]
    places = np.arange(_HEAD - 3)
    following = tf.minimum(places + 2 + lengths, places[-1])
    following = tf.where(tf.gather(_IS_SEGMENT, markers), following, places)
    for _ in range(_DOUBLINGS):
        following = tf.gather(following, following)
    place = following[2]
    is_head = (markers[0] == _START_OF_JPEG) & (markers[place] == _SCAN)
    return is_head & _ends(encoded, _END_OF_JPEG)


def _plain_orientation(encoded):
    """Returns the EXIF orientation, 0 where TensorFlow would see other pixels."""

    def unusual() -> Any:
        def orientation(encoded: Any) -> np.int32:
            return np.int32(photos.plain_orientation(_file(encoded)))

        turn = tf.numpy_function(orientation, [encoded], tf.int32, stateful=False)
        return tf.ensure_shape(turn, ())

    def bare() -> tf.Tensor:
        return tf.cast(_is_plain_jpeg(encoded), tf.int32)

    def not_usual() -> tf.Tensor:
        def no_png() -> tf.Tensor:
            return tf.cond(_is_bare_jpeg(encoded), bare, unusual)

        return tf.cond(_is_usual_png(encoded), lambda: 1, no_png)

    return tf.cond(_is_usual_jpeg(encoded), lambda: 1, exif.apart(not_usual))


def _known_to_tensorflow(encoded, bits):
    """Returns 1 of what TensorFlow can decode, whatever it says of its orientation."""
    start = tf.strings.substr(encoded, 0, 4)
    is_tensorflows = start == b"\x89PNG"
    if bits is not None:
        is_tensorflows &= ~_is_deep_png(encoded)
    is_tensorflows |= (start == b"GIF8") | tf.io.is_jpeg(encoded)
    return tf.cast(is_tensorflows, tf.int32)


def _is_plain_jpeg(jpeg):
    """Whether a JPEG is not in CMYK, and not too large."""
    height, width, channels = tf.unstack(tf.io.extract_jpeg_shape(jpeg))
    return (channels != 4) & _is_small(height, width)


def _is_small(height, width, bits=24):
    width, height, bits = (
        tf.cast(number, tf.int64) for number in (width, height, bits)
    )
    return limits.is_photo_small(width, height, bits)


def _of_bits(png, channels, bits):
    """Decodes a PNG of 16 bits whose values have fewer, as `zoo.photos.decode` does."""
    values = tf.io.decode_png(png, channels, tf.uint16)
    return tf.cast(values // 2 ** (bits - 8), tf.uint8)


def _is_plain_png(png, bits=None):
    """Whether a PNG is not too large, has no text to unpack, and values of its bits.

    These are 16, or those that the model says.
    """
    head = tf.io.decode_raw(png, tf.uint8, fixed_length=26)
    starts = tf.reduce_all(head[12:16] == tf.constant([*b"IHDR"], tf.uint8))
    units = tf.constant([256**3, 256**2, 256, 1], tf.int64)
    sides = tf.reshape(tf.cast(head[16:24], tf.int64), (2, 4)) * units
    width, height = tf.unstack(tf.minimum(tf.reduce_sum(sides, 1), 2**31))
    depth, colour = tf.cast(head[24], tf.int32), tf.cast(head[25], tf.int32)
    of_pixel = depth * tf.gather(_PNG_SAMPLES, tf.minimum(colour, 6))
    # Chunks of less than 16 MB; TensorFlow unpacks up to 8 MB of each.
    has_text = tf.strings.regex_full_match(png, r"(?s)\C*\x00\C{3}[zi]TXt\C*")
    is_bounded = starts & _is_small(height, width, of_pixel) & ~has_text
    return tf.cond(is_bounded, exif.apart(lambda: _uses_bits(png, bits)), lambda: False)


def _is_deep_png(png):
    """Whether a PNG has 16 bits per sample: cameras leave the high ones empty."""
    return tf.io.decode_raw(png, tf.uint8, fixed_length=25)[24] == 16


def _uses_bits(png, bits):
    """Whether a PNG of 16 bits per sample has values of these bits; True of others."""

    def deep() -> tf.Tensor:
        top = tf.cast(tf.reduce_max(tf.io.decode_png(png, 3, tf.uint16)), tf.int32)
        fits = top >= 2**12 if bits is None else top < 2**bits
        return fits & ~tf.strings.regex_full_match(png, r"(?s)\C*sBIT\C*")

    return tf.cond(_is_deep_png(png), exif.apart(deep), lambda: True)


def _is_plain_gif(gif):
    """Whether one opaque frame that is as large as its GIF follows the header.

    Source: GIF89a Specification, sections 18 to 23 and 26.
    """
    content, place, is_opaque = _gif_frame(gif)
    whole = tf.concat([[0x2C, 0, 0, 0, 0], content[6:10]], 0)
    is_whole = tf.reduce_all(content[place : place + 9] == whole)
    width, height = content[6] + 256 * content[7], content[8] + 256 * content[9]
    return is_opaque & is_whole & _is_small(height, width)


def _gif_frame(gif):
    """Returns the first bytes of a GIF, where its frame starts, if it is opaque."""
    length = _GIF_HEAD + _GIF_FRAME
    content = tf.cast(tf.io.decode_raw(gif, tf.uint8, fixed_length=length), tf.int32)
    place = 13 + _palette_bytes(content[10])
    place += tf.where(tf.reduce_all(content[place : place + 2] == [0x21, 0xFF]), 19, 0)
    has_control = tf.reduce_all(content[place : place + 2] == [0x21, 0xF9])
    is_opaque = ~has_control | (content[place + 3] % 2 == 0)
    return content, place + tf.where(has_control, 8, 0), is_opaque


def _palette_bytes(flags):
    return tf.where(flags >= 128, 3 * 2 ** (flags % 8 + 1), 0)


def _without_animation(encoded):
    """Ends a plain GIF behind its first frame: TensorFlow would decode all of them."""

    def first_frame() -> str:
        head, place, _ = _gif_frame(encoded)
        zeros = b"\0" * (_GIF_HEAD + _GIF_FRAME)
        content = tf.io.decode_raw(tf.strings.join([encoded, zeros]), tf.uint8)

        def size(place: tf.Tensor) -> tf.Tensor:
            return tf.cast(content[place], tf.int32)

        (end,) = tf.while_loop(
            lambda place: size(place) > 0,
            lambda place: (place + 1 + size(place),),
            (place + 10 + _palette_bytes(head[place + 9]) + 1,),
            maximum_iterations=_GIF_PARTS,
        )
        is_whole = (size(end) == 0) & (end < tf.strings.length(encoded))
        message = "serve_bytes does not read this file: a GIF that is cut."
        with tf.control_dependencies([tf.debugging.Assert(is_whole, [message])]):
            return tf.strings.join([tf.strings.substr(encoded, 0, end + 1), b";"])

    is_gif = tf.strings.substr(encoded, 0, 4) == b"GIF8"
    return tf.cond(is_gif, exif.apart(first_frame), lambda: encoded)


def _decode_whole(encoded, channels=3):
    pixels = tf.io.decode_image(encoded, channels, expand_animations=False)
    pixels.set_shape((None, None, channels))
    return pixels


def cut(
    pixels: tf.Tensor, choose_window: Callable[[tf.Tensor], tf.Tensor] | None
) -> tf.Tensor:
    """Returns a window of pixels `(height, width, channels)`, see `Split.decode`."""
    if choose_window is None:
        return pixels
    top, left, height, width = tf.unstack(choose_window(tf.shape(pixels)))
    return pixels[top : top + height, left : left + width]


def _decode_jpeg_window(encoded, choose_window, turn, method):
    shape = tf.io.extract_jpeg_shape(encoded)
    window = exif.stored_window(choose_window, shape, turn)
    top, left, height, width = tf.unstack(window)
    # Colours stored at half resolution are interpolated between columns. At the edge of
    # a window the decoder lacks the next one, and pixels would be up to 50 levels off;
    # two columns by themselves it does not interpolate at all.
    first = tf.maximum(left - 2, 0)
    end = tf.minimum(left + width + 2, shape[1])
    wider_window = tf.stack([top, first, height, end - first])
    pixels = tf.io.decode_and_crop_jpeg(encoded, wider_window, 3, dct_method=method)
    return exif.turned(pixels[:, left - first : left - first + width], turn)


def _decode_with_pillow(encoded, name, bits):
    # This is Python, but Pillow releases its lock: images are decoded in parallel.
    decode = functools.partial(_pillow_pixels, bits=bits)
    pixels, problem = tf.numpy_function(
        decode, [encoded, name], (tf.uint8, tf.string), stateful=False
    )
    with tf.control_dependencies([tf.debugging.Assert(problem == b"", [problem])]):
        return tf.ensure_shape(pixels, (None, None, 3))


def _pillow_pixels(encoded, name, bits):
    """Returns the pixels and b"", or none and why the file is refused."""
    try:
        return photos.decode(_file(encoded), bits, os.fsdecode(_file(name))), b""
    # Raised here, it would be another error in graphs than in eager code.
    except (ValueError, Warning) as error:
        return np.zeros((0, 0, 3), np.uint8), str(error).encode()


def _file(encoded):
    # Graphs pass bytes, eager code an array of them.
    return np.asarray(encoded, object).item()
