"""Files of photos to pixels in graphs: windows, formats, EXIF, what is refused."""

import dataclasses
import functools
import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from made_data import lay_out, record, tiny_images
from PIL import Image, ImageOps

import zoo.photos
from train.data.sources import load
from train.data.sources.splits import in_memory, pick
from train.data.transforms import exif
from train.data.transforms.decoding import (
    _decode_jpeg_window,
    _is_usual_png,
    decode_image,
)
from zoo.common import limits

# Neither side fills the last of the blocks of 8 or 16 pixels that a JPEG consists of.
HEIGHT, WIDTH = 43, 67


def photo(mode="RGB", width=WIDTH, smooth=False):
    """Strong colours and sharp edges, which JPEG halves and smooths, or parts."""
    shape = (7, 9, 4) if smooth else (HEIGHT, width, 3)
    pixels = np.random.RandomState(0).randint(0, 256, shape, np.uint8)
    return Image.fromarray(pixels).resize((width, HEIGHT), 3).convert(mode)


def encode(file_format, mode="RGB", width=WIDTH, turn=None, **options):
    stream = io.BytesIO()
    if turn is not None:
        described = Image.Exif()
        described[0x0112] = turn
        options["exif"] = described.tobytes()
    photo(mode, width, turn is not None).save(stream, file_format, **options)
    return tf.constant(stream.getvalue())


def by_pillow(encoded):
    image = Image.open(io.BytesIO(encoded.numpy()))
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def window_of(*window):
    return lambda shape: tf.constant(window)


@pytest.fixture(scope="module", params=[True, False], ids=["fast", "exact"])
def decoders(request):
    """Decodes a file, or a window of it in a graph that is traced once."""
    signature = [tf.TensorSpec((), tf.string), tf.TensorSpec((4,), tf.int32)]

    @tf.function(input_signature=signature, autograph=False)
    def decode(encoded, window):
        return decode_image(encoded, lambda shape: window, fast=request.param)

    return functools.partial(decode_image, fast=request.param), decode


JPEGS = {
    "full colour": {"subsampling": "4:4:4"},
    "half the columns": {"subsampling": "4:2:2"},
    "half of both": {"subsampling": "4:2:0"},
    "progressive": {"subsampling": "4:2:0", "progressive": True},
    "coarse": {"subsampling": "4:2:0", "quality": 20},
    "gray": {"mode": "L"},
    "for print": {"mode": "CMYK"},
}


def windows(width):
    """Narrow windows everywhere, whose colours are hard to get right, and any."""
    for left in range(width):
        for columns in range(1, min(4, width + 1 - left)):
            yield 5, left, 9, columns
    random = np.random.RandomState(1)
    for _ in range(50):
        rows, columns = random.randint(1, HEIGHT + 1), random.randint(1, width + 1)
        top = random.randint(0, HEIGHT - rows + 1)
        yield top, random.randint(0, width - columns + 1), rows, columns


@pytest.mark.parametrize("width", [1, 2, 3, 4, 18, WIDTH])
@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS)
def test_a_window_has_the_very_pixels_of_the_whole_image(options, width, decoders):
    decode, decode_window = decoders
    encoded = encode("JPEG", width=width, **options)
    whole = decode(encoded).numpy()
    for top, left, rows, columns in windows(width):
        found = decode_window(encoded, (top, left, rows, columns))
        expected = whole[top : top + rows, left : left + columns]
        np.testing.assert_array_equal(found, expected)


def test_graphs_know_that_there_are_three_channels():
    images = tf.data.Dataset.from_tensors(encode("PNG"))
    for choose_window in (None, window_of(0, 0, 2, 2)):
        decode = functools.partial(decode_image, choose_window=choose_window)
        assert images.map(decode).element_spec.shape.as_list() == [None, None, 3]


def test_small_pngs_decode_without_python(monkeypatch):
    """A data set of icons took twice the time to decode."""
    encoded = encode("PNG", "P")
    expected = zoo.photos.decode(encoded.numpy())
    monkeypatch.delattr(zoo.photos, "plain_orientation")
    np.testing.assert_array_equal(decode_image(encoded), expected)


def test_jpegs_decode_in_training_as_in_the_released_code():
    encoded = encode("JPEG")
    fast, accurate = (
        tf.io.decode_jpeg(encoded, dct_method=method).numpy()
        for method in ("INTEGER_FAST", "INTEGER_ACCURATE")
    )
    np.testing.assert_array_equal(decode_image(encoded, fast=True), fast)
    np.testing.assert_array_equal(tf.io.decode_image(encoded), fast)
    assert (fast != accurate).any()


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_pass(channels):
    pixels = np.random.RandomState(0).randint(0, 256, (5, 7, channels), np.uint8)
    expected = np.broadcast_to(pixels, (5, 7, 3))
    image = tf.constant(pixels)
    np.testing.assert_array_equal(decode_image(image), expected)
    window = decode_image(image, window_of(1, 2, 3, 4))
    np.testing.assert_array_equal(window, expected[1:4, 2:6])


def test_only_the_window_of_a_jpeg_is_decoded():
    encoded = encode("JPEG")
    damaged = tf.strings.substr(encoded, 0, tf.strings.length(encoded) // 2)
    top, left = window_of(0, 0, 8, WIDTH), window_of(0, 0, HEIGHT, 8)
    found = _decode_jpeg_window(damaged, top, None, "INTEGER_ACCURATE")
    np.testing.assert_array_equal(found, decode_image(encoded)[:8])
    with pytest.raises(tf.errors.InvalidArgumentError):
        _decode_jpeg_window(damaged, left, None, "")
    # Without its end marker the whole file is looked at.
    for choose_window in (None, top, left):
        with pytest.raises(tf.errors.InvalidArgumentError):
            decode_image(damaged, choose_window)


@pytest.mark.parametrize("side", [100, 11_264, 11_700, 13_311, 20_000])
def test_a_usual_png_is_within_the_bound_in_bytes(side):
    small = encode("PNG", "RGBA", width=8)
    assert _is_usual_png(small)
    png = bytearray(small.numpy())
    png[16:24] = struct.pack(">II", side, side)
    is_usual = bool(_is_usual_png(tf.constant(bytes(png))))
    assert is_usual <= limits.is_photo_small(side, side, bits=32)
    assert is_usual or side > 11_500


# Photos that their EXIF turns


TURNED = [
    {"file_format": "JPEG", "subsampling": "4:2:0"},
    {"file_format": "JPEG", "mode": "L"},
    {"file_format": "PNG"},
    {"file_format": "WEBP", "lossless": True},
]


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("options", TURNED)
def test_a_window_is_one_of_the_photo_as_pillow_turns_it(options, turn):
    encoded = encode(turn=turn, **options)
    upright = by_pillow(encoded)
    sides = [HEIGHT, WIDTH] if turn < 5 else [WIDTH, HEIGHT]
    assert upright.shape == (*sides, 3)
    np.testing.assert_array_equal(decode_image(encoded), upright)
    for window in ((0, 0, 1, 1), (5, 9, 20, 30), (33, 2, 10, 41)):

        def choose(shape, window=window):
            assert shape.numpy().tolist()[:2] == sides
            return tf.constant(window)

        top, left, height, width = window
        expected = upright[top : top + height, left : left + width]
        np.testing.assert_array_equal(decode_image(encoded, choose), expected)


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def tiff(turn, order="<", kind=3, before=0):
    """EXIF by hand: entries before the orientation, then the directory's end."""
    # A value of two bytes or of four.
    entry = f"{order}HHI{'I' if kind == 4 else 'Hxx'}"
    content = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 10)
    content += b"??" + struct.pack(f"{order}H", before + 1)
    for number in range(before):
        content += struct.pack(entry, 0x0100 + number, 3, 1, 8)
    return content + struct.pack(entry, 0x0112, kind, 1, turn) + b"\0\0\0\0"


def described(content):
    return segment(0xE1, b"Exif\0\0" + content)


JFIF = segment(0xE0, b"JFIF\0\x01\1\0\0\1\0\1\0\0")
EXIF = described(tiff(6))
PROFILE = segment(0xE2, bytes(65_000))
HEADS = {
    "first": (EXIF, 6),
    "after a long JFIF": (segment(0xE0, JFIF[4:] + bytes(300)) + EXIF, 6),
    "after a comment": (JFIF + segment(0xFE, b"hello") + EXIF, 6),
    "after 16 segments": (JFIF + 16 * PROFILE + EXIF, 6),
    "long": (JFIF + described(tiff(6, kind=4)), 6),
    "long, big endian": (JFIF + described(tiff(8, ">", 4)), 8),
    "too long": (JFIF + described(tiff(0x10006, kind=4)), 1),
    "too long, big": (JFIF + described(tiff(0x60000, ">", 4)), 1),
    "big endian": (JFIF + described(tiff(8, ">")), 8),
    "among others": (JFIF + described(tiff(3, before=9)), 3),
    "not a short": (JFIF + described(tiff(6, kind=2)), 1),
    "0": (JFIF + described(tiff(0)), 1),
    "9": (JFIF + described(tiff(9)), 1),
    "no address": (JFIF + described(b"II*\0"), 1),
    "an address outside": (JFIF + described(b"II*\0\xff\xff\xff\xff"), 1),
    "nothing": (JFIF, 1),
}


def test_where_exif_may_be_and_what_may_be_wrong_with_it():
    settings = {"input_signature": [tf.TensorSpec((), tf.string)], "autograph": False}
    decode, orientation = (
        tf.function(function, **settings)
        for function in (decode_image, exif.orientation)
    )
    plain = encode("JPEG").numpy()
    assert plain[2:20] == JFIF
    stored = decode(plain).numpy()
    turns = {1: 0, 3: 2, 6: -1, 8: 1}
    for name, (head, turn) in HEADS.items():
        found = decode(plain[:2] + head + plain[20:])
        expected = np.rot90(stored, turns[turn])
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert int(orientation(plain[:2] + head + plain[20:])) == turn, name
    for cut in range(0, len(EXIF), 3):
        assert int(orientation(plain[:20] + EXIF[:cut])) in (1, 6), cut


def test_exif_may_follow_the_pixels_of_a_png():
    plain, content = encode("PNG").numpy(), tiff(6)
    chunk = struct.pack(">I", len(content)) + b"eXIf" + content
    chunk += struct.pack(">I", zlib.crc32(b"eXIf" + content))
    encoded = tf.constant(plain[:-12] + chunk + plain[-12:])
    upright = by_pillow(encoded)
    assert upright.shape == (WIDTH, HEIGHT, 3)
    np.testing.assert_array_equal(decode_image(encoded), upright)


def test_photos_of_tfds_are_decoded_as_published_and_others_upright(tmp_path):
    turned = encode("JPEG", turn=6).numpy()
    tiny = tiny_images({"train": [0], "test": [0]}, image=turned)
    photos = [record(0, 0, **{"image/encoded": turned})]
    files = {"train.tfrecord": photos, "test.tfrecord": photos}
    labels = np.zeros(1, int)
    memory = in_memory("x", np.array([turned], object), labels, tf.identity, None)
    upright, published = (WIDTH, HEIGHT), (HEIGHT, WIDTH)
    for split, shape in (
        (
            load("tiny_images", data_dir=lay_out(tmp_path / "tfds", tiny)).train,
            published,
        ),
        (load(str(lay_out(tmp_path / "records", files))).train, upright),
        (memory, upright),
        (pick(dataclasses.replace(memory, honour_exif=False), [0]), published),
    ):
        [(content, _)] = split.records()
        assert split.decode(content).shape[:2] == shape
        assert split.decode(content, window_of(40, 40, 3, 2)).shape == (3, 2, 3)
