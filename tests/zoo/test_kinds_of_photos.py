"""Each kind of file has the same pixels in predictions, in training and in exports.

TensorFlow decodes in training and in exports; predictions do without it.
"""

import itertools
import zlib

import numpy as np
import pytest
from made_photos import (
    COLOURS,
    DATA,
    IDAT,
    LOCAL,
    PIXELS,
    ROWS,
    TURNS,
    XMP,
    chunk,
    close,
    encode,
    exif,
    gif,
    golden,
    picture,
    png,
    segment,
    tiff,
)
from PIL import Image

from zoo import photos
from zoo.photos import jpeg

IMAGE = Image.fromarray(PIXELS)
LOSSLESS = {"lossless": True, "exact": True}
END_OF_JPEG = 0xD9
JPEG = encode(PIXELS, "JPEG")
DECODED = photos.decode(JPEG)
TURNED = TURNS[6](DECODED)
FRAME = np.random.RandomState(0).randint(0, 256, (6, 7))
GRAY = np.random.RandomState(0).randint(0, 2**16, (5, 7, 1))
HALVES = chunk(b"IDAT", DATA[:50]), chunk(b"IDAT", DATA[50:])
TEXT, BAD_TEXT = chunk(b"tEXt", b"a\0b"), chunk(b"tEXt", b"a\0b", 1)


def pages():
    return {"save_all": True, "append_images": [Image.fromarray(picture(seed=1))]}


def before(encoded, marker, *parts):
    place = encoded.index(marker)
    return encoded[:place] + b"".join(parts) + encoded[place:]


def on_canvas(colour, frame):
    canvas = np.empty((12, 14, 3), "uint8")
    canvas[:] = colour
    canvas[3:9, 2:9] = frame
    return canvas


ON_CANVAS = {"place": (2, 3), "size": (14, 12)}
PNGS = {
    "wrong checksum of texts": png(BAD_TEXT, IDAT, BAD_TEXT),
    "unknown chunk": png(chunk(b"abCd", b"x"), IDAT),
    "two parts": png(*HALVES),
    "empty part": png(chunk(b"IDAT"), IDAT),
    "trailer": png() + b"trailer",
    "more data": png(chunk(b"IDAT", DATA + b"abcdef")),
    "more rows": png(chunk(b"IDAT", zlib.compress(ROWS + ROWS))),
    "parts apart, the first is whole": png(IDAT, TEXT, chunk(b"IDAT", b"x")),
    "palette that nobody needs": png(chunk(b"PLTE", b"abc"), IDAT),
    "transparent colour": png(chunk(b"tRNS", bytes(6)), IDAT),
}


# Names and bytes; the pixels where they are known; how far they may be off.
def served_kinds():
    """Yields what exports read too."""
    for options in ({}, {"optimize": True}, {"subsampling": "4:4:4"}, {"mode": "L"}):
        yield f"JPEG, {options}", encode(PIXELS, "JPEG", **options)
    for options in ({}, {"optimize": True}, {"progressive": True}):
        plain = encode(PIXELS, "JPEG", subsampling="4:2:2", **options)
        turned = TURNS[6](photos.decode(plain))
        yield f"JPEG, 4:2:2, {options}", plain
        for marker in (b"\xff\xe0", b"\xff\xc4", b"\xff\xda"):
            encoded = before(plain, marker, exif(6))
            yield f"JPEG, EXIF before {marker.hex()}, {options}", encoded, turned, 8
    start, content = b"Exif\0\0", exif(6)[10:]
    for first in (0, 3, 9, len(content)):
        for more in (b"", exif(3)[10:]):
            parts = (content[:first], content[first:] + more)
            parts = (segment(0xE1, start + part) for part in parts)
            encoded = before(JPEG, b"\xff\xe0", *parts)
            yield f"JPEG, EXIF in two, {first}, {len(more)}", encoded, TURNED, 8
    yield "JPEG, filled", before(JPEG, b"\xff\xe0", b"\xff\xff", exif(6)), TURNED, 8
    yield "JPEG, EXIF behind", JPEG + JPEG[:2] + exif(6) + JPEG[2:], DECODED, 8
    yield "JPEG, XMP", before(JPEG, b"\xff\xe0", segment(0xE1, XMP)), DECODED, 8
    yield "JPEG with a trailer", JPEG + b"trailer", DECODED
    yield "JPEG, the first of several", encode(PIXELS, "MPO", **pages())
    for turn, turned in TURNS.items():
        yield f"JPEG {turn}", encode(PIXELS, "JPEG", turn=turn), turned(DECODED), 8
        yield f"PNG {turn}", encode(PIXELS, "PNG", turn=turn), turned(PIXELS)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        pixels = np.asarray(IMAGE.convert(mode).convert("RGB"))
        for options in ({}, {"compress_level": 0}):
            encoded = encode(PIXELS, "PNG", mode, **options)
            yield f"PNG, {mode}, {options}", encoded, pixels
    yield "PNG, palette of 4 bits", encode(IMAGE.quantize(16), "PNG", bits=4)
    yield "PNG, golden of 16 bits", *golden("grey_16.png")
    for name, encoded in PNGS.items():
        yield f"PNG, {name}", encoded, PIXELS
    yield "GIF", encode(IMAGE.quantize(16), "GIF")
    yield "GIF, animated", encode(IMAGE.quantize(16), "GIF", **pages())
    yield "GIF, a frame that fills it", gif(FRAME, background=9), COLOURS[FRAME]
    yield "GIF, its palette", gif(FRAME, local=LOCAL, palette=None), LOCAL[FRAME]


def other_kinds():
    """Yields what exports refuse."""
    yield "JPEG, CMYK", encode(PIXELS, "JPEG", "CMYK")
    for name in ("cmyk_with_adobe_marker.jpg", "cmyk_without_adobe_marker.jpg"):
        yield name, *golden(name), 12
    yield "JPEG, golden without an end marker", *golden("no_end_marker.jpg"), 2
    choices = {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 2}
    for options in ({}, *choices):
        whole = encode(PIXELS, "JPEG", **options)
        assert END_OF_JPEG in dict(jpeg.segments(whole))
        for trailer in (b"", b"\0", b"SEFT" * 50):
            encoded = whole[:-2] + trailer
            assert END_OF_JPEG not in dict(jpeg.segments(encoded))
            yield f"JPEG, no end, {options}, {trailer}", encoded, photos.decode(whole)
    yield "PNG, damaged packed text", png(chunk(b"zTXt", b"a\0\0bad"), IDAT), PIXELS
    yield "BMP", encode(PIXELS, "BMP"), PIXELS
    yield "BMP, palette", encode(IMAGE.quantize(16), "BMP")
    yield "WebP", encode(PIXELS, "WEBP", **LOSSLESS), PIXELS
    yield "WebP, lossy", encode(PIXELS, "WEBP", quality=60)
    yield "WebP, transparent", encode(PIXELS, "WEBP", "RGBA", **LOSSLESS), PIXELS
    for turn, turned in TURNS.items():
        for name in ("WEBP", "TIFF"):
            encoded = encode(PIXELS, name, turn=turn, **LOSSLESS)
            yield f"{name} {turn}", encoded, turned(PIXELS)
    yield "TIFF, golden", *golden("photo.tif")
    yield "TIFF, XMP", encode(PIXELS, "TIFF", tiffinfo={700: XMP}), PIXELS
    yield "TIFF, the first page", encode(PIXELS, "TIFF", **pages()), PIXELS
    for planes, ink, bits in itertools.product((1, 2), (0, 1), (8, 16)):
        pixels = np.repeat(GRAY >> 8 if ink else 255 - (GRAY >> 8), 3, 2)
        encoded = tiff(GRAY >> (16 - bits), "<", planes, ink, bits)
        yield f"TIFF, gray, {bits} bits, planes {planes}, {ink}", encoded, pixels
    yield "GIF, golden cutout", *golden("cutout.gif")
    yield "GIF, golden frame with an offset", *golden("frame_with_offset.gif")
    # GIF89a, section 18: the background is an index of the global palette.
    for number in (0, 7, 255):
        for local, colours in ((None, COLOURS), (LOCAL, LOCAL)):
            encoded = gif(FRAME, **ON_CANVAS, background=number, local=local)
            pixels = on_canvas(COLOURS[number], colours[FRAME])
            yield f"GIF, {number} around, {local is None}", encoded, pixels
    transparent = gif(FRAME, **ON_CANVAS, background=7, transparent=21)
    yield "GIF, transparent around", transparent, on_canvas(COLOURS[21], COLOURS[FRAME])
    black = gif(FRAME, **ON_CANVAS, background=7, local=LOCAL, palette=None)
    yield "GIF, black without a palette", black, on_canvas(0, LOCAL[FRAME])


SERVED = {name: row for name, *row in served_kinds()}
OTHERS = {name: row for name, *row in other_kinds()}


@pytest.mark.parametrize("name", [*SERVED, *OTHERS])
def test_a_kind_of_file_has_one_answer(name, trained, served):
    encoded, *expected = (SERVED | OTHERS)[name]
    found = photos.decode(encoded)
    if expected:
        close(found, *expected)
        close(trained(encoded), *expected)
    else:
        np.testing.assert_array_equal(trained(encoded), found)
    if name in SERVED:
        close(served(encoded), found, 8 if name.startswith("JPEG") else 0)
        return
    refusal = "does not read|Unknown image|Invalid JPEG|takes JPEG, PNG and GIF|packed"
    with pytest.raises(Exception, match=refusal):
        served(encoded)
