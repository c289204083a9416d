"""EXIF orientation of JPEG and PNG, which TensorFlow's decoders ignore.

Pillow's EXIF reader would need Python: these are TensorFlow's ops only, which run in
the threads of `tf.data` and are part of an exported SavedModel.
"""

from collections.abc import Callable

import tensorflow as tf

_ORIENTATION, _SHORT, _LONG = 0x0112, 3, 4
_ENTRY = 12  # bytes
# Segments before the scan: colour profiles and depth maps have one for every 64 KB.
_SEGMENTS = 256
_JPEG_MARKER = b"Exif\0\0"
# Each orientation flips these axes of the stored image, then orders them so.
_FLIPS = [
    (turn in (3, 4, 6, 7), turn in (2, 3, 7, 8), False)  # rows, columns, channels
    for turn in range(9)
]
_AXES = [(1, 0, 2) if turn >= 5 else (0, 1, 2) for turn in range(9)]


def orientation(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG or PNG, int32: 1, upright, if unknown.

    Source: Exif 2.32 (CIPA DC-008), sections 4.6.2, 4.6.4 and 4.7.2; PNG specification,
    third edition, section 11.3.3.5.
    """

    def of_jpeg() -> tf.Tensor:
        return _of_tiff(_segments(encoded))

    def of_png() -> tf.Tensor:
        parts = tf.raw_ops.StringSplitV2(input=encoded[None], sep=b"eXIf").values
        following = parts[1:]
        # The name may be among compressed pixels by chance, but not with a header.
        begin = tf.strings.substr(following, 0, 4)
        is_exif = (begin == b"II*\0") | (begin == b"MM\0*")
        return _of_tiff(tf.concat([tf.boolean_mask(following, is_exif), [b""]], 0)[0])

    return tf.cond(tf.io.is_jpeg(encoded), apart(of_jpeg), apart(of_png))


def _segments(jpeg):
    """Returns the content of all EXIF segments of a JPEG, joined as Pillow does.

    Such segments stand before the first scan.
    """

    def passed(place: tf.Tensor, head: tf.Tensor, joined: tf.Tensor) -> tuple:
        start = tf.minimum(place + 10, tf.strings.length(jpeg))
        size = tf.maximum(256 * head[2] + head[3] - 8, 0)
        content = tf.where(_is_exif(head), tf.strings.substr(jpeg, start, size), b"")
        place += _step(head)
        return place, _head(jpeg, place), tf.strings.join([joined, content])

    _, head, joined = tf.while_loop(
        lambda place, head, joined: _step(head) > 0,
        passed,
        (tf.constant(2), _head(jpeg, 2), tf.constant(b"")),
        maximum_iterations=_SEGMENTS,
    )
    message = (
        "serve_bytes does not read this file: a JPEG with too many segments before its "
        "scan. Save it again, without its metadata."
    )
    tf.debugging.Assert(_step(head) == 0, [message])
    return joined


def _head(jpeg, place):
    start = tf.minimum(place, tf.strings.length(jpeg))
    head = tf.strings.substr(jpeg, start, 10)
    return tf.cast(tf.io.decode_raw(head, tf.uint8, fixed_length=10), tf.int32)


def _step(head):
    """Returns the size of what is passed over, 0 at a scan and at the end."""
    size = tf.where(_is_segment(head), 2 + 256 * head[2] + head[3], 0)
    # A byte may be filled in before a marker.
    return tf.where((head[0] == 0xFF) & (head[1] == 0xFF), 1, size)


def _is_segment(head):
    """Whether a segment starts that has a length, and is not a scan."""
    marker = head[1]
    has_length = (marker >= 0xC0) & ((marker < 0xD0) | (marker > 0xDA))
    return (head[0] == 0xFF) & has_length & (marker != 0xFF)


def _is_exif(head):
    start = tf.constant([0xFF, 0xE1, *_JPEG_MARKER])
    return tf.reduce_all(tf.gather(head, [0, 1, *range(4, 10)]) == start)


def apart(branch: Callable[[], tf.Tensor]) -> Callable[[], tf.Tensor]:
    """Makes a rare branch of `tf.cond` one node.

    Every node of a branch takes time even where the branch is not taken.
    """
    if tf.executing_eagerly():
        return branch
    attributes = {"_noinline": True}
    return tf.function(branch, autograph=False, experimental_attributes=attributes)


def _of_tiff(tiff):
    """Reads the orientation in the first directory of EXIF, which is a TIFF file."""
    # Missing bytes read as zeros.
    content = tf.pad(tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int64), [[0, 8]])
    is_big_endian = content[0] == ord("M")

    def number(values: tf.Tensor, size: int) -> tf.Tensor:
        units = [256**place for place in range(size)]
        units = tf.where(is_big_endian, tf.constant(units[::-1], tf.int64), units)
        return tf.reduce_sum(values * units, axis=-1)

    start = tf.minimum(number(content[4:8], 4), tf.size(content, tf.int64) - 2)
    count = number(content[start : start + 2], 2)
    entries = content[start + 2 : start + 2 + _ENTRY * count]
    entries = tf.reshape(entries[: tf.size(entries) // _ENTRY * _ENTRY], [-1, _ENTRY])
    tag, kind, short = (number(entries[:, i : i + 2], 2) for i in (0, 2, 8))
    value = tf.where(kind == _LONG, number(entries[:, 8:12], 4), short)
    is_orientation = (tag == _ORIENTATION) & ((kind == _SHORT) | (kind == _LONG))
    value = tf.concat([tf.boolean_mask(value, is_orientation), [1]], axis=0)[0]
    return tf.cast(tf.where((value >= 1) & (value <= 8), value, 1), tf.int32)


def turned(pixels: tf.Tensor, turn: tf.Tensor | None) -> tf.Tensor:
    """Turns a stored image `(height, width, channels)` upright by its `orientation`.

    It is None where the image is upright for sure.
    """
    if turn is None:
        return pixels

    def turn_pixels() -> tf.Tensor:
        flipped = tf.raw_ops.Reverse(tensor=pixels, dims=tf.gather(_FLIPS, turn))
        return tf.transpose(flipped, tf.gather(_AXES, turn))

    upright = tf.cond(turn == 1, lambda: pixels, turn_pixels)
    upright.set_shape((None, None, pixels.shape[-1]))
    return upright


def stored_window(
    choose_window: Callable[[tf.Tensor], tf.Tensor],
    shape: tf.Tensor,
    turn: tf.Tensor | None,
) -> tf.Tensor:
    """Finds a window of the upright image in the stored image of some shape.

    `choose_window` is as in `Split.decode`, `turn` as in `turned`.
    """
    if turn is None:
        return choose_window(shape)
    axes = tf.gather(_AXES, turn)
    start, size = tf.split(choose_window(tf.gather(shape, axes)), 2)
    start, size = (tf.gather(sides, axes[:2]) for sides in (start, size))
    flipped = tf.gather(_FLIPS, turn)[:2]
    start = tf.where(flipped, shape[:2] - start - size, start)
    return tf.concat([start, size], axis=0)
