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


def without_end(trailer=b"", **options):
    whole = encode(PIXELS, "JPEG", **options)
    assert jpeg.has_end_marker(whole)
    assert not jpeg.has_end_marker(whole[:-2] + trailer)
    return whole[:-2] + trailer, photos.decode(whole)


def in_two_segments(first, more):
    start, content = b"Exif\0\0", exif(6)[10:]
    segments = (content[:first], content[first:] + more)
    parts = [segment(0xE1, start + part) for part in segments]
    return before(JPEG, b"\xff\xe0", *parts), TURNED, 8


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
# Bytes; the pixels where they are known; how far they may be off. Exports read these:
SERVED = {
    **{
        f"JPEG, {options}": (encode(PIXELS, "JPEG", **options),)
        for options in (
            *({}, {"optimize": True}, {"subsampling": "4:4:4"}, {"mode": "L"}),
            {"subsampling": "4:2:2", "progressive": True},
        )
    },
    "JPEG with a trailer": (JPEG + b"trailer", DECODED),
    "JPEG, the first of several": (encode(PIXELS, "MPO", **pages()),),
    **{
        f"JPEG, EXIF before {marker.hex()}, {options}": (
            before(plain, marker, exif(6)),
            TURNS[6](photos.decode(plain)),
            8,
        )
        for options in ({}, {"optimize": True}, {"progressive": True})
        for plain in [encode(PIXELS, "JPEG", **options)]
        for marker in (b"\xff\xe0", b"\xff\xc4", b"\xff\xda")
    },
    **{
        f"JPEG, EXIF in two segments, {first} bytes in the first, {len(more)} more": (
            in_two_segments(first, more)
        )
        for first in (0, 3, 9, len(exif(6)) - 10)
        for more in (b"", exif(3)[10:])
    },
    "JPEG, filled": (before(JPEG, b"\xff\xe0", b"\xff\xff", exif(6)), TURNED, 8),
    "JPEG, EXIF behind": (JPEG + JPEG[:2] + exif(6) + JPEG[2:], DECODED, 8),
    "JPEG, XMP": (before(JPEG, b"\xff\xe0", segment(0xE1, XMP)), DECODED, 8),
    **{
        f"{name}, turned {turn}": (
            encode(PIXELS, name, turn=turn),
            TURNS[turn](photos.decode(encode(PIXELS, name))),
            8 if name == "JPEG" else 0,
        )
        for name in ("JPEG", "PNG")
        for turn in TURNS
    },
    **{
        f"PNG, {mode}, {options}": (
            encode(PIXELS, "PNG", mode, **options),
            np.asarray(IMAGE.convert(mode).convert("RGB")),
        )
        for mode in ("1", "L", "LA", "P", "RGB", "RGBA")
        for options in ({}, {"compress_level": 0})
    },
    "PNG, palette of 4 bits": (encode(IMAGE.quantize(16), "PNG", bits=4),),
    "PNG, golden of 16 bits": golden("grey_16.png"),
    **{f"PNG, {name}": (encoded, PIXELS) for name, encoded in PNGS.items()},
    "GIF": (encode(IMAGE.quantize(16), "GIF"),),
    "GIF, animated": (encode(IMAGE.quantize(16), "GIF", **pages()),),
    "GIF, a frame that fills it": (gif(FRAME, background=9), COLOURS[FRAME]),
    "GIF, its palette": (gif(FRAME, local=LOCAL, palette=None), LOCAL[FRAME]),
}
ON_CANVAS = {"place": (2, 3), "size": (14, 12)}
OTHERS = {
    "JPEG, CMYK": (encode(PIXELS, "JPEG", "CMYK"),),
    "JPEG, golden CMYK with a marker": (*golden("cmyk_with_adobe_marker.jpg"), 12),
    "JPEG, golden CMYK without": (*golden("cmyk_without_adobe_marker.jpg"), 12),
    "JPEG, golden without an end marker": (*golden("no_end_marker.jpg"), 2),
    **{
        f"JPEG without an end marker, {options}, {trailer[:4]}": without_end(
            trailer, **options
        )
        for trailer in (b"", b"\0", b"SEFT" * 50)
        for options in (
            *({}, {"progressive": True}, {"subsampling": 0}),
            {"restart_marker_blocks": 2},
        )
    },
    "PNG, damaged packed text": (png(chunk(b"zTXt", b"a\0\0bad"), IDAT), PIXELS),
    "BMP": (encode(PIXELS, "BMP"), PIXELS),
    "BMP, palette": (encode(IMAGE.quantize(16), "BMP"),),
    "WebP": (encode(PIXELS, "WEBP", **LOSSLESS), PIXELS),
    "WebP, lossy": (encode(PIXELS, "WEBP", quality=60),),
    "WebP, transparent": (encode(PIXELS, "WEBP", "RGBA", **LOSSLESS), PIXELS),
    **{
        f"{name}, turned {turn}": (
            encode(PIXELS, name, turn=turn, **LOSSLESS),
            TURNS[turn](PIXELS),
        )
        for name in ("WEBP", "TIFF")
        for turn in TURNS
    },
    "TIFF, golden": golden("photo.tif"),
    "TIFF, XMP": (encode(PIXELS, "TIFF", tiffinfo={700: XMP}), PIXELS),
    "TIFF, the first page": (encode(PIXELS, "TIFF", **pages()), PIXELS),
    **{
        f"TIFF, gray, {bits} bits, planes {planes}, photometric {photometric}": (
            tiff(GRAY >> (16 - bits), "<", planes, photometric, bits),
            np.repeat(GRAY >> 8 if photometric else 255 - (GRAY >> 8), 3, 2),
        )
        for planes, photometric in itertools.product((1, 2), (0, 1))
        for bits in (8, 16)
    },
    "GIF, golden cutout": golden("cutout.gif"),
    "GIF, golden frame with an offset": golden("frame_with_offset.gif"),
    # GIF89a, section 18: the background is an index of the global palette.
    **{
        f"GIF, around the frame is {background}, {'own' if local else 'global'}": (
            gif(FRAME, **ON_CANVAS, background=background, local=local and LOCAL),
            on_canvas(COLOURS[background], (LOCAL if local else COLOURS)[FRAME]),
        )
        for background, local in itertools.product((0, 7, 255), (None, "own"))
    },
    "GIF, around the frame is what is transparent in it": (
        gif(FRAME, **ON_CANVAS, background=7, transparent=21),
        on_canvas(COLOURS[21], COLOURS[FRAME]),
    ),
    "GIF, a canvas without a palette is black": (
        gif(FRAME, **ON_CANVAS, background=7, local=LOCAL, palette=None),
        on_canvas(0, LOCAL[FRAME]),
    ),
}


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
