"""What transformers' image processors do with photos, by the settings they write.

`image_processor_fields.csv` has each field of them: what is read, what must have the
one value that is computed, and why others change nothing; `image_processors.csv` has
the classes.
"""

import json
import math
import os
import pathlib
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import read_json
from zoo.libraries import description, fields
from zoo.network.preparation import Preparation

if TYPE_CHECKING:
    from zoo.libraries.checkpoint import Checkpoint

# transformers 5 writes the second alone for models with a processor of texts as well.
FILES = ("preprocessor_config.json", "processor_config.json")
_NESTED = "image_processor"
# Pillow's numbers.
_RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
_FIELDS = fields.table("image_processor_fields.csv")
_READ = tuple(name for name in _FIELDS if _FIELDS[name].use == "read")
# The fields that name the class.
_NAMES = ("image_processor_type", "feature_extractor_type")


# The defaults of a class of transformers 5 that are not those of ViT's.
_CLASSES = {
    row.pop("class"): {name: json.loads(cell) for name, cell in row.items() if cell}
    for row in fields.rows("image_processors.csv")
}
# It keeps the aspect of a photo, in as many patches as fit.
_OF_ANY_SIZE = "Siglip2"
# It pads photos, or cuts them into several.
_OF_MASKS, _ONLY_OF_MASKS = "Eomt", ("do_pad", "do_split_image")


class Inputs(NamedTuple):
    """What a model's photos become: mean and deviation in [0, 1], and preparation."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    preparation: str | None


def read(folder: pathlib.Path, defaults: tuple[tuple, tuple], name: str) -> Inputs:
    """Returns what the image processor in a folder does.

    Args:
        folder: that of the file with the arrays.
        defaults: mean and deviation where there is no file of a processor.
        name: a key of `_CLASSES`, for a file that names none.
    """
    said = {file: _complete(file, table, name) for file, table in _tables(folder)}
    inputs = {file: _inputs(file, settings) for file, settings in said.items()}
    if len({*inputs.values()}) > 1:
        (file, one), (beside, other) = said.items()
        fields.refuse_differences(file, one, beside.name, other)
    # The last has priority, and is the one that transformers 5 writes.
    mean, std = defaults
    return [Inputs(mean, std, None), *inputs.values()][-1]


def write(checkpoint: "Checkpoint") -> dict[str, Any]:
    """Returns the settings of the processor nearest to what a checkpoint says."""
    semantics = checkpoint.semantics
    said = Preparation.nearest(checkpoint.head.preparation, "transformers")
    height, width = checkpoint.image_size
    sides = {"height": height, "width": width}
    settings = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": sides,
        "resample": _RESAMPLING.index(said.interpolation),
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": semantics.input_mean,
        "image_std": semantics.input_std,
    }
    if checkpoint.config.num_queries:
        settings["image_processor_type"] = "EomtImageProcessor"
    bigger = {name: math.floor(side / said.share) for name, side in sides.items()}
    if said.fit == "crop" or said.share != 1:
        settings |= {"do_center_crop": True, "crop_size": sides, "size": bigger}
    if said.fit == "crop":
        # It knows the shorter side alone, which decides for square images.
        settings["image_processor_type"] = "CLIPImageProcessor"
        settings["size"] = {"shortest_edge": min(bigger.values())}
    elif said.share != 1:
        settings["image_processor_type"] = "DeiTImageProcessor"
    return settings


def _tables(folder):
    """Returns [(file, settings)] of the files that have settings of photos.

    As transformers reads them: what is nested counts alone, and is not completed by the
    other file. It passes over a processor_config.json where nothing is nested, which
    most of these are right for; one with fields of photos is compared, or read.
    """
    own, both = (folder / name for name in FILES)
    tables = [(own, read_json(own))] if os.path.lexists(own) else []
    outer = read_json(both)
    nested = outer.get(_NESTED)
    if nested is None and not outer.keys().isdisjoint(_READ):
        nested = outer
    if nested is None:
        return tables
    if not isinstance(nested, dict):
        raise CheckpointError(
            f"{both} has an {_NESTED} of {brief(nested)}, which is no table: copy the "
            "file again."
        )
    return [*tables, (both, nested)]


def _complete(file, settings, name):
    """Returns the settings that are read, with the defaults of the class."""
    # Steps begin with do_: one that is left out changes nothing, whatever it is.
    fields.check(
        file,
        {
            field: value
            for field, value in settings.items()
            if field in _FIELDS or value is not False or not field.startswith("do_")
        },
        _FIELDS,
    )
    said = {
        field: settings[field] for field in _READ if settings.get(field) is not None
    }
    field = next(filter(said.__contains__, _NAMES), None)
    class_ = name if field is None else _class_of(said[field])
    if class_ not in _CLASSES:
        raise CheckpointError(
            f"{file} has an {field} of {brief(said[field])}, which is not known: write "
            "the class that does the same with photos, such as ViTImageProcessor."
        )
    if said.get("rescale_offset") and class_ != "EfficientNet":
        raise CheckpointError(
            f"{file} has rescale_offset, which only an EfficientNetImageProcessor "
            "knows: correct its image_processor_type, or take the line out."
        )
    complete = fields.complete(_CLASSES[class_] | said, _FIELDS)
    if class_ != _OF_MASKS:
        asked = [name for name in _ONLY_OF_MASKS if complete[name]]
        fields.refuse(file, [f"{name}=True (only false)" for name in asked])
    complete[_NAMES[0]] = class_
    del complete[_NAMES[1]]
    mean, std = description.channels(file, ("image_mean", "image_std"), complete)
    square = complete["default_to_square"]
    sizes = {
        "size": _sides(complete["size"], square),
        "crop_size": _sides(complete["crop_size"], True),
    }
    return complete | {"image_mean": mean, "image_std": std, **sizes}


def _class_of(name):
    """Returns the class of a processor, without what all names of them end in."""
    for ending in ("Fast", "Pil", "ImageProcessor", "FeatureExtractor"):
        name = name.removesuffix(ending)
    return name


def _inputs(file, settings):
    """Returns mean and deviation of images in [0, 1], and the preparation."""
    mean, std = settings["image_mean"], settings["image_std"]
    again = std
    if not settings["do_normalize"]:
        mean, std = (0.0,) * len(mean), (1.0,) * len(std)
    if settings["image_processor_type"] == "EfficientNet" and settings["include_top"]:
        # It divides by the deviation once more.
        std = tuple(one * other for one, other in zip(std, again, strict=True))
    scale, offset = 255.0, 0.0
    if settings["do_rescale"]:
        # 255 * (1 / 255) is 1, but other factors need not be exact.
        scale = 255 * settings["rescale_factor"]
        offset = 1.0 if settings["rescale_offset"] else 0.0
    preparation = _preparation(settings)
    if preparation is None and settings["image_processor_type"] != _OF_ANY_SIZE:
        description.warn_of_fit(file)
    return Inputs(
        tuple((m + offset) / scale for m in mean),
        tuple(s / scale for s in std),
        preparation,
    )


def _preparation(settings):
    """Returns how photos come to the size, None where it is another way."""
    size, class_ = settings["size"], settings["image_processor_type"]
    if size is None or class_ == _OF_ANY_SIZE or not settings["do_resize"]:
        return None
    if any(settings[name] for name in _ONLY_OF_MASKS):
        return None
    is_convnext = class_ == "ConvNext"
    (*sides, shorter), crops = size, settings["do_center_crop"]
    crop = settings["crop_size"][:2] if crops else sides
    if is_convnext and shorter:
        # The size is what is cut out; large images are squashed.
        small = sides[0] < 384
        crop, shorter = sides, small
        share = settings["crop_pct"]
        sides = [int(side / share) if small else side for side in sides]
    if shorter and not crops and not is_convnext:
        return None
    shares = {_share(part, side) for part, side in zip(crop, sides, strict=True)}
    if None in shares or len(shares) > 1:
        return None
    fit = "crop" if shorter else "squash"
    interpolation = _RESAMPLING[settings["resample"]]
    return str(Preparation("transformers", fit, interpolation, shares.pop()))


def _sides(size, square):
    """Returns height, width, and whether only the shorter side is said.

    None where both sides follow from the photo in another way.
    """
    if isinstance(size, (list, tuple)):
        return (*size, False)
    if isinstance(size, int):
        return size, size, not square
    said = {name: side for name, side in size.items() if side is not None}
    if said.keys() == {"height", "width"}:
        return said["height"], said["width"], False
    if said.keys() == {"shortest_edge"}:
        return said["shortest_edge"], said["shortest_edge"], True
    return None


def _share(part, side):
    """Returns the shortest number by which a part is what was cut out of a side."""
    for digits in range(1, 17):
        share = round(part / side, digits)
        if 0.1 <= share <= 1 and math.floor(part / share) == side:
            return share
    return None
