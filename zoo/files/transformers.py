"""Checkpoints of Hugging Face transformers' `ViTModel` and its kin."""

import pathlib
import re

from zoo.files import description
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.network import Semantics

COLUMN = "transformers"
DEFAULTS = Semantics(activation="gelu", layer_norm_epsilon=1e-12)

_CONFIG = "config.json"
_PREPROCESSOR = "preprocessor_config.json"
BESIDE = (_CONFIG, _PREPROCESSOR)
# The last two forms are of CLIP, SigLIP and DINOv3, only to say what they are.
KEYS = re.compile(
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
_RENAMED = {
    r"^layers\.": "encoder.layer.",
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
    r"\.mlp\.fc1\.": ".intermediate.dense.",
    r"\.mlp\.fc2\.": ".output.dense.",
}
# Of masked image modelling; no other network has a use for them.
_PRETRAINING = re.compile(r"(vit\.)?embeddings\.mask_token$|decoder\.")
REASONS = {
    r"distillation_token|distillation_classifier": "it is a distilled DeiT, with a "
    "second token; of DeiT, only timm's plain ones are read",
    r"layer_scale[12]\.|\.lambda_[12]$": "it has LayerScale, which is not computed",
    r"embeddings\.register_tokens$": "it has register tokens, which are not read",
    r"relative_position": "its positions are not learned by addition alone",
    r"pre_layrnorm\.": "it normalises before its blocks, which is not computed",
    r"head\.probe$": "it pools with attention, which is not computed",
    r"\.patch_embedding\.": "it is the image tower of CLIP or SigLIP",
}


def select(keys) -> dict[str, str]:
    """Returns {key: name in `names.TABLE`} of the model's arrays."""
    chosen = {}
    classifies = any(key.startswith("classifier.") for key in keys)
    for key in keys:
        name = key.removeprefix("vit.")
        # The classifier reads the class token itself.
        unused = classifies and name.startswith("pooler.")
        if unused or _PRETRAINING.match(key):
            continue
        for pattern, replacement in _RENAMED.items():
            name = re.sub(pattern, replacement, name)
        chosen[key] = name
    return chosen


def describe(folder: pathlib.Path, sizes: dict[str, int]) -> Description:
    """Returns what the settings beside a file say, transformers' defaults elsewhere."""
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
        config,
        hidden_size=sizes["hidden_size"],
        num_hidden_layers=sizes["num_layers"],
        intermediate_size=sizes["mlp_dim"],
    )
    activation = config.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{file} has hidden_act {activation!r}: only "
            f"{', '.join(_ACTIVATIONS)} are supported."
        )
    if config.get("pooler_act", "tanh") != "tanh":
        raise CheckpointError(
            f"{file} has pooler_act {config['pooler_act']!r}: only tanh is supported."
        )
    mean, std = _inputs(folder / _PREPROCESSOR)
    network = Semantics(
        num_heads=config.get("num_attention_heads", 12 if config else None),
        activation=_ACTIVATIONS[activation],
        layer_norm_epsilon=config.get("layer_norm_eps", DEFAULTS.layer_norm_epsilon),
        input_mean=mean,
        input_std=std,
    )
    grid = description.grid_of(config.get("image_size"), config.get("patch_size"))
    return Description(network, grid)


def _inputs(file):
    """Mean and deviation of the image processor, of images in [0, 1]."""
    settings = description.read_json(file)
    mean = settings.get("image_mean", DEFAULTS.input_mean)
    std = settings.get("image_std", DEFAULTS.input_std)
    if not settings.get("do_normalize", True):
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    factor = settings.get("rescale_factor", 1 / 255)
    scale = 255 * factor if settings.get("do_rescale", True) else 255.0
    # 255 * (1 / 255) is 1, but other factors need not be exact.
    return tuple(m / scale for m in mean), tuple(s / scale for s in std)


def settings(checkpoint) -> dict[str, dict]:
    """Returns {name: table} of the files that `from_pretrained` needs."""
    if checkpoint.resnet_stages is not None:
        raise ValueError("transformers has no hybrid models")
    if not checkpoint.class_token:
        raise ValueError("transformers has no models without a class token")
    classes, semantics = checkpoint.classes, checkpoint.semantics
    if classes is not None and checkpoint.representation_size is not None:
        raise ValueError(
            "transformers has no model with pre_logits before its head: leave the "
            "arrays of one of them out"
        )
    height, width = checkpoint.image_size
    config = {
        "architectures": [
            "ViTModel" if classes is None else "ViTForImageClassification"
        ],
        "model_type": "vit",
        "hidden_size": checkpoint.hidden_size,
        "num_hidden_layers": checkpoint.num_layers,
        "num_attention_heads": checkpoint.num_heads,
        "intermediate_size": checkpoint.mlp_dim,
        "hidden_act": "gelu" if semantics.activation == "gelu" else "gelu_pytorch_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": semantics.layer_norm_epsilon,
        "image_size": height if height == width else [height, width],
        "patch_size": checkpoint.config.patch_size,
        "num_channels": checkpoint.channels,
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
        "size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": semantics.input_mean,
        "image_std": semantics.input_std,
    }
    return {_CONFIG: config, _PREPROCESSOR: preprocessor}


def file_names(arrays: dict) -> dict:
    """Returns arrays under the keys of a whole file."""
    # ViTForImageClassification has the encoder inside, ViTModel is it.
    prefix = "vit." if "classifier.weight" in arrays else ""
    return {
        name if name.startswith("classifier.") else prefix + name: array
        for name, array in arrays.items()
    }
