"""Values of more than 8 bits, of PNG and TIFF files, as levels of 8 bits."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from zoo.network.preparation import FEWEST_BITS, MOST_BITS, ModelBits

if TYPE_CHECKING:
    from PIL import Image

# Cameras and scanners of 12 or 10 bits end here.
_USUAL_TOP = 2**12


class LevelsError(ValueError):
    """The values of a file are not of the bits that somebody says."""


class DarkPhotoWarning(UserWarning):
    """The values of a photo use a few of its 16 bits, so that it is nearly black."""

    # A data set may have a million: commands show the first, and count the others.
    is_of_photo = True


def array(image: Image.Image) -> np.ndarray:
    """Returns the array of a `PIL.Image.Image`, or raises why it cannot be decoded."""
    image.load()  # NumPy would make an array of an object
    return np.asarray(image)


def are_high_bytes_enough(
    high: np.ndarray, bits: int | None = None, significant: int | None = None
) -> bool:
    """Whether the high bytes of values of 16 bits are the levels that they show."""
    uses_all = (bits or significant or MOST_BITS) == MOST_BITS
    return uses_all and (bits is not None or high.max() >= _USUAL_TOP >> 8)


def joined(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns values of 16 bits by their high and low bytes."""
    return (high.astype("uint16") << 8) | low


def to_bytes(
    values: np.ndarray,
    name: str,
    bits: int | None = None,
    significant: int | None = None,
) -> np.ndarray:
    """Returns integers of up to 16 bits as a uint8 array of the same shape.

    Args:
        values: array of integers.
        name: the file in messages.
        bits: the bits of the values as the caller or the model says.
        significant: those of the file's sBIT chunk. By the standard the values are
            scaled to 16 bits all the same; cameras leave them as they are.

    Raises:
        LevelsError: there are values of more bits.
    """
    top = int(values.max())
    likely = next((bits for bits in (8, 10, 12) if top < 2**bits), MOST_BITS)
    if bits is None and significant is not None and significant < MOST_BITS:
        bits = MOST_BITS if _is_scaled(values, top, significant) else significant
    elif bits is None and significant is None and 0 < top < _USUAL_TOP:
        warnings.warn(
            f"{name} has values of {likely} bits in 16, so it is nearly black: say so "
            f"with bits={likely}.",
            DarkPhotoWarning,
            stacklevel=2,
        )
    bits = bits or MOST_BITS
    if top >= 2**bits:
        said, remedy = f"bits={bits}", f"leave out bits={bits} for it, or "
        if isinstance(bits, ModelBits):
            said, remedy = f"the model's {bits} bits", ""
        raise LevelsError(
            f"{name} has values up to {top:,}, more than {said}: {remedy}pass "
            f"bits={likely}."
        )
    if bits < FEWEST_BITS:
        return (values.astype("int32") * 255 // (2**bits - 1)).astype("uint8")
    return (values >> (bits - FEWEST_BITS)).astype("uint8")


def _is_scaled(values, top, significant):
    """Whether the values of a PNG with an sBIT chunk are scaled to 16 bits.

    Scaled values of an image that is not nearly black have zeros below the significant
    bits. A nearly black one is taken as not scaled: cameras write such files.
    """
    if top >= 2**significant:
        return True
    unused = values & (2 ** (MOST_BITS - significant) - 1)
    return top >= _USUAL_TOP and not np.any(unused)
