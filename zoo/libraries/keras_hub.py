"""Weights of keras-hub's `ViTBackbone` and `ViTImageClassifier`."""

import pathlib
import re
from collections.abc import Iterable

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError, OpenFile
from zoo.containers.h5 import H5
from zoo.containers.opening import Collected
from zoo.libraries import description, fields
from zoo.libraries.comparison import Shown
from zoo.libraries.description import Description
from zoo.libraries.library import Library
from zoo.network import ViTConfig
from zoo.network.head import Head
from zoo.network.preparation import Preparation

COLUMN = "keras_hub"
# Keras's "gelu", which keras-hub uses, is the exact one.
DEFAULTS = ViTConfig.released(activation="gelu")

_CONFIG = "config.json"
_CONVERTERS = ("preprocessor.json", "image_converter.json")
_TASK = "task.json"
_TASK_WEIGHTS = "task.weights.h5"
_FIELDS = fields.table("keras_hub_fields.csv")
# Their names of sizes, and ours.
_SIZES = {
    "hidden_dim": "hidden_size",
    "num_layers": "num_layers",
    "mlp_dim": "mlp_dim",
}
# Converters make levels of 255 times `scale`, plus `offset`; keras-hub before 0.22 then
# subtracts `norm_mean` and divides by `norm_std`.
_FIT = ("crop_to_aspect_ratio", "pad_to_aspect_ratio", "interpolation", "antialias")
_LEVELS = ("offset", "scale", "norm_mean", "norm_std")
# keras-hub's names and Pillow's, whose kernel is always widened for smaller sizes.
_WIDENED = {"bilinear": "bilinear", "bicubic": "bicubic", "lanczos3": "lanczos"}
_BACKBONE = re.compile(r"(?:.*/)?(layers/vi_t_(?:patching_and_embedding|encoder)/.*)")
_BLOCK = re.compile(r"(?<=/vi_t_encoder_block)(?:_([0-9]+))?(?=/)")
# Arrays of training are there where the model was compiled or has dropout.
_TRAINING = re.compile(r"(.*/)?(optimizer|seed_generator|metrics|loss_tracker)/")
_PRIVATE = re.compile(r"(?<=/mha/)_(?=\w+_dense/)")
# The last dense layer is the head; one before it is the intermediate one.
_DENSE = re.compile(r"(?:.*/)?layers/dense(_1)?/vars/([01])")


def _converter(folder):
    """Returns the file of the preset's converter of photos and what it says, or None.

    keras-hub writes it into both files. A preprocessor may be without one.
    """
    converters = []
    for name in _CONVERTERS:
        file = folder / name
        settings = _inside(file, fields.read(file, _FIELDS), "config")
        settings |= _inside(file, settings, "image_converter", "config")
        fields.check(file, settings, _FIELDS)
        if not settings.keys().isdisjoint(("image_size", *_FIT, *_LEVELS)):
            # Null is another size than that of the model.
            settings.setdefault("image_size", True)
            said = fields.complete(settings, _FIELDS)
            said = {key: said[key] for key in ("image_size", *_FIT, *_LEVELS)}
            converters.append((file, said))
    if len(converters) == 2:
        (file, said), (beside, other) = converters
        fields.refuse_differences(file, said, beside.name, other)
    return converters[0] if converters else (None, {})


def _preparation(file, converter):
    """Returns how photos come to the size, None without a converter or another way.

    Pillow rounds to levels of 8 bits after each axis, and Keras once: a photo's are 0.3
    apart on average, at edges up to 13.
    """
    if file is None:
        return None
    crops, pads, interpolation, is_widened = (converter[key] for key in _FIT)
    if not crops and not pads and converter["image_size"]:
        if is_widened and interpolation in _WIDENED:
            way = Preparation("transformers", "squash", _WIDENED[interpolation])
            return str(way)
        if interpolation == "bilinear" and not is_widened:
            return "squash"
    description.warn_of_fit(file)
    return None


def _inputs(file, converter):
    """Mean and deviation of the preset's converter, of images in [0, 1]."""
    if file is None:
        return DEFAULTS.input_mean, DEFAULTS.input_std
    channels = zip(*description.channels(file, _LEVELS, converter), strict=True)
    mean, std = zip(
        *(
            ((norm_mean - offset) / (255 * scale), norm_std / (255 * scale))
            for offset, scale, norm_mean, norm_std in channels
        ),
        strict=True,
    )
    # From -1 and 1/127.5, rounding leaves them next to 0.5.
    return tuple(round(m, 9) for m in mean), tuple(round(s, 9) for s in std)


def _inside(file, settings, *names):
    """Returns a table inside settings, {} where there is none."""
    for name in names:
        settings = settings.get(name) or {}
        fields.check_types(file, settings, _FIELDS)
    return settings


class KerasHub(Library):
    """keras-hub's `ViTBackbone` and `ViTImageClassifier`."""

    name = COLUMN
    beside = (_CONFIG, *_CONVERTERS, _TASK, _TASK_WEIGHTS)
    keys = re.compile("layers/vi_t_patching_and_embedding/")

    def whole(self, file: OpenFile | Collected) -> OpenFile | Collected:
        """Returns an open file together with the one beside it that has the head."""
        path = pathlib.Path(file.path)
        task = path.with_name(_TASK_WEIGHTS)
        if path.name == _TASK_WEIGHTS or not task.exists():
            return file
        places = {key: (one, key) for one in (file, H5(task)) for key in one.keys}
        return Collected(file.path, places, file.metadata)

    def select(self, keys: Iterable[str]) -> dict[str, str]:
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

    def describe(self, folder: pathlib.Path, shown: Shown) -> Description:
        file = folder / _CONFIG
        config = fields.read(file, _FIELDS)
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
        shown.check_sizes(file, config, _SIZES)
        task = _inside(folder / _TASK, fields.read(folder / _TASK, _FIELDS), "config")
        pooled = fields.complete(task, _FIELDS)["pooling"]
        if shown.classes is not None:
            stated = {"class_token": pooled == "token"}
            shown.check(folder / _TASK, f"a head of pooling {brief(pooled)}", stated)
        converter_file, converter = _converter(folder)
        mean, std = _inputs(converter_file, converter)
        said = fields.complete(config, _FIELDS)
        network = ViTConfig.released(
            num_heads=shown.sizes["num_heads"],
            activation=DEFAULTS.activation,
            layer_norm_epsilon=said["layer_norm_epsilon"],
            input_mean=mean,
            input_std=std,
        )
        height, width, _ = config.get("image_shape") or (None, None, None)
        shape = height and (height, width)
        grid = description.grid_of(shape, config.get("patch_size"))
        head = Head(preparation=_preparation(converter_file, converter))
        return Description(network, grid, head=head)
