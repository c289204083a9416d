"""Damaged, huge and unusual files: one answer by all decoders, in bounded memory."""

import io
import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image
from test_photo_files import close, encode, picture
from test_photo_files import tiff as gray_tiff

from zoo import photos

PIXELS = picture()
HEIGHT, WIDTH = PIXELS.shape[:2]
ROWS = b"".join(b"\0" + row.tobytes() for row in PIXELS)
DATA = zlib.compress(ROWS)
REFUSED = "refused"


def chunk(kind, content=b"", checksum=None):
    if checksum is None:
        checksum = zlib.crc32(kind + content)
    return struct.pack(">I4s", len(content), kind) + content + checksum.to_bytes(4)


def png(*chunks, depth=8, colour=2, size=(WIDTH, HEIGHT), ways=(0, 0, 0), end=None):
    header = struct.pack(">IIBBBBB", *size, depth, colour, *ways)
    chunks = chunks or (chunk(b"IDAT", DATA),)
    content = chunk(b"IHDR", header) + b"".join(chunks)
    return b"\x89PNG\r\n\x1a\n" + content + (chunk(b"IEND") if end is None else end)


def answer(decode, encoded):
    try:
        return decode(encoded)
    except Exception:  # TensorFlow's or a ValueError
        return REFUSED


def same(encoded, *decoders):
    """Returns the answer that all of the decoders give."""
    first, *others = (answer(decode, encoded) for decode in decoders)
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


IDAT = chunk(b"IDAT", DATA)
HALVES = chunk(b"IDAT", DATA[:50]), chunk(b"IDAT", DATA[50:])
TEXT = chunk(b"tEXt", b"a\0b")
READ = {
    "wrong checksum of a text": png(chunk(b"tEXt", b"a\0b", 1), IDAT),
    "wrong checksum of a text behind": png(IDAT, chunk(b"tEXt", b"a\0b", 1)),
    "packed text": png(chunk(b"zTXt", b"a\0\0" + zlib.compress(b"b")), IDAT),
    "damaged text": png(chunk(b"zTXt", b"a\0\0bad"), IDAT),
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
DAMAGED = {
    "wrong checksum": png(chunk(b"IDAT", DATA, 1)),
    "wrong checksum of the end": png(end=chunk(b"IEND", b"", 1)),
    "no end": png(end=b""),
    "no checksum of the pixels": png(chunk(b"IDAT", DATA[:-4])),
    "half a checksum of the pixels": png(chunk(b"IDAT", DATA[:-2])),
    "another checksum of the pixels": png(chunk(b"IDAT", DATA[:-4] + b"abcd")),
    "cut": png(chunk(b"IDAT", DATA[:-20])),
    "a row too few": png(chunk(b"IDAT", zlib.compress(ROWS[: -1 - 3 * WIDTH]))),
    "unknown critical chunk": png(chunk(b"ABCD", b"x"), IDAT),
    "unknown critical chunk behind": png(IDAT, chunk(b"ABCD", b"x")),
    "no palette": png(chunk(b"IDAT", zlib.compress(ROWS[::3])), colour=3),
    "two palettes": png(chunk(b"PLTE", b"abc"), chunk(b"PLTE", b"abc"), IDAT),
    "two headers": png(png()[8:33], IDAT),
    "parts apart": png(HALVES[0], TEXT, HALVES[1]),
    "chunk without a name": png(chunk(b"a1cd", b"x"), IDAT),
    "unknown filter": png(chunk(b"IDAT", zlib.compress(b"\7" + ROWS[1:]))),
    "unknown ways": png(ways=(1, 0, 0)),
    "unknown interlace": png(ways=(0, 0, 2)),
}


@pytest.mark.parametrize("name", [*READ, *DAMAGED])
def test_a_png_has_one_answer(name, trained, served):
    if name in READ:
        found = same(READ[name], photos.decode, trained)
        close(found, PIXELS)
        by_export = answer(served, READ[name])
        assert by_export is REFUSED if "text" in name and "packed" in name else True
        if by_export is not REFUSED:
            close(by_export, PIXELS)
    else:
        assert same(DAMAGED[name], photos.decode, trained, served) is REFUSED


def test_pngs_changed_at_random_have_one_answer(trained, served):
    """TensorFlow's libpng is the reference of what is refused."""
    chosen = random.Random(0)
    header = png()[16:29]
    others = ((b"PLTE", b"abc"), (b"abCd", b"x"), (b"IDAT", b""), (b"tIME", bytes(7)))
    answers = []
    for _ in range(400):
        chunks = [(b"IHDR", header), (b"tEXt", b"a\0b"), (b"IDAT", DATA[:50])]
        chunks += [(b"IDAT", DATA[50:]), (b"sRGB", b"\0"), (b"IEND", b"")]
        place = chosen.randrange(len(chunks))
        kind, content = chunks[place]
        way, checksum = chosen.randrange(6), None
        if way == 0:
            chunks.pop(place)
        elif way == 1:
            chunks.insert(chosen.randrange(7), chunks[place])
        elif way == 2:
            chunks.insert(place, chunks.pop(chosen.randrange(len(chunks))))
        elif way == 3:
            chunks.insert(place, chosen.choice(others))
        elif way == 4:
            checksum = chosen.randrange(2**32)
        elif content:
            content = bytearray(content)
            content[chosen.randrange(len(content))] = chosen.randrange(256)
            chunks[place] = kind, bytes(content)
        parts = [chunk(*each) for each in chunks]
        if checksum is not None:
            parts[place] = chunk(kind, content, checksum)
        encoded = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
        answers.append(same(encoded, photos.decode, trained, served) is not REFUSED)
    assert 80 < sum(answers) < 320


def test_all_packings_of_pngs_have_the_same_pixels(trained):
    image = Image.fromarray(picture(1))
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        converted = image.convert(mode)
        expected = np.asarray(converted.convert("RGB"))
        for options in ({}, {"compress_level": 0}, {"bits": 4} if mode == "P" else {}):
            encoded = encode(converted, "PNG", **options)
            if options != {"bits": 4}:
                close(photos.decode(encoded), expected)
            close(trained(encoded), photos.decode(encoded))


@pytest.mark.parametrize(
    "start", [b"zTXta\0\0", b"iTXta\0\1\0\0\0", b"iCCPa\0\0"], ids=["z", "i", "icc"]
)
def test_text_that_unpacks_to_much_takes_no_memory(start, trained, served):
    packed = zlib.compress(bytes(2**23), 9)
    encoded = png(*100 * [chunk(start[:4], start[4:] + packed)], IDAT)
    tracemalloc.start()
    close(photos.decode(encoded), PIXELS)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 4 * len(encoded) + 2**21
    close(trained(encoded), PIXELS)
    if start[:1] != b"i" or start[1:2] == b"T":
        with pytest.raises(Exception, match="packed text"):
            served(encoded)


@pytest.mark.parametrize("options", [{"progressive": True}, {"subsampling": 0}])
def test_a_jpeg_of_which_scans_are_missing_is_refused(options, trained):
    """The first scans of a progressive one are a whole photo, but a coarse one."""
    whole = encode(Image.fromarray(PIXELS), "JPEG", quality=90, **options)
    start = whole.index(b"\xff\xda") + 14
    for cut in range(start, len(whole) - 3, 7):
        assert same(whole[:cut], photos.decode, trained) is REFUSED, cut
    ends = [cut for cut in range(start, len(whole) - 2) if whole[cut] == 0xFF]
    for cut in [cut for cut in ends if whole[cut + 1] not in range(0xD0, 0xD8)]:
        if whole[cut + 1]:
            assert same(whole[:cut], photos.decode, trained) is REFUSED, cut
    close(photos.decode(whole[:-2]), photos.decode(whole))


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def exif(turn):
    described = Image.Exif()
    described[0x0112] = turn
    return segment(0xE1, b"Exif\0\0" + described.tobytes().removeprefix(b"Exif\0\0"))


@pytest.mark.parametrize("options", [{}, {"optimize": True}, {"progressive": True}])
@pytest.mark.parametrize("before", [b"\xff\xe0", b"\xff\xc0", b"\xff\xc4", b"\xff\xda"])
def test_exif_counts_wherever_it_stands_before_the_scan(
    before, options, trained, served
):
    plain = encode(Image.fromarray(PIXELS), "JPEG", **options)
    if options.get("progressive"):
        before = before.replace(b"\xc0", b"\xc2")
    place = plain.index(before)
    encoded = plain[:place] + exif(6) + plain[place:]
    expected = np.rot90(photos.decode(plain), -1)
    for decode in (photos.decode, trained, served):
        close(decode(encoded), expected, 8)


def test_exif_behind_the_scan_or_in_xmp_does_not_count(trained, served):
    plain = encode(Image.fromarray(PIXELS), "JPEG")
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'
    for encoded in (
        plain + plain[:2] + exif(6) + plain[2:],
        plain[:2] + segment(0xE1, xmp) + plain[2:],
    ):
        for decode in (photos.decode, trained, served):
            close(decode(encoded), photos.decode(plain), 8)
    turned = encode(Image.fromarray(PIXELS), "TIFF", tiffinfo={700: xmp})
    close(photos.decode(turned), PIXELS)
    with Image.open(io.BytesIO(plain[:2] + segment(0xE1, xmp) + plain[2:])) as image:
        close(photos.decode(image), photos.decode(plain))


def test_a_second_exif_segment_counts_alike(trained, served):
    """They are joined, as Pillow does: the first may be empty, or a part."""
    plain = encode(Image.fromarray(PIXELS), "JPEG")
    content = exif(6)[10:]
    expected = np.rot90(photos.decode(plain), -1)
    for first in (0, 3, 9, len(content)):
        for last in (content[first:], content[first:] + exif(3)[10:]):
            parts = (
                segment(0xE1, b"Exif\0\0" + part) for part in (content[:first], last)
            )
            encoded = plain[:2] + b"".join(parts) + plain[2:]
            for decode in (photos.decode, trained, served):
                close(decode(encoded), expected, 8)


def test_fill_bytes_before_exif_change_nothing(trained, served):
    """Source: ITU-T T.81, section B.1.1.2."""
    plain = encode(Image.fromarray(PIXELS), "JPEG")
    encoded = plain[:2] + b"\xff\xff" + exif(6) + plain[2:]
    expected = np.rot90(photos.decode(plain), -1)
    for decode in (photos.decode, trained, served):
        close(decode(encoded), expected, 8)


def test_exif_that_a_graph_does_not_reach_is_refused(trained, served):
    plain = encode(Image.fromarray(PIXELS), "JPEG")
    encoded = plain[:2] + 300 * segment(0xE2, b"profile") + exif(6) + plain[2:]
    assert trained(encoded).shape == photos.decode(encoded).shape != PIXELS.shape
    with pytest.raises(Exception, match="too many segments"):
        served(encoded)


def test_training_says_why_a_photo_is_refused(trained):
    floats = gray_tiff(np.zeros((4, 4), "<f4").tobytes(), 32, 4, 4, kind=3)
    with pytest.raises(Exception, match="has values of float32: save it with 8 or 16"):
        trained(floats)
    with pytest.raises(Exception, match="an image .it is cut.: save it as JPEG or PNG"):
        trained(DAMAGED["no end"])


def test_serve_bytes_refuses_other_formats(served):
    """TensorFlow takes the numbers of a palette for levels."""
    image = Image.fromarray(PIXELS)
    for other in (encode(image.quantize(16), "BMP"), encode(image, "BMP")):
        with pytest.raises(Exception, match="takes JPEG, PNG and GIF"):
            served(other)
