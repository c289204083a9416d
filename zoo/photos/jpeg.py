"""JPEG files: their segments, their end, and their ink."""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from zoo.common import limits
from zoo.photos import exif

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("JPEG", "MPO")  # Pillow's names
_START, _END, _SCAN, _APP1 = 0xD8, 0xD9, 0xDA, 0xE1
_END_MARKER = b"\xff\xd9"
# Baseline, extended and progressive frames with Huffman codes; and all others.
_USUAL_FRAMES = (0xC0, 0xC1, 0xC2)
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
# In the codes of a scan a zero or the number of a restart follows this byte.
_AFTER_CODES = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
# A whole scan decodes to the same pixels whichever of these follows.
_FILLERS = (64 * b"\0", 64 * b"\xaa")


def opened(image: Image.Image, file: IO[bytes]) -> Image.Image:
    """Returns the decoded image of a JPEG file that Pillow has opened.

    Pillow takes all CMYK to be inverted, as Adobe's programs write it. An OSError says
    that a scan is cut or missing.
    """
    from PIL import ImageChops

    image = _loaded(image, file)
    if is_negative(image):
        return ImageChops.invert(image)
    return image


def is_negative(image: Image.Image) -> bool:
    """Whether Pillow has inverted the ink of a JPEG that was not."""
    return (
        image.format in FORMATS and image.mode == "CMYK" and "adobe" not in image.info
    )


def plain_orientation(jpeg: bytes) -> int:
    """Returns the EXIF orientation of a plain JPEG, and 0 for any other.

    Plain is a whole file of gray or three colours that all decoders read alike.
    """
    turn, frames = None, 0
    for marker, content in segments(jpeg):
        if marker == _APP1 and content.startswith(b"Exif\0\0"):
            if turn is not None:
                return 0
            turn = exif.orientation(content)
        elif marker in _FRAMES:
            frames += 1
            if marker not in _USUAL_FRAMES or not _is_plain_frame(content):
                return 0
        elif marker == _SCAN:
            is_whole = jpeg.endswith(_END_MARKER) or any(
                marker == _END for marker, _ in segments(jpeg)
            )
            return (turn or 1) if frames == 1 and is_whole else 0
    return 0


def segments(jpeg: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the marker and the content of every segment, the codes of scans left out.

    It stops after the end marker, and before whatever is no segment.

    Source: ITU-T T.81, annex B.
    """
    place = 2 if jpeg[:2] == bytes([0xFF, _START]) else len(jpeg)
    while jpeg[place : place + 1] == b"\xff" and len(jpeg) > place + 1:
        marker = jpeg[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if marker == _END:
            yield marker, b""
            return
        length = int.from_bytes(jpeg[place + 2 : place + 4], "big")
        content = jpeg[place + 4 : place + 2 + length]
        if marker < 0xC0 or length < 2 or len(content) < length - 2:
            return
        yield marker, content
        place += 2 + length
        if marker == _SCAN:
            code_end = _AFTER_CODES.search(jpeg, place)
            place = code_end.end() - 2 if code_end else len(jpeg)


def _is_plain_frame(content):
    try:
        precision, height, width, components = struct.unpack_from(">BHHB", content)
    except struct.error:
        return False
    has_pixels = height > 0 and width > 0 and limits.is_photo_small(width, height)
    return precision == 8 and components in (1, 3) and has_pixels


def _loaded(image, file):
    """Returns an image whose pixels are decoded, be it without end marker."""
    from PIL import Image

    try:
        image.load()
        return image
    except OSError:
        file.seek(0)
        encoded = file.read()
        if not _has_every_scan(encoded):
            raise
        images = []
        for filler in _FILLERS:
            ended = io.BytesIO(encoded + filler + _END_MARKER)
            images.append(Image.open(ended, formats=["JPEG"]))
        if images[0].tobytes() != images[1].tobytes():
            raise
        return images[0]


def _has_every_scan(jpeg):
    """Whether all coefficients of all components are in a scan, to their last bit.

    Source: ITU-T T.81, sections B.2.2, B.2.3 and G.1.1.1.
    """
    missing = None
    for marker, content in segments(jpeg):
        if marker in _FRAMES:
            components = content[6 : 6 + 3 * content[5] : 3]
            missing = {component: {*range(64)} for component in components}
        elif marker == _SCAN and missing is not None:
            count = content[0]
            first, last, approximation = content[1 + 2 * count : 4 + 2 * count]
            if approximation & 15 == 0:
                for component in content[1 : 1 + 2 * count : 2]:
                    missing[component] -= {*range(first, last + 1)}
    return missing is not None and not any(missing.values())
