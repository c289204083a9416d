"""Photos that declare more than the bound of all formats, in pixels or in bytes."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from test_damaged_photos import PIXELS, REFUSED, answer, chunk, png
from test_photo_files import close, encode
from test_tiffs_and_gifs import LOCAL, gif

from zoo import limits, photos

# More pixels than the bound; and more bytes than it of 32 bits a pixel, and of 48.
SIDE, SIDE_OF_FOUR, SIDE_OF_DEEP = 14_000, 12_000, 10_000
FRAME = np.array([[1, 0], [0, 1]])
PILLOWS = ".196000000 pixels. exceeds limit of 178956970"


def tiff(side, bits, samples, photometric=2, extra=0, tile=None):
    """The head of a packed TIFF whose strip or tile is 8 bytes of zeros."""
    entries = [
        (256, side), (257, side), (258, *samples * [bits]), (259, 8),
        (262, photometric), (277, samples),
    ]  # fmt: skip
    if tile:
        entries += [(322, tile), (323, tile), (324, 8), (325, 8)]
    else:
        entries += [(273, 8), (278, side), (279, 8)]
    if extra:
        entries.append((338, *extra * [0]))
    entries.sort()
    behind = 16 + 2 + 12 * len(entries) + 4
    directory, values = struct.pack("<H", len(entries)), b""
    for tag, *numbers in entries:
        content = struct.pack(f"<{len(numbers)}I", *numbers)
        if len(numbers) > 1:
            place = behind + len(values)
            values, content = values + content, struct.pack("<I", place)
        directory += struct.pack("<HHI", tag, 4, len(numbers)) + content
    return (
        struct.pack("<2sHI", b"II", 42, 16) + bytes(8) + directory + bytes(4) + values
    )


def with_tags(encoded, *added):
    """A TIFF with another directory behind, of further (tag, type, numbers)."""
    (place,) = struct.unpack_from("<I", encoded, 4)
    (count,) = struct.unpack_from("<H", encoded, place)
    entries = [encoded[place + 2 + 12 * n :][:12] for n in range(count)]
    for tag, kind, *numbers in added:
        content = struct.pack(f"<{len(numbers)}{'B' if kind == 2 else 'I'}", *numbers)
        if len(content) > 4:
            content, encoded = struct.pack("<I", len(encoded)), encoded + content
        head = struct.pack("<HHI", tag, kind, len(numbers) if kind != 5 else 1)
        entries.append(head + content.ljust(4, b"\0"))
    entries.sort(key=lambda entry: struct.unpack_from("<H", entry))
    directory = struct.pack("<H", len(entries)) + b"".join(entries) + bytes(4)
    return encoded[:4] + struct.pack("<I", len(encoded)) + encoded[8:] + directory


TILES = {
    "too large": [(322, 4, 16_384), (323, 4, 16_384)],
    "text": [(322, 2, *b"ab\0"), (323, 4, 16)],
    "a ratio": [(322, 5, 16, 1), (323, 4, 16)],
    "no number": [(322, 5, 0, 0), (323, 4, 16)],
}


@pytest.mark.parametrize("name", TILES)
def test_sizes_of_tiles_mean_nothing_in_a_tiff_of_strips(name):
    plain = encode(Image.fromarray(PIXELS), "TIFF")
    close(photos.decode(with_tags(plain, *TILES[name])), PIXELS)


@pytest.mark.parametrize("name", TILES)
def test_sizes_of_tiles_that_libtiff_goes_by_are_bounded(name):
    """Of packed files it takes the memory of a tile, where offsets are of strips too.

    One of 16,384 x 16,384 took 800 MB in Pillow.
    """
    packed = encode(Image.fromarray(PIXELS), "TIFF", compression="tiff_lzw")
    encoded = with_tags(packed, *TILES[name])
    reason = "16,384 x 16,384" if name == "too large" else "tiles of no whole number of"
    with pytest.raises(ValueError, match=f"{reason} pixels.*: save it"):
        photos.decode(encoded)


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
    return png(chunk(b"IDAT", b"no pixels"), depth=depth, colour=colour,
               size=(side, side))  # fmt: skip


TOO_LARGE = {
    "PNG": (png_head(SIDE, 8, 2), "14,000 x 14,000 pixels, where 178,956,970"),
    "PNG, of 16 bits": (
        png_head(SIDE_OF_DEEP, 16, 2),
        "10,000 x 10,000 pixels of 48 bits, where 89,478,485",
    ),
    "PNG, transparent": (png_head(SIDE_OF_FOUR, 8, 6), "of 32 bits, where 134,217,727"),
    "JPEG": (jpeg(SIDE), PILLOWS),
    "JPEG in CMYK": (jpeg(SIDE_OF_FOUR, "CMYK"), "12,000 x 12,000 pixels of 32 bits"),
    "WebP, transparent": (webp(SIDE_OF_FOUR), "12,000 x 12,000 pixels of 32 bits"),
    "GIF": (gif(FRAME, size=(SIDE, SIDE)), PILLOWS),
    "TIFF": (tiff(SIDE, 8, 3), PILLOWS),
    "TIFF, of 16 bits": (
        tiff(SIDE_OF_DEEP, 16, 3),
        "10,000 x 10,000 pixels of 48 bits",
    ),
    "TIFF in CMYK": (tiff(SIDE_OF_FOUR, 8, 4, 5), "12,000 x 12,000 pixels of 32 bits"),
    "TIFF, of six channels": (tiff(SIDE_OF_DEEP, 8, 6, extra=3), "pixels of 48 bits"),
    "TIFF, in a larger tile": (
        tiff(8, 8, 3, tile=16_384),
        "16,384 x 16,384 pixels, where 178,956,970",
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_what_takes_more_memory_than_the_bound_is_refused_by_name(name, trained):
    encoded, reason = TOO_LARGE[name]
    assert len(encoded) < 2000
    with pytest.raises(ValueError, match=f"{reason}.*: save it smaller"):
        photos.decode(encoded)
    assert answer(trained, encoded) is REFUSED


@pytest.mark.parametrize("name", ["PNG", "PNG, of 16 bits", "PNG, transparent", "JPEG"])
def test_serve_bytes_refuses_the_same_before_it_decodes(name, served):
    with pytest.raises(Exception, match="178,956,970 pixels or 536,870,910 bytes"):
        served(TOO_LARGE[name][0])


def test_the_bound_itself_is_read():
    for bits, most in ((8, limits.PHOTO_PIXELS), (24, limits.PHOTO_PIXELS),
                       (48, limits.PHOTO_VALUES // 6)):  # fmt: skip
        limits.check_photo_size(most, 1, bits)
        with pytest.raises(limits.TooLargeError):
            limits.check_photo_size(1, most + 1, bits)


def test_a_whole_png_of_too_many_pixels_is_refused_by_all(trained, served):
    data = zlib.compress(bytes((SIDE // 8 + 1) * SIDE), 9)
    huge = png(chunk(b"IDAT", data), depth=1, colour=0, size=(SIDE, SIDE))
    assert len(huge) < 30_000
    with pytest.raises(Exception, match="save it smaller"):
        trained(huge)
    assert answer(served, huge) is answer(photos.decode, huge) is REFUSED


def test_serve_bytes_decodes_no_more_than_the_first_frame_of_a_gif(served):
    first = encode(Image.fromarray(PIXELS).quantize(16), "GIF")
    huge, empty = (
        struct.pack("<BHHHHBB", 0x2C, 0, 0, side, side, 0, 2) + b"\1\4\0"
        for side in (60_000, 0)
    )
    for behind in (b";", huge + b";", huge[:9], 3 * huge + b"damage", empty + b";"):
        encoded = first[:-1] + behind
        close(served(encoded), photos.decode(first))
        close(photos.decode(encoded), photos.decode(first))
    for encoded in (gif(FRAME), gif(FRAME, local=LOCAL, palette=None)):
        close(served(encoded), photos.decode(encoded))


def test_tensorflow_is_handed_the_first_frame_of_a_gif_alone(monkeypatch):
    """It would decode all of them: a GIF of 1 MB may have 100 of 180 MB each."""
    tf = pytest.importorskip("tensorflow")
    from train.data.transforms import decoding

    handed = []

    def decode(encoded, channels):
        handed.append(encoded.numpy())
        return tf.zeros((*PIXELS.shape[:2], channels), tf.uint8)

    monkeypatch.setattr(decoding, "_decode_whole", decode)
    first = encode(Image.fromarray(PIXELS).quantize(16), "GIF")
    second = first[first.index(b"\x2c\0\0\0\0") :]
    for encoded in (first, first[:-1] + second, first[:-1] + 9 * second[:-1]):
        decoding.decode_in_graph(tf.constant(encoded))
    assert handed == 3 * [first]


def test_serve_bytes_refuses_a_gif_that_is_cut(served):
    encoded = encode(Image.fromarray(PIXELS).quantize(16), "GIF")
    with pytest.raises(Exception, match="a GIF that is cut"):
        served(encoded[: len(encoded) // 2])
