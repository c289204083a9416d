"""Photos that their EXIF turns, against Pillow."""

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

from train.data.sources import load
from train.data.sources.folder_source import file_split
from train.data.sources.splits import in_memory, pick
from train.data.transforms import exif, preprocessing
from train.data.transforms.decoding import decode_image

HEIGHT, WIDTH = 43, 67
TURNS = range(1, 9)
FORMATS = {
    "jpeg": {"format": "JPEG", "subsampling": "4:2:0"},
    "jpeg, gray": {"format": "JPEG", "mode": "L"},
    "png": {"format": "PNG"},
    "webp": {"format": "WEBP", "lossless": True},
    "webp, transparent": {
        "format": "WEBP",
        "mode": "RGBA",
        "lossless": True,
        "exact": True,
    },
}


def photo(mode="RGB"):
    """A smooth image whose parts all differ."""
    pixels = np.random.RandomState(0).randint(0, 256, (7, 9, 4), np.uint8)
    return Image.fromarray(pixels).resize((WIDTH, HEIGHT)).convert(mode)


def tiff(turn, order="<", kind=3, before=0):
    """EXIF by hand: entries before the orientation, then the directory's end."""
    # A value of two bytes or of four.
    entry = f"{order}HHI{'I' if kind == 4 else 'Hxx'}"
    count = before + 1
    content = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 10)
    content += b"??" + struct.pack(f"{order}H", count)
    for number in range(before):
        content += struct.pack(entry, 0x0100 + number, 3, 1, 8)
    return content + struct.pack(entry, 0x0112, kind, 1, turn) + b"\0\0\0\0"


def encode(turn=None, mode="RGB", exif_bytes=None, **options):
    stream = io.BytesIO()
    if turn is not None:
        described = Image.Exif()
        described[0x0112] = turn
        exif_bytes = described.tobytes()
    if exif_bytes is not None:
        options["exif"] = exif_bytes
    photo(mode).save(stream, **options)
    return stream.getvalue()


@pytest.fixture(scope="module")
def decode():
    """Decodes a file in a graph that is traced once."""
    signature = [tf.TensorSpec((), tf.string)]
    traced = tf.function(decode_image, input_signature=signature, autograph=False)
    return lambda encoded: traced(tf.constant(encoded)).numpy()


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("options", FORMATS.values(), ids=FORMATS)
def test_photos_stand_upright_as_pillow_turns_them(options, turn, decode):
    encoded = encode(turn, **options)
    found = decode(encoded)
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB")
    assert found.shape == (*wanted.size[::-1], 3)
    assert wanted.size == ((WIDTH, HEIGHT) if turn < 5 else (HEIGHT, WIDTH))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("format_", ["JPEG", "PNG", "WEBP"])
def test_a_window_is_one_of_the_upright_photo(format_, turn):
    encoded = tf.constant(encode(turn, format=format_))
    upright = decode_image(encoded).numpy()
    shapes = []

    def decode(window):
        def choose(shape):
            shapes.append(shape)
            return window

        return decode_image(encoded, choose)

    for top, left, height, width in ((0, 0, 1, 1), (5, 9, 20, 30), (33, 2, 10, 41)):
        found = decode(tf.constant([top, left, height, width]))
        wanted = upright[top : top + height, left : left + width]
        np.testing.assert_array_equal(found, wanted)
    assert {tuple(shape.numpy()[:2]) for shape in shapes} == {upright.shape[:2]}


JFIF = segment(0xE0, b"JFIF\0\x01\1\0\0\1\0\1\0\0")
EXIF = segment(0xE1, b"Exif\0\0" + tiff(6))
HEADS = {
    "first": (EXIF, 6),
    "after JFIF": (JFIF + EXIF, 6),
    "after a long JFIF": (segment(0xE0, JFIF[4:] + bytes(300)) + EXIF, 6),
    "after a comment": (JFIF + segment(0xFE, b"hello") + EXIF, 6),
    "after 64 kB of colour profile": (JFIF + segment(0xE2, bytes(65_000)) + EXIF, 6),
    "after 16 segments": (JFIF + 16 * segment(0xE2, bytes(65_000)) + EXIF, 6),
    "long": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(6, kind=4)), 6),
    "long, big endian": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(8, ">", 4)), 8),
    "too long": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(0x10006, kind=4)), 1),
    "too long, big": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(0x60000, ">", 4)), 1),
    "big endian": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(8, ">")), 8),
    "among others": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(3, before=9)), 3),
    "not a short": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(6, kind=2)), 1),
    "0": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(0)), 1),
    "9": (JFIF + segment(0xE1, b"Exif\0\0" + tiff(9)), 1),
    "no TIFF": (JFIF + segment(0xE1, b"Exif\0\0nothing"), 1),
    "no address": (JFIF + segment(0xE1, b"Exif\0\0II*\0"), 1),
    "an address outside": (JFIF + segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff"), 1),
    "XMP": (JFIF + segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"), 1),
    "nothing": (JFIF, 1),
}


def test_where_exif_may_be_and_what_may_be_wrong_with_it(decode):
    plain = encode(format="JPEG")
    assert plain[2:20] == JFIF
    stored = decode(plain)
    upright = {1: stored, 3: stored[::-1, ::-1]}
    upright[6] = np.rot90(stored, -1)
    upright[8] = np.rot90(stored)
    for name, (head, turn) in HEADS.items():
        encoded = plain[:2] + head + plain[20:]
        found = decode(encoded)
        np.testing.assert_array_equal(found, upright[turn], err_msg=name)


def test_exif_may_follow_the_pixels_of_a_png():
    plain = encode(format="PNG")
    content = tiff(6)
    chunk = struct.pack(">I", len(content)) + b"eXIf" + content
    chunk += struct.pack(">I", zlib.crc32(b"eXIf" + content))
    encoded = plain[:-12] + chunk + plain[-12:]
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded)))
    assert wanted.size == (HEIGHT, WIDTH)
    np.testing.assert_array_equal(decode_image(tf.constant(encoded)), wanted)


def test_exif_that_is_cut_short():
    orientation = tf.function(exif.orientation, autograph=False)
    for cut in range(0, len(EXIF), 3):
        text = b"\xff\xd8" + JFIF + EXIF[:cut]
        assert int(orientation(tf.constant(text))) in (1, 6), cut


def test_heic_is_turned_once():
    heif = pytest.importorskip("pillow_heif")
    heif.register_heif_opener()
    plain = encode(format="HEIF", quality=-1, chroma=444)
    encoded = encode(6, format="HEIF", quality=-1, chroma=444)
    stored = decode_image(tf.constant(plain)).numpy()
    assert stored.shape == (HEIGHT, WIDTH, 3)
    found = decode_image(tf.constant(encoded)).numpy()
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))))
    np.testing.assert_array_equal(found, wanted)
    # Lossless but for the conversion of colours.
    assert np.abs(found - np.rot90(stored, -1).astype(int)).mean() < 2


def test_training_and_evaluation_see_a_turned_photo_as_the_upright_one(tmp_path):
    """To the last bit where the photo is stored without loss."""
    image = photo()
    stored = image.transpose(Image.Transpose.ROTATE_90)
    turned = Image.Exif()
    turned[0x0112] = 6
    image.save(tmp_path / "upright.png")
    stored.save(tmp_path / "turned.png", exif=turned)
    paths = [str(tmp_path / name) for name in ("upright.png", "turned.png")]
    both = file_split("photos", np.array(paths, object), np.zeros(2, int))
    for crop in (preprocessing.inception_crop, preprocessing.random_shift):
        wanted, found = (
            crop(functools.partial(both.decode, record), (24, 24), (3, 1))
            for record, _ in both.records()
        )
        np.testing.assert_array_equal(found, wanted)


def test_tfds_decodes_as_published(tmp_path):
    photo_of_6 = encode(6, format="JPEG")
    files = tiny_images({"train": [0], "test": [0]}, image=photo_of_6)
    split = load("tiny_images", lay_out(tmp_path, files)).train
    for part in (split, pick(split, [0])):
        [(content, _)] = part.records()
        assert exif.orientation(content) == 6
        assert part.decode(content).shape == (HEIGHT, WIDTH, 3)
        window = part.decode(content, lambda shape: tf.constant([40, 60, 3, 7]))
        assert window.shape == (3, 7, 3)


def test_photos_in_records_stand_upright(tmp_path):
    photos = [record(0, 0, **{"image/encoded": encode(6, format="JPEG")})]
    files = {"train.tfrecord": photos, "test.tfrecord": photos}
    split = load(str(lay_out(tmp_path, files))).train
    [(content, _)] = split.records()
    assert split.decode(content).shape == (WIDTH, HEIGHT, 3)


def test_a_part_of_images_in_memory_stands_as_the_whole_does():
    encoded = np.array([encode(6, format="JPEG")], object)
    whole = in_memory("x", encoded, np.zeros(1, int), tf.identity, None)
    for split in (whole, dataclasses.replace(whole, honour_exif=False)):
        shape = split.decode(tf.constant(encoded[0])).shape
        assert shape == ((HEIGHT, WIDTH, 3), (WIDTH, HEIGHT, 3))[split.honour_exif]
        assert pick(split, [0]).decode(tf.constant(encoded[0])).shape == shape
