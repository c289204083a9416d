"""Checkpoints of Hugging Face transformers' `ViTModel` and its kin."""

from __future__ import annotations

import json
import pathlib
import re

from zoo.files import description
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.semantics import Semantics

COLUMN = "transformers"
DEFAULTS = Semantics(activation="gelu", layer_norm_epsilon=1e-12)

_CONFIG = "config.json"
_PREPROCESSOR = "preprocessor_config.json"
BESIDE = (_CONFIG, _PREPROCESSOR)
# The last two forms are of CLIP, SigLIP and DINOv3, only to say what they are.
_PROJECTION = re.compile(
    r"(^|\.)embeddings\.(patch_embeddings\.projection|patch_embeddings?)\.weight$"
)
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
# The names that transformers 5 has in memory; in files it writes the older ones.
_RENAMED = (
    (re.compile(r"^layers\."), "encoder.layer."),
    (re.compile(r"\.attention\.q_proj\."), ".attention.attention.query."),
    (re.compile(r"\.attention\.k_proj\."), ".attention.attention.key."),
    (re.compile(r"\.attention\.v_proj\."), ".attention.attention.value."),
    (re.compile(r"\.attention\.o_proj\."), ".attention.output.dense."),
    (re.compile(r"\.mlp\.fc1\."), ".intermediate.dense."),
    (re.compile(r"\.mlp\.fc2\."), ".output.dense."),
)
# Of masked image modelling; no other network has a use for them.
_PRETRAINING = re.compile(r"(vit\.)?embeddings\.mask_token$|decoder\.")
_REASONS = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (
            r"distillation_token|distillation_classifier",
            "it is a distilled DeiT, with a second token; of DeiT, only timm's plain "
            "ones are read",
        ),
        (
            r"layer_scale[12]\.|\.lambda_[12]$",
            "it has LayerScale, which is not computed",
        ),
        (r"embeddings\.register_tokens$", "it has register tokens, which are not read"),
        (r"relative_position", "its positions are not learned by addition alone"),
        (r"pre_layrnorm\.", "it normalises before its blocks, which is not computed"),
        (r"head\.probe$", "it pools with attention, which is not computed"),
        (r"\.patch_embedding\.", "it is the image tower of CLIP or SigLIP"),
    )
)


def matches(keys) -> bool:
    """Says whether keys are those of this library."""
    return any(_PROJECTION.search(key) for key in keys)


def select(keys) -> tuple[dict[str, str], list[str]]:
    """Chooses the arrays of the model, under the names of transformers' files.

    Args:
        keys: iterable of str.

    Returns:
        A dict of key to name, and a list of what is wrong.

    Example:
        >>> from zoo.files import transformers
        >>> transformers.select(["vit.layers.0.mlp.fc1.bias", "classifier.bias"])[0]
        {'vit.layers.0.mlp.fc1.bias': 'encoder.layer.0.intermediate.dense.bias', \
'classifier.bias': 'classifier.bias'}
    """
    chosen = {}
    keys = list(keys)
    classifies = any(key.startswith("classifier.") for key in keys)
    for key in keys:
        name = key.removeprefix("vit.")
        # The classifier reads the class token itself.
        unused = classifies and name.startswith("pooler.")
        if unused or _PRETRAINING.match(key):
            continue
        for pattern, replacement in _RENAMED:
            name = pattern.sub(replacement, name)
        chosen[key] = name
    return chosen, description.explain(keys, _REASONS)


def describe(folder: pathlib.Path, sizes: dict[str, int]) -> Description:
    """Returns what the settings beside a file say, transformers' defaults elsewhere.

    Args:
        folder: of the file.
        sizes: dict of the arrays' sizes, as `zoo.released_names.measure` gives them.

    Raises:
        CheckpointError: the settings are of another model, or ask for what is not
            computed here.
    """
    file = folder / _CONFIG
    config = description.read_json(file)
    if "model_type" not in config:
        config = {}
    elif config["model_type"] != "vit":
        raise CheckpointError(
            f"{file} describes a model of type {config['model_type']!r}: only those of "
            "type 'vit' are read."
        )
    description.check_sizes(
        file,
        {
            "hidden_size": config.get("hidden_size"),
            "num_hidden_layers": config.get("num_hidden_layers"),
            "intermediate_size": config.get("intermediate_size"),
        },
        {
            "hidden_size": sizes["hidden_size"],
            "num_hidden_layers": sizes["num_layers"],
            "intermediate_size": sizes["mlp_dim"],
        },
    )
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{file} asks for hidden_act {activation!r}: only "
            f"{', '.join(_ACTIVATIONS)} are computed."
        )
    if config.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"{file} asks for pooler_act {config['pooler_act']!r}: only tanh is "
            "computed."
        )
    mean, std = _inputs(folder / _PREPROCESSOR)
    return Description(
        Semantics(
            activation=_ACTIVATIONS[activation],
            layer_norm_epsilon=config.get(
                "layer_norm_eps", DEFAULTS.layer_norm_epsilon
            ),
            input_mean=mean,
            input_std=std,
        ),
        num_heads=config.get("num_attention_heads", 12 if config else None),
        grid_size=_grid(config),
    )


def _inputs(file):
    """Mean and deviation of images in [0, 1] that the image processor asks for."""
    settings = description.read_json(file)
    mean = settings.get("image_mean", DEFAULTS.input_mean)
    std = settings.get("image_std", DEFAULTS.input_std)
    if not settings.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    factor = settings.get("rescale_factor", 1 / 255)
    scale = 255 * factor if settings.get("do_rescale", True) else 255.0
    # 255 * (1 / 255) is 1, but other factors need not be exact.
    return tuple(m / scale for m in mean), tuple(s / scale for s in std)


def _grid(config):
    if "image_size" not in config or "patch_size" not in config:
        return None
    (height, width), (rows, columns) = (
        size if isinstance(size, list) else (size, size)
        for size in (config["image_size"], config["patch_size"])
    )
    return height // rows, width // columns


def settings(checkpoint) -> dict[str, str]:
    """Returns the files that `from_pretrained` needs beside the arrays.

    Args:
        checkpoint: `zoo.Checkpoint`.

    Returns:
        A dict of file name to text.

    Raises:
        ValueError: transformers has no such model.
    """
    if checkpoint.resnet_stages is not None:
        raise ValueError("transformers has no hybrid models")
    if not checkpoint.class_token:
        raise ValueError("transformers has no models without a class token")
    classes = checkpoint.classes
    if classes is not None and checkpoint.representation_size is not None:
        raise ValueError(
            "transformers has no model with pre_logits before its head: leave the "
            "arrays of one of them out"
        )
    semantics = checkpoint.semantics
    activations = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}
    patch_size = checkpoint.patch_size
    image_size = [
        side * patch
        for side, patch in zip(checkpoint.grid_size, patch_size, strict=True)
    ]
    config = {
        "architectures": [
            "ViTModel" if classes is None else "ViTForImageClassification"
        ],
        "model_type": "vit",
        "hidden_size": checkpoint.hidden_size,
        "num_hidden_layers": checkpoint.num_layers,
        "num_attention_heads": checkpoint.num_heads,
        "intermediate_size": checkpoint.mlp_dim,
        "hidden_act": activations[semantics.activation],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": semantics.layer_norm_epsilon,
        "image_size": _one_if_square(image_size),
        "patch_size": _one_if_square(patch_size),
        "num_channels": checkpoint.shapes["embedding/kernel"][2],
        "qkv_bias": True,
    }
    if checkpoint.representation_size is not None:
        config["pooler_output_size"] = checkpoint.representation_size
    if classes is not None:
        labels = {str(index): f"LABEL_{index}" for index in range(classes)}
        config["id2label"] = labels
        config["label2id"] = {label: int(index) for index, label in labels.items()}
    preprocessor = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": image_size[0], "width": image_size[1]},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": semantics.input_mean,
        "image_std": semantics.input_std,
    }
    return {
        _CONFIG: json.dumps(config, indent=2),
        _PREPROCESSOR: json.dumps(preprocessor, indent=2),
    }


def file_names(arrays: dict) -> dict:
    """Returns arrays under the names of a whole file, {key: array}."""
    # ViTForImageClassification has the encoder inside, ViTModel is it.
    prefix = "vit." if "classifier.weight" in arrays else ""
    return {
        name if name.startswith("classifier.") else prefix + name: array
        for name, array in arrays.items()
    }


def _one_if_square(sides):
    height, width = sides
    return height if height == width else [height, width]
