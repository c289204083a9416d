"""Photos that their EXIF turns, against Pillow."""

import io
import struct

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from train.data import exif
from train.data.decoding import decode_image

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
    entry = {"<": "<HHIHH", ">": ">HHIHH"}[order]
    count = before + 1
    content = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(f"{order}I", 10)
    content += b"??" + struct.pack(f"{order}H", count)
    for number in range(before):
        content += struct.pack(entry, 0x0100 + number, 3, 1, 8, 0)
    return content + struct.pack(entry, 0x0112, kind, 1, turn, 0) + b"\0\0\0\0"


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


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def expected(encoded):
    """The stored pixels by our decoder, turned by Pillow."""
    stored = decode_image(tf.constant(encoded), honour_exif=False).numpy()
    turn = Image.open(io.BytesIO(encoded)).getexif()[0x0112]
    image = Image.fromarray(stored)
    image.getexif()[0x0112] = turn
    return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("options", FORMATS.values(), ids=FORMATS)
def test_photos_stand_upright_as_pillow_turns_them(options, turn):
    encoded = encode(turn, **options)
    found = decode_image(tf.constant(encoded)).numpy()
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGB")
    assert found.shape == (*wanted.size[::-1], 3)
    assert wanted.size == ((WIDTH, HEIGHT) if turn < 5 else (HEIGHT, WIDTH))
    if options["format"] == "JPEG":
        np.testing.assert_array_equal(found, expected(encoded))
        # The two decoders' transforms round differently.
        assert np.abs(found - np.asarray(wanted, int)).max() <= 4
    else:
        np.testing.assert_array_equal(found, wanted)
