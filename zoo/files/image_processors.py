"""What transformers' image processors do with photos, by the settings they write.

`image_processor_fields.csv` has each field of them: what is read, what must have the
one value that is computed, and why others change nothing.
"""

import csv
import math
import pathlib
from typing import NamedTuple

from zoo.files import description
from zoo.files.archive import CheckpointError
from zoo.preparation import Preparation
from zoo.text import brief

# transformers 5 writes the second alone for models with a processor of texts as well.
FILES = ("preprocessor_config.json", "processor_config.json")
_NESTED = "image_processor"
# Pillow's numbers.
_RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_FIELDS_FILE = pathlib.Path(__file__).with_name("image_processor_fields.csv")
with _FIELDS_FILE.open(encoding="utf-8", newline="") as _lines:
    _FIELDS = {row["field"]: row["use"] for row in csv.DictReader(_lines)}


class _Kind(NamedTuple):
    """The defaults of a class of image processors."""

    resample: int = 2
    crops: bool = False
    # Whether one number as the size means both sides, else the shorter one.
    square: bool = True


_CLIP = _Kind(3, True, False)
_KINDS = {
    "DeiT": _Kind(3, True),
    "Beit": _Kind(3),
    "CLIP": _CLIP,
    "ChineseCLIP": _CLIP,
    "Bit": _CLIP,
    "Siglip": _Kind(3, False, False),
    "ConvNext": _Kind(3, False, False),
    "EfficientNet": _Kind(3),
}


class Inputs(NamedTuple):
    """What a model's photos become: mean and deviation in [0, 1], and preparation."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    preparation: str | None


def read(folder: pathlib.Path, defaults) -> Inputs:
    """Returns what the image processor beside a file does.

    Args:
        folder: that of the file.
        defaults: mean and deviation where nothing says them.

    Raises:
        CheckpointError: two files say different things, or a setting is not known.
    """
    file, settings = _settings(folder)
    _check(file, settings)
    mean, std = _inputs(file, settings, defaults)
    return Inputs(mean, std, _preparation(file, settings))


def write(checkpoint) -> dict:
    """Returns the settings of the processor nearest to what a checkpoint says."""
    semantics, preparation = checkpoint.semantics, checkpoint.head.preparation
    height, width = checkpoint.image_size
    sides = {"height": height, "width": width}
    found = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": sides,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": semantics.input_mean,
        "image_std": semantics.input_std,
    }
    said = Preparation.of(preparation)
    if said is None:
        return found
    found["resample"] = _RESAMPLING.index(said.interpolation)
    bigger = {name: math.floor(side / said.share) for name, side in sides.items()}
    if said.fit == "crop" or said.share != 1:
        found |= {"do_center_crop": True, "crop_size": sides, "size": bigger}
    if said.fit == "crop":
        # It knows the shorter side alone, which decides for square images.
        found["image_processor_type"] = "CLIPImageProcessor"
        found["size"] = {"shortest_edge": min(bigger.values())}
    elif said.share != 1:
        found["image_processor_type"] = "DeiTImageProcessor"
    return found


def _settings(folder):
    """Returns the file of the settings, and these; {} where there are none."""
    own, both = (folder / name for name in FILES)
    settings, nested = description.read_json(own), description.read_json(both)
    inner = nested.get(_NESTED)
    if inner is None:
        return own, settings
    if not isinstance(inner, dict):
        raise CheckpointError(
            f"{both} has an {_NESTED} of {brief(inner)}, which is no table: copy the "
            "file again."
        )
    differences = [
        name
        for name in sorted(settings.keys() & inner.keys())
        if _FIELDS.get(name) == "read" and settings[name] != inner[name]
    ]
    if _kind(settings) == _kind(inner):
        # One class computes by Pillow, and one by torchvision.
        differences = [name for name in differences if not name.endswith("_type")]
    if settings and differences:
        raise CheckpointError(
            f"{own} and {both.name} say different things of {', '.join(differences)}: "
            "remove the one that the model was not trained with."
        )
    return both, {**settings, **inner}


def _check(file, settings):
    unknown = [
        f"{name}={brief(value)}"
        for name, value in settings.items()
        # What is not there or switched off changes nothing.
        if (name not in _FIELDS or _FIELDS[name] == "off")
        and value not in (None, False)
    ]
    if unknown:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(unknown)}."
        )
    names = ("image_mean", "image_std", "do_normalize", "rescale_factor", "do_rescale")
    description.refuse_null(
        file, [name for name in names if settings.get(name, 0) is None]
    )
    flags = ("do_normalize", "do_rescale", "do_resize", "do_center_crop", "include_top")
    flags += ("rescale_offset",)
    for name in flags:
        if not isinstance(settings.get(name) or False, bool):
            raise CheckpointError(
                f"{file} has a {name} of {brief(settings[name])}: only true and false "
                "are known."
            )
    if settings.get("rescale_offset") and _kind(settings) != "EfficientNet":
        raise CheckpointError(
            f"{file} has rescale_offset, which only an EfficientNetImageProcessor "
            "knows: correct its image_processor_type, or take the line out."
        )


def _kind(settings):
    """Returns the class of a processor, without what all names of them end in."""
    name = settings.get("image_processor_type", settings.get("feature_extractor_type"))
    name = str(name or "ViT")
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    return name


def _inputs(file, settings, defaults):
    """Mean and deviation of the image processor, of images in [0, 1]."""
    mean, std = (
        _channels(settings.get(name, default), len(default))
        for name, default in zip(("image_mean", "image_std"), defaults, strict=True)
    )
    again = std
    if not settings.get("do_normalize", True):
        mean, std = (0.0,) * len(mean), (1.0,) * len(std)
    if _kind(settings) == "EfficientNet" and settings.get("include_top", True):
        # It divides by the deviation once more.
        std = tuple(one * other for one, other in zip(std, again, strict=True))
    factor, offset = settings.get("rescale_factor", 1 / 255), 0.0
    scale = 255.0
    if settings.get("do_rescale", True):
        # 255 * (1 / 255) is 1, but other factors need not be exact.
        scale = 255 * factor
        offset = 1.0 if settings.get("rescale_offset") else 0.0
    if scale <= 0:
        raise CheckpointError(
            f"{file} has a rescale_factor of {brief(factor)}: it is above 0."
        )
    return tuple((m + offset) / scale for m in mean), tuple(s / scale for s in std)


def _channels(value, count):
    return (value,) * count if isinstance(value, (int, float)) else tuple(value)


def _preparation(file, settings):
    """Returns how photos come to the size, None where it is not said or another way."""
    name, size = _kind(settings), settings.get("size")
    kind = _KINDS.get(name, _Kind())
    resample = settings.get("resample", kind.resample)
    if size is None or resample is None or not settings.get("do_resize", True):
        return None
    if resample not in range(len(_RESAMPLING)):
        raise CheckpointError(
            f"{file} has a resample of {brief(resample)}: only 0 to "
            f"{len(_RESAMPLING) - 1} are known."
        )
    sides, shorter = _sides(size, kind.square)
    crops = settings.get("do_center_crop", kind.crops)
    crop, _ = _sides(settings.get("crop_size") or 224, True) if crops else (sides, None)
    if name == "ConvNext" and shorter:
        # The size is what is cut out; large images are squashed.
        small = sides[0] < 384
        share = settings.get("crop_pct") or 224 / 256
        crop, shorter = sides, small
        sides = [int(side / share) if small else side for side in sides]
    if not sides or not crop or (shorter and not crops and name != "ConvNext"):
        return None
    shares = {_share(part, side) for part, side in zip(crop, sides, strict=True)}
    if None in shares or len(shares) > 1:
        return None
    fit = "crop" if shorter else "squash"
    interpolation = _RESAMPLING[resample]
    return str(Preparation("transformers", fit, interpolation, shares.pop()))


def _sides(size, square):
    """Returns (height, width) or None, and whether only the shorter side is said."""
    if isinstance(size, (list, tuple)) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    if isinstance(size, int):
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    if not isinstance(size, dict) or size.keys() - {"height", "width", "shortest_edge"}:
        return None, False
    shorter = size.get("shortest_edge")
    found = (shorter, shorter) if shorter else (size.get("height"), size.get("width"))
    is_size = all(type(side) is int and side > 0 for side in found)
    return (found if is_size else None), bool(shorter)


def _share(part, side):
    """Returns the shortest number by which a part is what was cut out of a side."""
    for digits in range(1, 17):
        share = round(part / side, digits)
        if 0.1 <= share <= 1 and math.floor(part / share) == side:
            return share
    return None
