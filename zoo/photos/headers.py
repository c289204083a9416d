"""What the header of a photo declares: format, size, bits and channels."""

import io
import os
import struct
from typing import NamedTuple

from zoo.common.regular_files import open_regular
from zoo.photos import exif, files, png

# The types of colour of PNG, and how many channels each shows.
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 1, 6: 3}
_TIFF_BITS, _TIFF_WIDTH, _TIFF_HEIGHT, _TIFF_ORIENTATION = 258, 256, 257, 274


class Header(NamedTuple):
    """The format of a photo, its size in pixels, and bits and number of its channels.

    Transparency is no channel; a palette counts as three.
    """

    format: str
    width: int
    height: int
    bits: int
    channels: int


def header(encoded: bytes) -> Header:
    """Returns the header of a file that `zoo.photos.decode` reads.

    Raises an error of any kind for other files.
    """
    if encoded.startswith(png.START):
        width, height, bits, colour = struct.unpack_from(">IIBB", encoded, 16)
        channels = _PNG_CHANNELS.get(colour, 3)
        return Header("PNG", width, height, 8 if colour == 3 else bits, channels)
    with files.opened(io.BytesIO(encoded)) as image:
        kind = "JPEG" if image.format == "MPO" else image.format
        bits = 8
        if kind == "TIFF":
            bits = max(image.tag_v2.get(_TIFF_BITS, (1,)))
        is_gray = image.mode.partition(";")[0] in ("1", "L", "LA", "I", "F")
        width, height = image.size
        return Header(kind, width, height, bits, 1 if is_gray else 3)


def upright_size(path: str | os.PathLike) -> tuple[int, int]:
    """Returns the (height, width) of what `zoo.photos.decode` returns of a file.

    Nothing is decoded. Raises an error of any kind for files that are not read.
    """
    with open_regular(path) as file:
        if file.read(len(png.START)) == png.START:
            width, height, turn = _of_png(file)
        else:
            width, height, turn = _of_other(file)
    return (width, height) if turn >= 5 else (height, width)


def _of_png(file):
    """Returns the width, the height and the orientation; skips the pixels."""
    turn, kind = None, b""
    while turn is None and kind != b"IEND":
        length, kind = struct.unpack(">I4s", file.read(8))
        if kind == b"IHDR":
            width, height = struct.unpack_from(">II", file.read(length))
        elif kind == b"eXIf":
            turn = exif.orientation(file.read(length))
        else:
            file.seek(length, os.SEEK_CUR)
        file.seek(4, os.SEEK_CUR)  # the checksum
    return width, height, turn or 1


def _of_other(file):
    with files.opened(file) as image:
        if image.format == "TIFF":
            # Releases of Pillow differ in whether the size is the upright one.
            tags = image.tag_v2
            turn = tags.get(_TIFF_ORIENTATION, 1)
            return tags[_TIFF_WIDTH], tags[_TIFF_HEIGHT], turn
        return *image.size, exif.orientation(image.info.get("exif") or b"")
