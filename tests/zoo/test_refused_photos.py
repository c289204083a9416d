"""Damaged, huge and foreign files are refused by all decoders, in bounded memory."""

import struct
import tracemalloc
import zlib
from unittest import mock

import numpy as np
import pytest
from made_photos import (
    DATA,
    IDAT,
    PIXELS,
    ROWS,
    WIDTH,
    chunk,
    close,
    directory,
    encode,
    exif,
    gif,
    png,
    segment,
    tiff,
)
from PIL import Image

from zoo import photos
from zoo.common import limits

IMAGE = Image.fromarray(PIXELS)
GIF = encode(IMAGE.quantize(16), "GIF")
JPEG = encode(PIXELS, "JPEG")
BMP = struct.pack("<2s4I2I2H24x", b"BM", 54, 0, 54, 40, 10**5, 10**5, 1, 24)
HALVES = chunk(b"IDAT", DATA[:50]), chunk(b"IDAT", DATA[50:])
EMPTY = np.zeros((4, 4, 1))
PALETTE, TEXT = chunk(b"PLTE", b"abc"), chunk(b"tEXt", b"a\0b")
# More pixels than the bound; and more bytes than it of 32 bits a pixel, and of 48.
SIDE, SIDE_OF_FOUR, SIDE_OF_DEEP = 14_000, 12_000, 10_000
PILLOWS = ".196000000 pixels. exceeds limit of 178956970"
OF_FOUR = "12,000 x 12,000 pixels of 32 bits"
NO_IMAGE = "cannot be read as an image"
OF_DEEP = "10,000 x 10,000 pixels of 48 bits"


def jpeg(side, mode="RGB"):
    encoded = bytearray(encode(Image.new(mode, (8, 8)), "JPEG"))
    frame = encoded.index(b"\xff\xc0")
    encoded[frame + 5 : frame + 9] = struct.pack(">HH", side, side)
    return bytes(encoded)


def webp(side):
    encoded = bytearray(encode(Image.new("RGBA", (8, 8)), "WEBP", lossless=True))
    (start,) = struct.unpack_from("<I", encoded, 21)
    sides = side - 1 | side - 1 << 14
    struct.pack_into("<I", encoded, 21, start >> 28 << 28 | sides)
    return bytes(encoded)


def png_head(side, depth, colour):
    data = chunk(b"IDAT", b"no pixels")
    return png(data, depth=depth, colour=colour, size=(side, side))


def tiff_head(side, bits, samples, photometric=2, extra=0, tile=None):
    """The head of a packed TIFF whose strip or tile is 8 bytes of zeros."""
    entries = {256: side, 257: side, 258: samples * [bits], 259: 8, 262: photometric}
    entries |= {277: samples} | ({338: extra * [0]} if extra else {})
    place = {322: tile, 323: tile, 324: 8, 325: 8} if tile else {}
    entries |= place or {273: 8, 278: side, 279: 8}
    return directory(bytes(8), entries)


PNGS = {
    "wrong checksum": png(chunk(b"IDAT", DATA, 1)),
    "wrong checksum of the end": png(end=chunk(b"IEND", b"", 1)),
    "no end": png(end=b""),
    "no checksum of the pixels": png(chunk(b"IDAT", DATA[:-4])),
    "another checksum of the pixels": png(chunk(b"IDAT", DATA[:-4] + b"abcd")),
    "cut": png(chunk(b"IDAT", DATA[:-20])),
    "a row too few": png(chunk(b"IDAT", zlib.compress(ROWS[: -1 - 3 * WIDTH]))),
    "unknown critical chunk": png(chunk(b"ABCD", b"x"), IDAT),
    "unknown critical chunk behind": png(IDAT, chunk(b"ABCD", b"x")),
    "no palette": png(chunk(b"IDAT", zlib.compress(ROWS[::3])), colour=3),
    "two palettes": png(PALETTE, PALETTE, IDAT),
    "two headers": png(png()[8:33], IDAT),
    "parts apart": png(HALVES[0], TEXT, HALVES[1]),
    "chunk without a name": png(chunk(b"a1cd", b"x"), IDAT),
    "unknown filter": png(chunk(b"IDAT", zlib.compress(b"\7" + ROWS[1:]))),
    "unknown ways": png(ways=(1, 0, 0)),
    "unknown interlace": png(ways=(0, 0, 2)),
    "unknown colour": png(colour=5),
    "unknown depth of colours": png(depth=4),
    "no rows": png(size=(WIDTH, 0)),
    "half a colour": png(chunk(b"PLTE", b"abcd"), IDAT, colour=3),
}
# Bytes, and the reason.
DAMAGED = {
    **{f"PNG, {name}": (encoded, NO_IMAGE) for name, encoded in PNGS.items()},
    "nothing": (b"", NO_IMAGE),
    "JPEG's start": (b"\xff\xd8\xff", NO_IMAGE),
    "half a JPEG": (JPEG[: len(JPEG) // 2], NO_IMAGE),
    "JPEG, cut by little": (JPEG[:-8], NO_IMAGE),
    "half a WebP": (encode(PIXELS, "WEBP")[:200], NO_IMAGE),
    "GIF's start": (b"GIF89a", NO_IMAGE),
    "another format": (encode(PIXELS, "TGA"), NO_IMAGE),
    "code": (encode(PIXELS, "EPS"), NO_IMAGE),
    "TIFF of floats": (tiff(EMPTY, photometric=1, bits=32, kind=3), "has .* float32"),
    "TIFF of signs": (tiff(EMPTY, photometric=1, bits=32, kind=2), "has .* of int32"),
}
TOO_LARGE = {
    "PNG": (png_head(SIDE, 8, 2), "14,000 x 14,000 pixels, where 178,956,970"),
    "PNG of 16 bits": (png_head(SIDE_OF_DEEP, 16, 2), f"{OF_DEEP}, where 89,478,485"),
    "PNG, transparent": (png_head(SIDE_OF_FOUR, 8, 6), "of 32 bits, where 134,217,727"),
    "JPEG": (jpeg(SIDE), PILLOWS),
    "JPEG in CMYK": (jpeg(SIDE_OF_FOUR, "CMYK"), OF_FOUR),
    "WebP, transparent": (webp(SIDE_OF_FOUR), OF_FOUR),
    "GIF": (gif(np.array([[1, 0], [0, 1]]), size=(SIDE, SIDE)), PILLOWS),
    "BMP": (BMP, ".10000000000 pixels. exceeds limit of 178956970"),
    "TIFF of 16 bits": (tiff_head(SIDE_OF_DEEP, 16, 3), OF_DEEP),
    "TIFF in CMYK": (tiff_head(SIDE_OF_FOUR, 8, 4, 5), OF_FOUR),
    "TIFF of six channels": (tiff_head(SIDE_OF_DEEP, 8, 6, extra=3), OF_DEEP),
    "TIFF in a tile": (tiff_head(8, 8, 3, tile=16_384), "16,384 x 16,384 pixels"),
}
# Exports refuse them before they decode them, and say why.
REFUSED_BY_SIZE = ("PNG", "PNG of 16 bits", "PNG, transparent", "JPEG")


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_photo_is_refused_by_all(name, trained, served, tmp_path):
    encoded, reason = DAMAGED[name]
    with pytest.raises(ValueError, match=f"This file {reason}.*: save it"):
        photos.decode(encoded)
    # Whole damaged files, TensorFlow refuses in words of its own.
    with pytest.raises(Exception, match=reason if "TIFF" in name else None):
        trained(encoded)
    with pytest.raises(Exception):  # noqa: B017
        served(encoded)
    path = tmp_path / "a\x1b[2J.jpg"
    path.write_bytes(encoded)
    with pytest.raises(ValueError, match=r"x1b\[2J.jpg") as caught:
        photos.decode(path)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_takes_more_memory_than_the_bound_is_refused(name, trained, served):
    encoded, reason = TOO_LARGE[name]
    assert len(encoded) < 30_000
    with pytest.raises(ValueError, match=f"{reason}.*: save it smaller"):
        photos.decode(encoded)
    with pytest.raises(Exception, match="save it smaller"):
        trained(encoded)
    by_size = "178,956,970 pixels or 536,870,910 bytes"
    with pytest.raises(Exception, match=by_size if name in REFUSED_BY_SIZE else None):
        served(encoded)


def test_the_bound_itself_is_read():
    pixels, deep = limits.PHOTO_PIXELS, limits.PHOTO_VALUES // 6
    for bits, most in ((8, pixels), (24, pixels), (48, deep)):
        limits.check_photo_size(most, 1, bits)
        with pytest.raises(limits.TooLargeError):
            limits.check_photo_size(1, most + 1, bits)


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 0}])
def test_a_jpeg_of_which_scans_are_missing_is_refused(options, trained):
    """The first scans of a progressive one are a whole photo, but a coarse one."""
    whole = encode(PIXELS, "JPEG", quality=90, **options)
    start = whole.index(b"\xff\xda") + 14
    cuts = {*range(start, len(whole) - 3, 7)}
    # Before markers, but those of restarts and escaped bytes.
    for cut in range(start, len(whole) - 2):
        if whole[cut] == 0xFF and whole[cut + 1] not in (0, *range(0xD0, 0xD8)):
            cuts.add(cut)
    for cut in sorted(cuts):
        for decode in (photos.decode, trained):
            with pytest.raises(Exception, match="cannot be read as an image"):
                decode(whole[:cut])
    close(photos.decode(whole[:-2]), photos.decode(whole))


@pytest.mark.parametrize("start", [b"zTXta\0\0", b"iTXta\0\1\0\0\0", b"iCCPa\0\0"])
def test_text_that_unpacks_to_much_takes_no_memory(start, trained, served):
    packed = zlib.compress(bytes(2**23), 9)
    encoded = png(*100 * [chunk(start[:4], start[4:] + packed)], IDAT)
    tracemalloc.start()
    close(photos.decode(encoded), PIXELS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(encoded) + 2**21
    close(trained(encoded), PIXELS)
    if start[:4] != b"iCCP":
        with pytest.raises(Exception, match="packed text"):
            served(encoded)


def test_exif_that_a_graph_does_not_reach_is_refused(trained, served):
    encoded = JPEG[:2] + 300 * segment(0xE2, b"profile") + exif(6) + JPEG[2:]
    assert trained(encoded).shape == photos.decode(encoded).shape != PIXELS.shape
    with pytest.raises(Exception, match="too many segments"):
        served(encoded)


def test_tiles_of_packed_tiffs_are_bounded_and_mean_nothing_in_others():
    """Libtiff takes the memory of a tile of packed files, even where they have strips.

    One of 16,384 x 16,384 took 800 MB in Pillow.
    """
    close(photos.decode(tiff(PIXELS, bits=8, packed=True)), PIXELS)
    ratios = [(5, 1, struct.pack("<2I", *numbers)) for numbers in ((16, 1), (0, 0))]
    for side in (16_384, (2, 3, b"ab\0"), *ratios):
        reason = "16,384 x 16,384" if side == 16_384 else "tiles of no whole number of"
        tags = {322: side, 323: 16_384}
        close(photos.decode(tiff(PIXELS, bits=8, more=tags)), PIXELS)
        with pytest.raises(ValueError, match=f"{reason} pixels.*: save it"):
            photos.decode(tiff(PIXELS, bits=8, packed=True, more=tags))


def test_exports_decode_no_more_than_the_first_frame_of_a_gif(served):
    huge, empty = (
        struct.pack("<BHHHHBB", 0x2C, 0, 0, side, side, 0, 2) + b"\1\4\0"
        for side in (60_000, 0)
    )
    for behind in (b";", huge + b";", huge[:9], 3 * huge + b"damage", empty + b";"):
        for decode in (served, photos.decode):
            close(decode(GIF[:-1] + behind), photos.decode(GIF))
    with pytest.raises(Exception, match="a GIF that is cut"):
        served(GIF[: len(GIF) // 2])


def test_tensorflow_is_handed_the_first_frame_of_a_gif_alone(monkeypatch):
    """It would decode all of them: a GIF of 1 MB may have 100 of 180 MB each."""
    tf = pytest.importorskip("tensorflow")
    decoding = pytest.importorskip("train.data.transforms.decoding")
    decode = mock.Mock(return_value=tf.zeros(PIXELS.shape, tf.uint8))
    monkeypatch.setattr(decoding, "_decode_whole", decode)
    second = GIF[GIF.index(b"\x2c\0\0\0\0") :]
    for encoded in (GIF, GIF[:-1] + second, GIF[:-1] + 9 * second[:-1]):
        decoding.decode_in_graph(tf.constant(encoded))
        assert decode.call_args.args[0].numpy() == GIF


def test_files_that_are_damaged_not_there_or_no_files(tmp_path):
    path = tmp_path / "half.png"
    path.write_bytes(encode(PIXELS, "PNG")[:900])
    message = "An image of mode RGB cannot be read"
    with Image.open(path) as image, pytest.raises(ValueError, match=message):
        photos.decode(image)
    with pytest.raises(OSError, match="gone.jpg cannot be opened"):
        photos.decode(tmp_path / "gone.jpg")
    with pytest.raises(OSError, match=f"{tmp_path.name} is a folder"):
        photos.decode(str(tmp_path))
