"""Levels of gray and colours of more than 8 bits, of PNG and TIFF files."""

import struct
import warnings

import numpy as np

_FEWEST, _MOST = 8, 16  # bits
# Cameras and scanners of 12 or 10 bits end here.
_USUAL_TOP = 2**12
_BITS_PER_SAMPLE, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0
_GRAY_AND_ALPHA, _COLOURS = 4, (2, 6)


class LevelsError(ValueError):
    """The values of a file are not of the bits that somebody says."""


def check_bits(bits):
    """Raises a ValueError unless bits are None or an integer of 8 to 16."""
    if bits is None:
        return
    if not isinstance(bits, int) or not _FEWEST <= bits <= _MOST:
        raise ValueError(f"bits must be {_FEWEST} to {_MOST} or None, got {bits!r}.")


def bits_of_png(file) -> tuple[int, int, int | None]:
    """Reads the head of a PNG file, whose place stays as it was.

    Returns:
        Bits per sample, colour type, and the significant bits that its sBIT chunk has.

    Source: PNG specification, third edition, sections 11.2.1 and 11.3.2.4.
    """
    place = file.tell()
    file.seek(24)
    depth, colour = file.read(2)
    file.seek(33)
    significant = None
    while len(head := file.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        if kind == b"sBIT":
            count = 3 if colour in _COLOURS else 1
            significant = max(file.read(min(length, count)), default=0)
        if kind in (b"sBIT", b"PLTE", b"IDAT"):
            break
        file.seek(length + 4, 1)
    file.seek(place)
    return depth, colour, significant if significant in range(1, 17) else None


def of_colours(image, file, name, bits):
    """Returns the values of 16 bits of a PNG in colours, else None.

    Args:
        image: its `PIL.Image.Image`, upright, of which Pillow has the high bytes alone.
        file: the open file.
        name: str, the file in messages.
        bits: int or None, see `zoo.photos.decode`.

    Returns:
        int32 array (height, width, 3), None where the high bytes are all that counts.
    """
    depth, colour, significant = bits_of_png(file)
    if depth != 16 or colour not in (*_COLOURS, _GRAY_AND_ALPHA):
        return None
    high = np.asarray(image.convert("RGB"))
    is_dark = high.max() < _USUAL_TOP >> 8
    if not is_dark and (bits or significant or 16) == 16:
        return None
    if colour == _GRAY_AND_ALPHA:
        if not high.any() and bits is None and significant is None:
            return None
        raise LevelsError(
            f"{name} has 16 bits of gray and transparency, of which the high 8 are "
            "nearly black: save it without transparency."
        )
    from PIL import Image, ImageOps

    file.seek(0)
    with Image.open(file, formats=["PNG"]) as low:
        # The other order of bytes, of which Pillow keeps the low ones.
        low.tile = [(*low.tile[0][:3], low.tile[0][3].replace("16B", "16L"))]
        low = np.asarray(ImageOps.exif_transpose(low).convert("RGB"))
    return (high.astype("int32") << 8) | low


def bits_of_tiff(image) -> int | None:
    """Returns the bits of a TIFF file's values where these are less than 16."""
    bits = image.tag_v2.get(_BITS_PER_SAMPLE, (16,))[0]
    return bits if _FEWEST < bits < _MOST else None


def is_negative(image) -> bool:
    """Whether 0 is white in a TIFF file."""
    return image.tag_v2.get(_PHOTOMETRIC) == _WHITE_IS_ZERO


def to_bytes(values, name, bits=None, significant=None):
    """Returns values of up to 16 bits as a uint8 array of the same shape.

    Args:
        values: array of integers.
        name: str, the file in messages.
        bits: int or None, the bits of the values as the caller says.
        significant: int or None, those of the file's sBIT chunk. By the standard the
            values are scaled to 16 bits all the same; cameras leave them as they are.

    Raises:
        LevelsError: there are values of more bits.
    """
    values = values.astype("int32")
    top = int(values.max())
    if bits is None and significant is not None and significant < 16:
        lowest = 2 ** (16 - significant) - 1
        # Scaled values so small have zeros there.
        is_scaled = top >= 2**significant or not (values & lowest).any()
        bits = 16 if is_scaled else max(significant, _FEWEST)
    elif bits is None and significant is None and 0 < top < _USUAL_TOP:
        likely = next(bits for bits in (8, 10, 12) if top < 2**bits)
        warnings.warn(
            f"An image of 16 bits has values of {likely} bits, so it is nearly black: "
            f"say so with bits={likely} (--bits={likely}).",
            stacklevel=2,
        )
    bits = bits or 16
    if top >= 2**bits:
        raise LevelsError(f"{name} has values up to {top:,}, more than bits={bits}.")
    return (values >> (bits - 8)).astype("uint8")
