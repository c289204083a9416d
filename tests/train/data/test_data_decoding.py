import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo.photos
from train.data.transforms.decoding import (
    _decode_jpeg_window,
    _is_usual_png,
    decode_image,
    decode_in_graph,
)
from zoo import limits

# Neither side fills the last of the blocks of 8 or 16 pixels that a JPEG consists of.
HEIGHT, WIDTH = 43, 67


def encode(file_format, mode="RGB", width=WIDTH, **options):
    """An image with strong colours and sharp edges, which JPEG halves and smooths."""
    pixels = np.random.RandomState(0).randint(0, 256, (HEIGHT, width, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, file_format, **options)
    return tf.constant(stream.getvalue())


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "exact"])
def fast(request):
    return request.param


@pytest.fixture(scope="module")
def part(fast):
    """Decodes a window of a file, in a graph that is traced once."""
    signature = [tf.TensorSpec((), tf.string), tf.TensorSpec((4,), tf.int32)]

    @tf.function(input_signature=signature, autograph=False)
    def decode(encoded, window):
        return decode_image(encoded, lambda shape: window, fast=fast)

    return lambda encoded, *window: decode(encoded, tf.constant(window)).numpy()


JPEGS = {
    "full colour": {"subsampling": "4:4:4"},
    "half the columns": {"subsampling": "4:2:2"},
    "half of both": {"subsampling": "4:2:0"},
    "progressive": {"subsampling": "4:2:0", "progressive": True},
    "coarse": {"subsampling": "4:2:0", "quality": 20},
    "gray": {"mode": "L"},
    "for print": {"mode": "CMYK"},
}
OTHERS = {
    "png": {"file_format": "PNG"},
    "png with alpha": {"file_format": "PNG", "mode": "RGBA"},
    "palette": {"file_format": "PNG", "mode": "P"},
    "bmp": {"file_format": "BMP"},
    "bmp with palette": {"file_format": "BMP", "mode": "P"},
    "gif": {"file_format": "GIF"},
    "webp": {"file_format": "WEBP"},
}
EVERY = {
    **{f"jpeg, {name}": {"file_format": "JPEG", **JPEGS[name]} for name in JPEGS},
    **OTHERS,
}


def windows(file_format):
    """Windows at the edges, around a JPEG's block's corner, and anywhere."""
    yield 0, 0, HEIGHT, WIDTH
    yield HEIGHT - 1, WIDTH - 1, 1, 1
    yield 7, 16, 20, 33
    if file_format != "JPEG":
        # Cut out of the whole image.
        return
    for top in (0, 7, 8, 15, 16, 17):
        for left in (0, 7, 8, 15, 16, 17):
            for height, width in ((1, 1), (2, 2), (9, 15), (8, 16), (20, 33)):
                yield top, left, height, width
    random = np.random.RandomState(1)
    for _ in range(100):
        height, width = random.randint(1, HEIGHT + 1), random.randint(1, WIDTH + 1)
        top = random.randint(0, HEIGHT - height + 1)
        yield top, random.randint(0, WIDTH - width + 1), height, width


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_a_window_has_the_very_pixels_of_the_whole_image(options, part, fast):
    encoded = encode(**options)
    whole = decode_image(encoded, fast=fast).numpy()
    assert whole.shape == (HEIGHT, WIDTH, 3)
    for top, left, height, width in windows(options["file_format"]):
        found = part(encoded, top, left, height, width)
        expected = whole[top : top + height, left : left + width]
        np.testing.assert_array_equal(
            found, expected, err_msg=f"{top}, {left}, {height}, {width}"
        )


@pytest.mark.parametrize("width", [1, 2, 3, 4, 16, 17, 18, 19, 34])
@pytest.mark.parametrize("subsampling", ["4:2:2", "4:2:0"])
def test_narrow_windows_of_a_jpeg_at_its_edges(width, subsampling, part, fast):
    encoded = encode("JPEG", width=width, subsampling=subsampling)
    whole = decode_image(encoded, fast=fast).numpy()
    for left in range(width):
        for end in range(left + 1, min(left + 4, width + 1)):
            found = part(encoded, 5, left, 9, end - left)
            np.testing.assert_array_equal(found, whole[5:14, left:end])


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_the_window_is_chosen_from_the_shape(options):
    seen = []

    def choose_window(shape):
        seen.append(shape.numpy().tolist()[:2])
        return tf.constant([1, 2, 3, 4])

    image = decode_image(encode(**options), choose_window)
    assert image.shape == (3, 4, 3)
    assert image.dtype == tf.uint8
    assert seen == [[HEIGHT, WIDTH]]


def test_graphs_know_that_there_are_three_channels():
    images = tf.data.Dataset.from_tensors(encode("PNG"))
    for choose_window in (None, lambda shape: tf.constant([0, 0, 2, 2])):
        decoded = images.map(
            lambda image, choose=choose_window: decode_image(image, choose)
        )
        assert decoded.element_spec.shape.as_list() == [None, None, 3]


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
def test_pixels_are_those_of_predictions(options):
    """Of JPEG they were up to 14 levels off."""
    encoded = encode(**options)
    np.testing.assert_array_equal(
        decode_image(encoded), zoo.photos.decode(encoded.numpy())
    )


@pytest.mark.parametrize("name", sorted(set(JPEGS) - {"for print"}))
def test_exported_graphs_decode_jpegs_as_predictions_do(name):
    encoded = encode("JPEG", **JPEGS[name])
    np.testing.assert_array_equal(
        decode_in_graph(encoded), zoo.photos.decode(encoded.numpy())
    )


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_small_pngs_decode_without_python(mode, monkeypatch):
    """A data set of icons took twice the time to decode."""
    encoded = encode("PNG", mode=mode)
    wanted = zoo.photos.decode(encoded.numpy())
    monkeypatch.delattr(zoo.photos, "plain_orientation")
    np.testing.assert_array_equal(decode_image(encoded), wanted)


def test_jpegs_decode_in_training_as_in_the_released_code():
    encoded = encode("JPEG")
    whole = decode_image(encoded, fast=True)
    np.testing.assert_array_equal(whole, tf.io.decode_image(encoded))
    fast, accurate = (
        tf.io.decode_jpeg(encoded, dct_method=method).numpy()
        for method in ("INTEGER_FAST", "INTEGER_ACCURATE")
    )
    np.testing.assert_array_equal(whole, fast)
    assert (fast != accurate).any()


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_pass(channels):
    pixels = np.random.RandomState(0).randint(0, 256, (5, 7, channels), np.uint8)
    expected = np.broadcast_to(pixels, (5, 7, 3))
    image = tf.constant(pixels)
    np.testing.assert_array_equal(decode_image(image), expected)
    window = decode_image(image, lambda shape: tf.constant([1, 2, 3, 4]))
    np.testing.assert_array_equal(window, expected[1:4, 2:6])


def test_only_the_window_of_a_jpeg_is_decoded():
    encoded = encode("JPEG")
    damaged = tf.strings.substr(encoded, 0, tf.strings.length(encoded) // 2)
    whole = decode_image(encoded).numpy()

    def windows(height, width):
        return lambda shape: tf.constant([0, 0, height, width])

    top = _decode_jpeg_window(damaged, windows(8, WIDTH), None, "INTEGER_ACCURATE")
    np.testing.assert_array_equal(top, whole[:8])
    with pytest.raises(tf.errors.InvalidArgumentError):
        _decode_jpeg_window(damaged, windows(HEIGHT, 8), None, "")
    # Without its end marker the whole file is looked at.
    for choose_window in (None, windows(8, WIDTH), windows(HEIGHT, 8)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode_image(damaged, choose_window)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"no image"])
@pytest.mark.parametrize(
    "choose_window", [None, lambda shape: tf.constant([0, 0, 1, 1])]
)
def test_what_is_no_image_is_refused(content, choose_window):
    with pytest.raises(tf.errors.InvalidArgumentError):
        decode_image(tf.constant(content), choose_window)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_bitmaps_decode_as_by_pillow(mode):
    encoded = encode("BMP", mode=mode).numpy()
    wanted = Image.open(io.BytesIO(encoded)).convert("RGB")
    np.testing.assert_array_equal(decode_image(tf.constant(encoded)), wanted)


def test_bitmaps_of_four_bits_run_lengths_and_rows_from_the_top():
    """The palette is blue, green and red, which no level of gray stands for."""
    palette = bytes([255, 0, 0, 0, 0, 255, 0, 0, 0, 0, 255, 0])
    colours = np.array([[0, 0, 255], [0, 255, 0], [255, 0, 0]], np.uint8)
    places = np.array([[0, 1, 2, 2], [2, 2, 1, 0]])
    files = {
        # Rows from the bottom, each filled up to four bytes.
        (4, 2, 0): b"\x22\x10\0\0" + b"\x01\x22\0\0",
        (8, 2, 0): bytes([2, 2, 1, 0]) + bytes([0, 1, 2, 2]),
        (8, -2, 0): bytes([0, 1, 2, 2]) + bytes([2, 2, 1, 0]),
        (8, 2, 1): bytes([2, 2, 1, 1, 1, 0, 0, 0])
        + bytes([1, 0, 1, 1, 2, 2, 0, 0, 0, 1]),
    }
    for (bits, height, compression), pixels in files.items():
        header = struct.pack(
            "<IiiHHIIiiII", 40, 4, height, 1, bits, compression, len(pixels), 0, 0, 3, 0
        )
        start = 14 + len(header) + len(palette)
        content = header + palette + pixels
        file = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + content
        found = decode_image(tf.constant(file))
        np.testing.assert_array_equal(
            found, colours[places], err_msg=f"{bits} {height} {compression}"
        )


@pytest.mark.parametrize("options", [{}, {"mode": "RGBA"}, {"save_all": True}])
def test_webp_decodes_as_by_pillow(options):
    if "save_all" in options:
        options = {**options, "append_images": [Image.new("RGB", (WIDTH, HEIGHT))]}
    encoded = encode("WEBP", lossless=True, exact=True, **options).numpy()
    wanted = Image.open(io.BytesIO(encoded)).convert("RGB")
    np.testing.assert_array_equal(decode_image(tf.constant(encoded)), wanted)
    for broken in (encoded[:40], encoded[: len(encoded) // 2], b"RIFF\0\0\0\0WEBP"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode_image(tf.constant(broken))


@pytest.mark.parametrize("side", [100, 11_264, 11_700, 13_311, 20_000])
def test_a_usual_png_is_within_the_bound_in_bytes(side):
    small = tf.constant(encode("PNG", "RGBA", width=8).numpy())
    assert _is_usual_png(small)
    png = bytearray(small.numpy())
    png[16:24] = struct.pack(">II", side, side)
    is_usual = bool(_is_usual_png(tf.constant(bytes(png))))
    assert is_usual <= limits.is_photo_small(side, side, bits=32)
    assert is_usual or side > 11_500


def test_bombs_are_refused():
    """A bitmap that says it has 10 billion pixels, and formats that are not for us."""
    header = struct.pack("<IiiHHIIiiII", 40, 10**5, 10**5, 1, 24, 0, 0, 0, 0, 0, 0)
    bomb = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header
    for content in (bomb, encode("TGA").numpy(), encode("PPM").numpy()):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode_image(tf.constant(content))
