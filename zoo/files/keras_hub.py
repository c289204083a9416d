"""Weights of keras-hub's `ViTBackbone` and `ViTImageClassifier`."""

import pathlib
import re

from zoo.files import description, fields
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.files.h5 import H5
from zoo.head import Head
from zoo.network import Semantics
from zoo.preparation import Preparation

COLUMN = "keras_hub"
# Keras's "gelu", which keras-hub uses, is the exact one.
DEFAULTS = Semantics(activation="gelu")

_CONFIG = "config.json"
_CONVERTERS = ("preprocessor.json", "image_converter.json")
_TASK = "task.json"
_TASK_WEIGHTS = "task.weights.h5"
_TYPES = {
    name: fields.Field("read", type=type_)
    for type_, names in {
        "text": ("class_name", "pooling", "interpolation"),
        "flag": ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "antialias"),
        "table": ("config", "backbone", "image_converter"),
        "count": ("hidden_dim", "num_layers", "mlp_dim"),
        "shape": ("image_shape",),
        "sides": ("patch_size", "image_size"),
        "positive": ("layer_norm_epsilon",),
        "deviations": ("scale",),
        "means": ("offset",),
    }.items()
    for name in names
}
# The defaults of keras-hub's converters, which write all of these.
_FIT = {
    "crop_to_aspect_ratio": True,
    "pad_to_aspect_ratio": False,
    "interpolation": "bilinear",
    "antialias": False,
}
# keras-hub's names and Pillow's, whose kernel is always widened for smaller sizes.
_WIDENED = {"bilinear": "bilinear", "bicubic": "bicubic", "lanczos3": "lanczos"}
_OTHERS = dict.fromkeys(
    ("height", "width", "bounding_box_format", "data_format", "dtype", "name",
     "trainable"),
    fields.Field("of sizes, boxes, axes and layers"),
)  # fmt: skip
BESIDE = (_CONFIG, *_CONVERTERS, _TASK, _TASK_WEIGHTS)
KEYS = re.compile("layers/vi_t_patching_and_embedding/")
REASONS: dict[str, str] = {}
SHARED_BIASES = None
_BACKBONE = re.compile(r"(?:.*/)?(layers/vi_t_(?:patching_and_embedding|encoder)/.*)")
_BLOCK = re.compile(r"(?<=/vi_t_encoder_block)(?:_([0-9]+))?(?=/)")
# Of training, where the model was compiled or has dropout.
_TRAINING = re.compile(r"(.*/)?(optimizer|seed_generator|metrics|loss_tracker)/")
_PRIVATE = re.compile(r"(?<=/mha/)_(?=\w+_dense/)")
# The last dense layer is the head; one before it is the intermediate one.
_DENSE = re.compile(r"(?:.*/)?layers/dense(_1)?/vars/([01])")


def column(keys) -> str:
    """Returns the column of `names.TABLE` that has the names of `select`."""
    return COLUMN


def joined(arrays: dict) -> tuple[dict, bool]:
    """Returns the arrays, and whether keys have biases where queries do."""
    return arrays, True


def companion(file) -> H5 | None:
    """Opens the file of a preset's head, beside that of its backbone, or None."""
    path = pathlib.Path(file.path)
    task = path.with_name(_TASK_WEIGHTS)
    return H5(task) if path.name != _TASK_WEIGHTS and task.exists() else None


def select(keys) -> dict[str, str]:
    """Returns {key: name in `names.TABLE`} of the model's arrays."""
    keys = [key for key in keys if not _TRAINING.match(key)]
    dense = {key: match for key in keys if (match := _DENSE.fullmatch(key))}
    two = any(match[1] for match in dense.values())
    chosen = {}
    for key in keys:
        name = _BACKBONE.sub(r"\1", key)
        name = _BLOCK.sub(lambda match: f"_{match[1] or 0}", name)
        chosen[key] = _PRIVATE.sub("", name)
    for key, match in dense.items():
        layer = "output_dense" if match[1] or not two else "intermediate_layer"
        chosen[key] = f"{layer}/vars/{match[2]}"
    return chosen


def describe(folder: pathlib.Path, sizes: dict[str, int]) -> Description:
    """Returns what a preset's settings say, keras-hub's defaults elsewhere."""
    file = folder / _CONFIG
    config = _settings(file)
    if "class_name" in config:
        if config["class_name"] not in ("ViTBackbone", "ViTImageClassifier"):
            raise CheckpointError(
                f"{file} describes a {config['class_name']}: only ViTBackbone and "
                "ViTImageClassifier are read."
            )
        config = _inside(file, config, "config")
        config = _inside(file, config, "backbone", "config") or config
    else:
        config = {}
    own = {name: sizes[name] for name in ("num_layers", "mlp_dim")}
    description.check_sizes(file, config, hidden_dim=sizes["hidden_size"], **own)
    task = _inside(folder / _TASK, _settings(folder / _TASK), "config")
    pooled = task.get("pooling", "token")
    if (pooled == "token") != sizes["class_token"] and "classes" in sizes:
        raise CheckpointError(
            f"{folder / _TASK} has pooling {pooled!r} "
            f"{'with' if sizes['class_token'] else 'without'} a class token, which is "
            "not supported."
        )
    converter_file, converter = _converter(folder)
    mean, std = _inputs(converter_file, converter)
    epsilon = config.get("layer_norm_epsilon", DEFAULTS.layer_norm_epsilon)
    network = Semantics(DEFAULTS.activation, epsilon, mean, std)
    height, width, _ = config.get("image_shape") or (None, None, None)
    shape = height and (height, width)
    grid = description.grid_of(shape, config.get("patch_size"))
    head = Head(preparation=_preparation(converter_file, converter))
    return Description(network, grid, head=head)


def _converter(folder):
    """Returns the preset's converter of photos: its file and settings, {} without."""
    for name in _CONVERTERS:
        file = folder / name
        outer = _inside(file, _settings(file), "config")
        found = _inside(file, outer, "image_converter", "config")
        settings = found or outer
        if settings.keys() & {"scale", "image_size", *_FIT}:
            # A field that is switched off changes nothing, whatever it is.
            said = {key: one for key, one in settings.items() if one is not False}
            fields.check(file, said, _TYPES | _OTHERS)
            return file, settings
    return None, {}


def _preparation(file, converter):
    """Returns how photos come to the size, None where nothing or another way is said.

    Pillow rounds to levels of 8 bits after each axis, and Keras once: a photo's are 0.3
    apart on average, at edges up to 13.
    """
    if converter.keys().isdisjoint(_FIT):
        return None
    crops, pads, interpolation, is_widened = (
        converter.get(key, default) for key, default in _FIT.items()
    )
    if not crops and not pads and converter.get("image_size", True):
        if is_widened and interpolation in _WIDENED:
            way = Preparation("transformers", "squash", _WIDENED[interpolation])
            return str(way)
        if interpolation == "bilinear" and not is_widened:
            return "squash"
    description.warn_of_fit(file)
    return None


def _inputs(file, settings):
    """Mean and deviation of the preset's converter, of images in [0, 1]."""
    if "scale" not in settings:
        return DEFAULTS.input_mean, DEFAULTS.input_std
    # Without a scale the network takes images in [0, 255].
    said = {"scale": 1.0, "offset": 0.0}
    said |= {key: settings[key] for key in said if settings.get(key) is not None}
    offsets, scales = description.channels(file, ("offset", "scale"), said)
    std = [1 / (255 * scale) for scale in scales]
    mean = [-offset * s for offset, s in zip(offsets, std, strict=True)]
    # From -1 and 1/127.5, rounding leaves them next to 0.5.
    return tuple(round(m, 9) for m in mean), tuple(round(s, 9) for s in std)


def _settings(file):
    settings = description.read_json(file)
    fields.check_types(file, settings, _TYPES)
    return settings


def _inside(file, settings, *names):
    """Returns a table inside settings, {} where there is none."""
    for name in names:
        settings = settings.get(name) or {}
        fields.check_types(file, settings, _TYPES)
    return settings
