"""Photos as files, byte for byte where no library writes such a one."""

import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "photos"
HEIGHT, WIDTH = 20, 33


def picture(height=HEIGHT, width=WIDTH, seed=0):
    """A smooth image whose parts all differ."""
    pixels = np.random.RandomState(seed).randint(0, 256, (4, 5, 3), np.uint8)
    return np.asarray(Image.fromarray(pixels).resize((width, height)))


def golden(name):
    """Returns the bytes of a file and its pixels."""
    with np.load(GOLDENS / "pixels.npz") as pixels:
        return (GOLDENS / name).read_bytes(), pixels[name]


PIXELS = picture()
XMP = b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="6"/>'
# EXIF's orientations, as functions of pixels that stand upright.
TURNS = {
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: np.swapaxes(pixels, 0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.swapaxes(np.rot90(pixels, 2), 0, 1),
    8: np.rot90,
}


def close(found, pixels, most=0):
    assert (found.dtype, found.shape) == ("uint8", pixels.shape)
    assert np.abs(found.astype(int) - pixels).max() <= most


def encode(image, file_format, mode=None, turn=None, **options):
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    if turn is not None:
        options["exif"] = Image.Exif()
        options["exif"][274] = turn
    stream = io.BytesIO()
    image.convert(mode or image.mode).save(stream, file_format, **options)
    return stream.getvalue()


# PNG

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind, content=b"", checksum=None):
    if checksum is None:
        checksum = zlib.crc32(kind + content)
    return struct.pack(">I4s", len(content), kind) + content + checksum.to_bytes(4)


ROWS = b"".join(b"\0" + row.tobytes() for row in PIXELS)
DATA = zlib.compress(ROWS)
IDAT = chunk(b"IDAT", DATA)


def png(*chunks, depth=8, colour=2, size=(WIDTH, HEIGHT), ways=(0, 0, 0), end=None):
    header = struct.pack(">IIBBBBB", *size, depth, colour, *ways)
    content = chunk(b"IHDR", header) + b"".join(chunks or (IDAT,))
    return SIGNATURE + content + (chunk(b"IEND") if end is None else end)


def png_of(values, significant=None):
    """A PNG of 16 bits with 1 to 4 channels."""
    height, width, channels = values.shape
    rows = values.astype(">u2").reshape(height, -1)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    bits = [chunk(b"sBIT", bytes([significant] * channels))] if significant else []
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    return png(*bits, chunk(b"IDAT", data), depth=16, colour=colour,
               size=(width, height))  # fmt: skip


# JPEG


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def exif(turn):
    described = Image.Exif()
    described[274] = turn
    return segment(0xE1, b"Exif\0\0" + described.tobytes().removeprefix(b"Exif\0\0"))


# TIFF


def directory(content, entries, order="<"):
    """A TIFF of content and entries, tag to numbers, or to (type, count, bytes)."""
    content += b"\0" * (len(content) % 2)
    place = 8 + len(content)
    after, behind = place + 2 + 12 * len(entries) + 4, b""
    packed = struct.pack(f"{order}H", len(entries))
    for tag, value in sorted(entries.items()):
        if not isinstance(value, tuple):
            numbers = np.atleast_1d(value)
            value = 4, len(numbers), numbers.astype(f"{order}u4").tobytes()
        kind, count, value = value
        packed += struct.pack(f"{order}HHI", tag, kind, count)
        if len(value) > 4:
            value, behind = (
                struct.pack(f"{order}I", after + len(behind)),
                behind + value,
            )
        packed += value.ljust(4, b"\0")
    start = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HI", 42, place)
    return start + content + packed + bytes(4) + behind


def tiff(values, order="<", planes=1, photometric=2, bits=16, turn=1, extra=(),
         kind=1, packed=False, more=()):  # fmt: skip
    """A TIFF of one strip, or of one per plane; `kind` 3 is of floats."""
    height, width, channels = values.shape
    stored = values if planes == 1 else np.moveaxis(values, 2, 0)
    letter = {1: "u", 2: "i", 3: "f"}[kind]
    content = stored.astype(f"{order}{letter}{bits // 8}").tobytes()
    if packed:
        content = zlib.compress(content)
    count = channels if planes == 2 else 1
    part = len(content) // count
    entries = {
        256: width, 257: height, 258: [bits] * channels, 259: 8 if packed else 1,
        262: photometric, 273: [8 + part * number for number in range(count)],
        274: turn, 277: channels, 278: height, 279: [part] * count, 284: planes,
        339: [kind] * channels,
    }  # fmt: skip
    entries |= {338: list(extra)} if extra else {}
    return directory(content, entries | dict(more), order)


# GIF

COLOURS = np.array([(k, 255 - k, k // 2) for k in range(256)], "uint8")
LOCAL = COLOURS[::-1].copy()


def gif(frame, place=(0, 0), size=None, background=0, transparent=None,
        local=None, palette=COLOURS):  # fmt: skip
    height, width = frame.shape
    image = Image.fromarray(frame.astype("uint8"))
    image.putpalette(COLOURS.tobytes())
    encoded = encode(image, "GIF", optimize=False)
    start = encoded.index(b"\x2c\0\0\0\0" + struct.pack("<HH", width, height))
    flags = 0xF7 if palette is not None else 0x70
    canvas = *(size or (width, height)), flags, background, 0
    parts = [b"GIF89a", struct.pack("<HHBBB", *canvas)]
    if palette is not None:
        parts.append(palette.tobytes())
    if transparent is not None:
        parts.append(bytes([0x21, 0xF9, 4, 1, 0, 0, transparent, 0]))
    flags = 0x80 | 7 if local is not None else 0
    parts.append(b"\x2c" + struct.pack("<HHHHB", *place, width, height, flags))
    if local is not None:
        parts.append(local.tobytes())
    return b"".join([*parts, encoded[start + 10 :]])
