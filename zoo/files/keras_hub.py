"""Weights of keras-hub's `ViTBackbone` and `ViTImageClassifier`."""

from __future__ import annotations

import pathlib
import re

from zoo.files import description, names
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.files.h5 import H5
from zoo.network import Semantics
from zoo.released_names import BLOCK, POSITION_EMBEDDING

COLUMN = "keras_hub"
# Keras's "gelu", which keras-hub uses, is the exact one.
DEFAULTS = Semantics(activation="gelu")

_CONFIG = "config.json"
_CONVERTERS = ("preprocessor.json", "image_converter.json")
_TASK = "task.json"
_TASK_WEIGHTS = "task.weights.h5"
BESIDE = (_CONFIG, *_CONVERTERS, _TASK, _TASK_WEIGHTS)
KEYS = re.compile("layers/vi_t_patching_and_embedding/")
_BACKBONE = re.compile(r"(?:.*/)?(layers/vi_t_(?:patching_and_embedding|encoder)/.*)")
_BLOCK = re.compile(r"(?<=/vi_t_encoder_block)(?:_([0-9]+))?(?=/)")
# Of training, where the model was compiled or has dropout.
_TRAINING = re.compile(r"(.*/)?(optimizer|seed_generator|metrics|loss_tracker)/")
_PRIVATE = re.compile(r"(?<=/mha/)_(?=\w+_dense/)")
# The last dense layer is the head; one before it is the intermediate one.
_DENSE = re.compile(r"(?:.*/)?layers/dense(_1)?/vars/([01])")


def companion(file) -> H5 | None:
    """Opens the file of a preset's head, beside that of its backbone, or None."""
    path = pathlib.Path(file.path)
    task = path.with_name(_TASK_WEIGHTS)
    return H5(task) if path.name != _TASK_WEIGHTS and task.is_file() else None


def select(keys) -> tuple[dict[str, str], list[str]]:
    """Returns {key: name in `names.TABLE`} of the model's arrays, and problems."""
    keys = [key for key in keys if not _TRAINING.match(key)]
    dense = [match for match in map(_DENSE.fullmatch, keys) if match]
    two = any(match[1] for match in dense)
    chosen = {}
    for key in keys:
        name = _BACKBONE.sub(r"\1", key)
        name = _BLOCK.sub(lambda match: f"_{match[1] or 0}", name)
        name = _PRIVATE.sub("", name)
        match = _DENSE.fullmatch(key)
        if match:
            head = bool(match[1]) or not two
            layer = "output_dense" if head else "intermediate_layer"
            name = f"{layer}/vars/{match[2]}"
        chosen[key] = name
    return chosen, []


def arrange(arrays: dict) -> dict:
    """Returns the arrays with the first axis of the position embedding."""
    name = names.foreign_name(COLUMN, POSITION_EMBEDDING)
    table = arrays.get(name)
    if table is None or table.ndim != 2:
        return arrays
    return {**arrays, name: table.reshape((1, *table.shape))}


def num_heads(arrays: dict) -> int:
    """Returns the number of heads in the shape of a query kernel."""
    query = f"{BLOCK}_0/MultiHeadDotProductAttention_1/query/kernel"
    return arrays[names.foreign_name(COLUMN, query)].shape[1]


def describe(folder: pathlib.Path, sizes: dict[str, int]) -> Description:
    """Returns what a preset's settings say, keras-hub's defaults elsewhere."""
    file = folder / _CONFIG
    config = description.read_json(file)
    if "class_name" in config:
        if config["class_name"] not in ("ViTBackbone", "ViTImageClassifier"):
            raise CheckpointError(
                f"{file} describes a {config['class_name']}: only ViTBackbone and "
                "ViTImageClassifier are read."
            )
        config = config["config"]
        config = config.get("backbone", {}).get("config", config)
    else:
        config = {}
    description.check_sizes(
        file,
        config,
        hidden_dim=sizes["hidden_size"],
        num_layers=sizes["num_layers"],
        mlp_dim=sizes["mlp_dim"],
    )
    task = description.read_json(folder / _TASK).get("config", {})
    pooled = task.get("pooling", "token")
    if (pooled == "token") != sizes["class_token"] and "classes" in sizes:
        raise CheckpointError(
            f"{folder / _TASK} has pooling {pooled!r} "
            f"{'with' if sizes['class_token'] else 'without'} a class token, which is "
            "not supported."
        )
    mean, std = _inputs(folder)
    network = description.network_of(
        activation=DEFAULTS.activation,
        layer_norm_epsilon=config.get(
            "layer_norm_epsilon", DEFAULTS.layer_norm_epsilon
        ),
        input_mean=mean,
        input_std=std,
    )
    shape = config.get("image_shape")
    if shape is not None:
        height, width, _ = shape
        shape = (height, width)
    return Description(network, description.grid_of(shape, config.get("patch_size")))


def _inputs(folder):
    """Mean and deviation of the preset's converter, of images in [0, 1]."""
    for name in _CONVERTERS:
        settings = description.read_json(folder / name).get("config", {})
        settings = settings.get("image_converter", {}).get("config", settings)
        if "scale" in settings:
            break
    else:
        return DEFAULTS.input_mean, DEFAULTS.input_std
    # Without a scale the network takes images in [0, 255].
    scales = _three(1.0 if settings["scale"] is None else settings["scale"])
    offsets = _three(settings.get("offset") or 0.0)
    std = [1 / (255 * scale) for scale in scales]
    mean = [-offset * s for offset, s in zip(offsets, std, strict=True)]
    # From -1 and 1/127.5, rounding leaves them next to 0.5.
    return tuple(round(m, 9) for m in mean), tuple(round(s, 9) for s in std)


def _three(value):
    return value if isinstance(value, list) else [value] * 3
