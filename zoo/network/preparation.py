"""How photos come to a model: to its size as other libraries do, and by which bits."""

import math
import operator
import re
from typing import NamedTuple

import numpy as np

from zoo.common.safe_text import brief

# The evaluation of the released code and of big_vision, see `zoo.photos.prepare`.
RELEASED = ("squash", "central crop")
FITS = ("crop", "squash")
INTERPOLATIONS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_FORM = re.compile(
    rf"(timm|transformers) ({'|'.join(FITS)}) ({'|'.join(INTERPOLATIONS)})"
    r"(?: (0\.[1-9]\d{0,16}))?"
)
# The bits that values in files of 16 bits may have.
FEWEST_BITS, MOST_BITS = 8, 16
# Bounds a photo that is resized before its centre is cut out: 200 MB.
_MOST_PIXELS = 2**26


class Preparation(NamedTuple):
    """What a preparation such as `"timm crop bicubic 0.9"` says.

    Attributes:
        library: `"timm"` or `"transformers"`, which round the place of a crop
            differently.
        fit: `"crop"`, which keeps the aspect of a photo, or `"squash"`.
        interpolation: one of `INTERPOLATIONS`, of Pillow, which widens its kernel
            where a photo gets smaller.
        share: float, how much of the sides of the resized photo the model's image
            has, which is cut out of its centre.
    """

    library: str
    fit: str
    interpolation: str
    share: float = 1.0

    @classmethod
    def of(cls, preparation: str | None) -> "Preparation | None":
        """Returns what a preparation says, None of `RELEASED` and of None."""
        parts = _FORM.fullmatch(preparation or "")
        if parts is None:
            return None
        library, fit, interpolation, share = parts.groups()
        return cls(library, fit, interpolation, float(share or 1))

    @classmethod
    def nearest(cls, preparation: str | None, library: str) -> "Preparation":
        """Returns what a library can do that is nearest to a preparation."""
        if preparation == "central crop":
            return cls(library, "crop", "box", 0.875)
        return cls.of(preparation) or cls(library, "squash", "bilinear")

    def __str__(self):
        words = f"{self.library} {self.fit} {self.interpolation}"
        return words if self.share == 1 else f"{words} {self.share}"


def is_preparation(preparation: object) -> bool:
    """Returns whether `zoo.photos.prepare` knows a preparation."""
    return isinstance(preparation, str) and bool(
        preparation in RELEASED or _FORM.fullmatch(preparation)
    )


def check_preparation(preparation: str) -> str:
    """Returns a preparation; raises a ValueError for what is none."""
    if not is_preparation(preparation):
        raise ValueError(
            f"preparation must be one of {', '.join(RELEASED)}, or like 'timm crop "
            f"bicubic 0.9' or 'transformers squash bilinear', got {brief(preparation)}."
        )
    return str(preparation)


class ModelBits(int):
    """Bits that a model says: those that a file says come before them.

    Bits that a person says are a plain int, and come before both.
    """


def check_bits(bits: int | None) -> int | None:
    """Returns bits, None or an int; raises a ValueError unless they are 8 to 16."""
    if bits is None or isinstance(bits, ModelBits):
        return bits
    try:
        number = operator.index(bits)
    except TypeError:
        number = 0
    if not FEWEST_BITS <= number <= MOST_BITS:
        raise ValueError(
            f"bits must be {FEWEST_BITS} to {MOST_BITS} or None, got {brief(bits)}."
        )
    return number


def asked_for(central_crop: bool | None, own: str) -> str:
    """Returns the preparation of a command: of its `--central_crop`, else the model's.

    `central_crop` is None where the flag is not given.
    """
    if central_crop is None:
        return own
    return "central crop" if central_crop else "squash"


def shows_all(preparation: str) -> bool:
    """Returns whether the model's image has all of a photo, and nothing is cut off."""
    said = Preparation.of(preparation)
    if said is None:
        return preparation == "squash"
    return said.fit == "squash" and said.share == 1


def resized(image: np.ndarray, size: tuple[int, int], preparation: str) -> np.ndarray:
    """Returns a photo at a model's size, as a preparation of a library says.

    It is a float32 array (*size, channels) in [0, 255], of an image of uint8 or floats
    in that range and a preparation that is none of `RELEASED`. A ValueError refuses
    photos so narrow that they would take much memory.

    Source:
        `transforms_imagenet_eval` of timm, and the image processors of transformers
        that compute by Pillow: equal to them. Those that compute by torchvision differ
        by one level of 255.
    """
    asked = Preparation.of(preparation)
    bigger = _bigger(image.shape[:2], size, asked)
    if math.prod(bigger) > _MOST_PIXELS:
        raise ValueError(
            f"A photo of {image.shape[0]:,} x {image.shape[1]:,} pixels would be "
            f"resized to {bigger[0]:,} x {bigger[1]:,}, of which its centre is taken: "
            "cut it out before."
        )
    top, left = (
        _start(side, part, asked.library)
        for side, part in zip(bigger, size, strict=True)
    )
    box = (left, top, left + size[1], top + size[0])
    return _by_pillow(image, bigger, asked.interpolation, box)


def _bigger(sides, size, asked):
    """Returns the (height, width) that a photo is resized to before the crop."""
    bigger = tuple(math.floor(side / asked.share) for side in size)
    if asked.fit == "squash":
        return bigger
    if bigger[0] == bigger[1]:
        short, long = min(sides), max(sides)
        longer = int(bigger[0] * long / short)
        return (longer, bigger[0]) if sides[0] == long else (bigger[0], longer)
    scale = min(side / new for side, new in zip(sides, bigger, strict=True))
    return tuple(round(side / scale) for side in sides)


def _start(side, part, library):
    # Python rounds halves to even numbers, as torchvision does here.
    return round((side - part) / 2) if library == "timm" else (side - part) // 2


def _by_pillow(image, size, interpolation, box):
    from PIL import Image

    method = Image.Resampling[interpolation.upper()]
    if image.dtype == np.uint8:
        channels = [image] if image.shape[2] == 3 else np.moveaxis(image, 2, 0)
    else:
        channels = np.moveaxis(image.astype("float32"), 2, 0)
    parts = []
    for channel in channels:
        picture = Image.fromarray(np.ascontiguousarray(channel))
        if picture.size != size[::-1]:
            picture = picture.resize(size[::-1], method)
        parts.append(np.asarray(picture.crop(box), "float32"))
    return parts[0] if parts[0].ndim == 3 else np.stack(parts, axis=2)
