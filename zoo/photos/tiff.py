"""TIFF files: the values of their first page."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

from zoo.common import limits
from zoo.photos import png, sixteen_bits

if TYPE_CHECKING:
    from PIL import Image, TiffImagePlugin

_BITS_PER_SAMPLE, _PHOTOMETRIC, _FILL_ORDER, _PLANES = 258, 262, 266, 284
_SAMPLES_PER_PIXEL, _EXTRA_SAMPLES, _SAMPLE_FORMAT = 277, 338, 339
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_LENGTH = 273, 322, 323
_WHITE_IS_ZERO, _APART = 0, 2  # of _PHOTOMETRIC and _PLANES
# Orders of bytes in Pillow's raw modes: little, big and, after libtiff, the machine's.
_OTHER = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}
# Raw modes that are the bytes of a file: colours are not divided by transparency.
_DEEP = ("RGB", "RGBX", "RGBA", "CMYK", *"RGBA")


def opened(
    image: TiffImagePlugin.TiffImageFile,
    file: IO[bytes],
    name: str,
    bits: int | None,
) -> Image.Image:
    """Returns the image of a TIFF file that Pillow has opened, of 8 bits and upright.

    `file` is the open file, `name` and `bits` are as in `files.decoded`.
    """
    from PIL import Image

    _check_size(image)
    _prepare(image)
    if image.mode.startswith("I;16"):
        bits = _own_bits(image) or bits
        values = sixteen_bits.to_bytes(sixteen_bits.array(image), name, bits)
        return Image.fromarray(255 - values if is_negative(image) else values)
    if image.mode in ("I", "F"):
        raise sixteen_bits.LevelsError(
            f"{name} has values of {sixteen_bits.array(image).dtype}: save it with 8 "
            "or 16 bits."
        )
    if 16 in image.tag_v2.get(_BITS_PER_SAMPLE, ()):
        return _of_colours(image, file, name, bits)
    return image


def is_negative(image: Any) -> bool:
    """Whether values of 16 bits of a TIFF, which Pillow leaves as they are, are ink."""
    return image.format == "TIFF" and image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO


def _check_size(image):
    """Raises a TooLargeError for too large a page, or a tile, which may be larger."""
    tags = image.tag_v2
    samples = tags.get(_SAMPLES_PER_PIXEL, len(image.getbands()))
    bits = samples * max(tags.get(_BITS_PER_SAMPLE, (1,)))
    limits.check_photo_size(*image.size, bits)
    # In a file of strips only libtiff uses sizes of tiles.
    if _STRIP_OFFSETS in tags and all(tile[0] != "libtiff" for tile in image.tile):
        return
    sides = [tags.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_LENGTH)]
    if not all(isinstance(side, int) for side in sides):
        raise png.DamageError("tiles of no whole number of pixels")
    limits.check_photo_size(*sides, bits)


def _prepare(image):
    # Pillow turns TIFF as it loads, by XMP, too.
    image.info.pop("xmp", None)
    if image.tag_v2.get(_PLANES) != _APART or image.tile[0][0] != "raw":
        return
    # Pillow takes a single letter of the raw mode of planes, such as "RGB;16L", and has
    # none for planes that are not colours.
    image.tile = [tile for tile in image.tile if tile[3][0].isalpha()]
    whole, _, order = _raw_mode(image).partition(";")
    ending = f";{order}" if order else ""
    _set_raw_modes(
        image, lambda mode: (whole if len(image.getbands()) == 1 else mode) + ending
    )


def _raw_mode(image):
    from PIL.TiffImagePlugin import OPEN_INFO

    tags = image.tag_v2
    bits, extra = tags.get(_BITS_PER_SAMPLE, (1,)), tags.get(_EXTRA_SAMPLES, ())
    if extra and not any(extra):
        bits, extra = bits[: -len(extra)], ()
    key = (
        tags.prefix,
        tags.get(_PHOTOMETRIC, 0),
        tags.get(_SAMPLE_FORMAT, (1,))[:1],
        tags.get(_FILL_ORDER, 1),
        bits,
        extra,
    )
    return OPEN_INFO[key][1]


def _set_raw_modes(image, changed):
    tiles = []
    for tile in image.tile:
        content = (*tile[:3], (changed(tile[3][0]), *tile[3][1:]))
        # Named tuples since Pillow 11, plain ones before.
        tiles.append(getattr(tile, "_make", tuple)(content))
    image.tile = tiles


def _own_bits(image):
    """Returns the bits of gray values where these are less than 16."""
    bits = image.tag_v2.get(_BITS_PER_SAMPLE, (16,))[0]
    return bits if 8 < bits < 16 else None


def _of_colours(image, file, name, bits):
    """Returns the 8 bits that count, of colours of which Pillow has the high bytes."""
    from PIL import Image

    colours = slice(4 if image.mode == "CMYK" else 3)
    high = sixteen_bits.array(image)[..., colours]
    if sixteen_bits.are_high_bytes_enough(high, bits):
        return image
    file.seek(0)
    with Image.open(file, formats=["TIFF"]) as low:
        _prepare(low)
        modes = {tile[3][0] for tile in low.tile}
        are_planes = low.tag_v2.get(_PLANES) == _APART and low.tile[0][0] != "raw"
        if are_planes or not all(mode.partition(";")[0] in _DEEP for mode in modes):
            raise sixteen_bits.LevelsError(
                f"{name} has colours of 16 bits, of which the high 8 are not all: save "
                "it without compression or transparency."
            )
        # In the other order of bytes the low ones are the high ones.
        _set_raw_modes(low, lambda mode: mode[:-1] + _OTHER[mode[-1]])
        values = sixteen_bits.joined(high, sixteen_bits.array(low)[..., colours])
    values = sixteen_bits.to_bytes(values, name, bits)
    if image.mode == "CMYK":
        return Image.frombytes("CMYK", image.size, values.tobytes())
    return Image.fromarray(values)
