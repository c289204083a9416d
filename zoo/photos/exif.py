"""EXIF orientation of photos: how they are turned to stand upright."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

_HEADER = b"Exif\0\0"
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_ORIENTATION, _ENTRY = 0x0112, 12
_KINDS = {3: "H", 4: "I"}


def orientation(exif: bytes) -> int:
    """Returns the orientation that EXIF states, 1 to 8; 1, upright, if it has none.

    `exif` is the content of the segment of a JPEG or the chunk of a PNG.

    Source: Exif 2.32 (CIPA DC-008), sections 4.6.2 and 4.6.4.
    """
    tiff = bytes(exif).removeprefix(_HEADER)
    order = _ORDERS.get(tiff[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, start)
        for place in range(start + 2, start + 2 + count * _ENTRY, _ENTRY):
            tag, kind = struct.unpack_from(f"{order}HH", tiff, place)
            if tag == _ORIENTATION and kind in _KINDS:
                (turn,) = struct.unpack_from(order + _KINDS[kind], tiff, place + 8)
                return turn if 1 <= turn <= 8 else 1
    except struct.error:
        pass  # it is cut short
    return 1


def upright(image: Image.Image, turn: int) -> Image.Image:
    """Returns a `PIL.Image.Image` turned or mirrored as an orientation says."""
    from PIL.Image import Transpose

    ways = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(ways[turn]) if turn in ways else image
