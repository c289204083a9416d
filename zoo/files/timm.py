"""Checkpoints of timm's Vision Transformers, hybrids and plain DeiT."""

import pathlib
import re

from zoo.files import description
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.network import Semantics

COLUMN = "timm"
DEFAULTS = Semantics(activation="gelu", resnet_epsilons="timm")

_CONFIG = "config.json"
BESIDE = (_CONFIG,)
_STEM = "patch_embed.backbone.stem."
_LONE_STEM = re.compile(r"patch_embed\.backbone\.(?=(conv|norm)\.)")
KEYS = re.compile(r"^(patch_embed\.|blocks\.[0-9]+\.(attn|mlp)\.)")
REASONS = {
    r"^dist_token$": "it is a distilled DeiT, with a second token; only plain DeiT is "
    "read",
    r"\.ls[12]\.|\.gamma_[12]$": "it has LayerScale, which is not computed",
    r"^reg_token$": "it has register tokens, which are not read",
    r"^fc_norm\.": "it normalises after pooling, which is not computed",
    r"^norm_pre\.": "it normalises before its blocks, which is not computed",
    r"^attn_pool\.": "it pools with attention, which is not computed",
    r"\.[qk]_norm\.": "it normalises queries and keys, which is not computed",
    r"rel_pos|freqs": "its positions are not learned by addition alone",
    r"backbone\.(conv1|bn1|layer1)": "its ResNet is not the papers'",
}
# Those that compute what the arrays and the rest of the settings tell, no more.
_ARCHITECTURES = re.compile(
    r"(vit|deit)_(tiny|small|base|large|huge)_"
    r"(r26_s32|r50_s16|r50_s32|r_s16_p8|patch[0-9]+(_gap)?)_[0-9]+"
)
_ACTIVATIONS = {None: "gelu", "gelu": "gelu", "gelu_tanh": "gelu_tanh"}
# What the arrays tell, and what is of training only.
_HARMLESS = re.compile(
    r"img_size|patch_size|in_chans|num_classes|embed_dim|depth|num_heads|mlp_ratio|"
    r"class_token|weight_init|fix_init|qkv_bias|dynamic_img_size|strict_img_size|"
    r"drop_rate|\w+_drop_rate|drop_path_rate"
)
# Where it is not the number of the papers' model of that size.
_HEADS = {"vit_base_patch16_gap_224": 16}
_HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


def select(keys) -> dict[str, str]:
    """Returns {key: name in `names.TABLE`} of the model's arrays."""
    return {key: _LONE_STEM.sub(_STEM, key) for key in keys}


def describe(folder: pathlib.Path, sizes: dict[str, int]) -> Description:
    """Returns what the settings beside a file say, timm's defaults elsewhere."""
    file = folder / _CONFIG
    config = description.read_json(file)
    if "architecture" not in config:
        config = {}
    elif not _ARCHITECTURES.fullmatch(config["architecture"]):
        raise CheckpointError(
            f"{file} describes timm's {config['architecture']}: only the plain and "
            "hybrid Vision Transformers of the papers and plain DeiT are read."
        )
    arguments = config.get("model_args", {})
    inputs = config.get("pretrained_cfg", {})
    description.check_sizes(file, config, num_features=sizes["hidden_size"])
    description.check_sizes(file, arguments, depth=sizes["num_layers"])
    activation = arguments.pop("act_layer", None)
    no_embed_class = bool(arguments.pop("no_embed_class", False))
    pooled = arguments.pop("global_pool", config.get("global_pool"))
    fc_norm = arguments.pop("fc_norm", None)
    token = sizes["class_token"]
    expected = {"token": token, "avg": not token, "": True, None: True}
    wrong = [name for name in arguments if not _HARMLESS.fullmatch(name)]
    if activation not in _ACTIVATIONS:
        wrong.append(f"act_layer={activation!r}")
    if not expected.get(pooled, False) or fc_norm:
        wrong.append(
            f"global_pool={pooled!r} {'with' if token else 'without'} a class token"
        )
    if wrong:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(wrong)}."
        )
    network = Semantics(
        num_heads=arguments.get("num_heads", _HEADS.get(config.get("architecture"))),
        activation=_ACTIVATIONS[activation],
        layer_norm_epsilon=DEFAULTS.layer_norm_epsilon,
        input_mean=inputs.get("mean", DEFAULTS.input_mean),
        input_std=inputs.get("std", DEFAULTS.input_std),
        resnet_epsilons=DEFAULTS.resnet_epsilons if sizes["hybrid"] else "released",
    )
    patch_size = (sizes["patch_height"], sizes["patch_width"])
    grid = description.grid_of(arguments.get("img_size"), patch_size)
    return Description(network, None if sizes["hybrid"] else grid, not no_embed_class)


def settings(checkpoint) -> dict[str, dict]:
    """Returns {name: table} of the files that `create_model("local-dir:...")` needs."""
    semantics, stages = checkpoint.semantics, checkpoint.resnet_stages
    if checkpoint.representation_size is not None:
        raise ValueError("timm has no model with pre_logits: leave the arrays out")
    if semantics.layer_norm_epsilon != DEFAULTS.layer_norm_epsilon:
        raise ValueError(
            f"timm's layer_norm_epsilon is {DEFAULTS.layer_norm_epsilon}, not "
            f"{semantics.layer_norm_epsilon}"
        )
    if stages is not None:
        if stages not in _HYBRIDS or checkpoint.resnet_width != 64:
            raise ValueError(
                f"timm has no hybrid with stages {stages} of width "
                f"{checkpoint.resnet_width}"
            )
        if semantics.resnet_padding != DEFAULTS.resnet_padding:
            raise ValueError("timm's hybrids have no symmetric padding")
    hidden_size, channels = checkpoint.hidden_size, checkpoint.channels
    image_size = list(checkpoint.image_size)
    # Rounding down, timm turns a ratio into `mlp_dim`.
    ratio, rest = divmod(checkpoint.mlp_dim, hidden_size)
    arguments = {
        "img_size": image_size,
        "patch_size": checkpoint.config.patch_size,
        "in_chans": channels,
        "embed_dim": hidden_size,
        "depth": checkpoint.num_layers,
        "num_heads": checkpoint.num_heads,
        "mlp_ratio": (checkpoint.mlp_dim + 0.5) / hidden_size if rest else ratio,
        "act_layer": semantics.activation,
    }
    pooled, first_convolution = "token", "patch_embed.proj"
    if stages is not None:
        first_convolution = f"patch_embed.backbone.{'stem.' if stages else ''}conv"
    if not checkpoint.class_token:
        pooled = "avg"
        arguments |= {"class_token": False, "global_pool": pooled, "fc_norm": False}
    classes = checkpoint.classes or 0
    config = {
        "architecture": _HYBRIDS.get(stages, "vit_base_patch16_224"),
        "num_classes": classes,
        "num_features": hidden_size,
        "global_pool": pooled,
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": classes,
            "input_size": [channels, *image_size],
            "fixed_input_size": True,
            "mean": semantics.input_mean,
            "std": semantics.input_std,
            "first_conv": first_convolution,
            "classifier": "head",
        },
    }
    return {_CONFIG: config}


def file_names(arrays: dict) -> dict:
    """Returns arrays under the keys of a whole file."""
    if any(name.startswith("patch_embed.backbone.stages.") for name in arrays):
        return arrays
    return {
        name.replace(_STEM, "patch_embed.backbone."): arrays[name] for name in arrays
    }
