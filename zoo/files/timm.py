"""Checkpoints of timm's Vision Transformers, hybrids and DeiT."""

import dataclasses
import pathlib
import re

from zoo.files import architectures, description
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.network import Semantics, ViTConfig

COLUMN = "timm"
# `resample_abs_pos_embed` widens its cubic kernel when it shrinks.
DEFAULTS = Semantics(activation="gelu", resnet_epsilons="timm")
_RESIZING = "bicubic"

_CONFIG = "config.json"
BESIDE = (_CONFIG,)
_STEM = "patch_embed.backbone.stem."
_LONE_STEM = re.compile(r"patch_embed\.backbone\.(?=(conv|norm)\.)")
KEYS = re.compile(r"^(patch_embed\.|blocks\.[0-9]+\.(attn|mlp)\.)")
REASONS = {
    r"\.gamma_[12]$": "it has LayerScale of timm's EVA or BEiT, which are not read",
    r"\.[qk]_norm\.": "it normalises queries and keys, which is not computed",
    r"rel_pos|freqs": "its positions are not learned by addition alone",
    r"backbone\.(conv1|bn1|layer1)": "its ResNet is not the papers'",
}
_ACTIVATIONS = {
    None: "gelu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
}
# What the arrays tell, and what is of training only.
_HARMLESS = re.compile(
    r"img_size|patch_size|in_chans|num_classes|embed_dim|depth|num_heads|mlp_ratio|"
    r"class_token|weight_init|fix_init|dynamic_img_size|strict_img_size|"
    r"drop_rate|\w+_drop_rate|drop_path_rate"
)
# What stands for one of ours; those of `architectures.csv` that timm has no name for.
_READ = (
    "act_layer", "epsilon", "reg_tokens", "no_embed_class", "init_values", "qkv_bias",
    "pre_norm", "global_pool", "fc_norm", "distilled", "swiglu", "inputs",
    "position_resizing",
)  # fmt: skip
_POOLINGS = {"token": "token", "avg": "gap", "map": "map", "": None, None: None}
_HYBRIDS = {
    (): "vit_tiny_r_s16_p8_224",
    (2, 2, 2, 2): "vit_small_r26_s32_224",
    (3, 4, 9): "vit_base_r50_s16_224",
    (3, 4, 6, 3): "vit_large_r50_s32_224",
}


def column(keys) -> str:
    """Returns the column of `names.TABLE` that has the names of `select`."""
    return COLUMN


def select(keys) -> dict[str, str]:
    """Returns {key: name in `names.TABLE`} of the model's arrays."""
    return {key: _LONE_STEM.sub(_STEM, key) for key in keys}


def describe(folder: pathlib.Path, sizes: dict[str, object]) -> Description:
    """Returns what the settings beside a file say, timm's defaults elsewhere."""
    file = folder / _CONFIG
    config = description.read_json(file)
    architecture = config.get("architecture")
    if architecture is None:
        config, implied = {}, {}
        description.check_plain(file.parent, COLUMN, sizes["families"])
    elif (implied := architectures.implied(architecture)) is None:
        raise CheckpointError(
            f"{file} describes timm's {architecture}, whose name is not known: which "
            "activation, epsilon and pooling does it compute? Only Vision Transformers "
            "of the papers, DeiT and those of docs/models.md are read."
        )
    own = config.get("model_args", {})
    arguments = {**implied, "global_pool": config.get("global_pool"), **own}
    # Files of earlier versions have these at the top.
    inputs = config.get("pretrained_cfg", config)
    description.check_sizes(file, config, num_features=sizes["hidden_size"])
    description.check_sizes(file, own, depth=sizes["num_layers"])
    said = {name: arguments.pop(name, None) for name in _READ}
    token, pooled = sizes["class_token"], said["global_pool"]
    wrong = [name for name in arguments if not _HARMLESS.fullmatch(name)]
    if said["act_layer"] not in _ACTIVATIONS:
        wrong.append(f"act_layer={said['act_layer']!r}")
    if (
        pooled not in _POOLINGS
        or (pooled == "token" and not token)
        or arguments.get("class_token", True) != token
    ):
        wrong.append(
            f"global_pool={pooled!r} {'with' if token else 'without'} a class token"
        )
    if wrong:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(wrong)}."
        )
    mean, std = architectures.INPUTS[said["inputs"] or "half"]
    registers = int(said["reg_tokens"] or 0)
    prefixed = token or registers
    network = Semantics(
        num_heads=arguments.get("num_heads"),
        activation="swiglu" if said["swiglu"] else _ACTIVATIONS[said["act_layer"]],
        layer_norm_epsilon=said["epsilon"] or DEFAULTS.layer_norm_epsilon,
        input_mean=inputs.get("mean", mean),
        input_std=inputs.get("std", std),
        resnet_epsilons=DEFAULTS.resnet_epsilons if sizes["hybrid"] else "released",
    )
    families = {
        "layer_scale": bool(said["init_values"]),
        "num_registers": registers,
        "distillation_token": bool(said["distilled"]),
        "qkv_bias": said["qkv_bias"] is not False,
        "norm_before_blocks": bool(said["pre_norm"]),
        # As timm: without a word the norm follows a mean.
        "norm_after_pooling": bool(
            pooled == "avg" if said["fc_norm"] is None else said["fc_norm"]
        ),
    }
    if architecture is not None:
        stated = ViTConfig(**families)
        what = f"timm's {architecture}"
        description.check_families(file, what, stated, sizes["families"])
        if (network.activation == "swiglu") != sizes["swiglu"]:
            raise CheckpointError(
                f"{file} describes {what}, whose MLPs have "
                f"{'gates' if said['swiglu'] else 'no gates'}, unlike the arrays: keep "
                "each model in a folder of its own, beside its own settings."
            )
    patches_alone = said["no_embed_class"] and prefixed
    network = dataclasses.replace(
        network,
        **families,
        tokens_with_positions="patches" if patches_alone else "all",
        position_resizing=said["position_resizing"] or _RESIZING,
    )
    patch_size = (sizes["patch_height"], sizes["patch_width"])
    grid = description.grid_of(arguments.get("img_size"), patch_size)
    pooling = "distilled" if said["distilled"] else _POOLINGS[pooled]
    return Description(network, None if sizes["hybrid"] else grid, pooling)


def settings(checkpoint) -> dict[str, dict]:
    """Returns {name: table} of the files that `create_model("local-dir:...")` needs."""
    config, stages = checkpoint.config, checkpoint.resnet_stages
    if checkpoint.representation_size is not None:
        raise ValueError("timm has no model with pre_logits: leave the arrays out")
    architecture = _HYBRIDS.get(stages) or _written_as(checkpoint)
    implied = architectures.implied(architecture)
    epsilon = implied.get("epsilon", DEFAULTS.layer_norm_epsilon)
    if config.layer_norm_epsilon != epsilon:
        raise ValueError(
            f"timm's layer_norm_epsilon is {epsilon}, not {config.layer_norm_epsilon}"
        )
    if config.qkv_bias not in (True, False):
        raise ValueError("timm's network has biases of keys where it has other ones")
    if config.tokens_with_positions == "class token and patches":
        raise ValueError("timm's networks have positions of all tokens or of patches")
    if stages is not None:
        if stages not in _HYBRIDS or checkpoint.resnet_width != 64:
            raise ValueError(
                f"timm has no hybrid with stages {stages} of width "
                f"{checkpoint.resnet_width}"
            )
        if config.resnet_padding != DEFAULTS.resnet_padding:
            raise ValueError("timm's hybrids have no symmetric padding")
    hidden_size, channels = checkpoint.hidden_size, checkpoint.channels
    image_size = list(checkpoint.image_size)
    # Rounding down, timm turns a ratio into `mlp_dim`, or twice that with gates.
    gated = config.activation == "swiglu"
    expanded = checkpoint.mlp_dim * (2 if gated else 1)
    ratio, rest = divmod(expanded, hidden_size)
    arguments = {
        "img_size": image_size,
        "patch_size": config.patch_size,
        "in_chans": channels,
        "embed_dim": hidden_size,
        "depth": checkpoint.num_layers,
        "num_heads": checkpoint.num_heads,
        "mlp_ratio": (expanded + 0.5) / hidden_size if rest else ratio,
    }
    if not gated:
        arguments["act_layer"] = config.activation
    pooled, first_convolution = "token", "patch_embed.proj"
    if stages is not None:
        first_convolution = f"patch_embed.backbone.{'stem.' if stages else ''}conv"
    if checkpoint.pooling == "map":
        pooled = "map"
        arguments |= {"class_token": checkpoint.class_token, "global_pool": pooled}
    if checkpoint.pooling == "gap":
        pooled = "avg"
        own = {"global_pool": pooled, "fc_norm": config.norm_after_pooling}
        arguments |= {"class_token": checkpoint.class_token, **own}
    others = {
        # A starting value; the arrays have those of the file.
        "init_values": 1e-5 if config.layer_scale else None,
        "reg_tokens": config.num_registers,
        "no_embed_class": config.tokens_with_positions == "patches",
        "qkv_bias": config.qkv_bias,
    }
    by_default = {"init_values": None, "reg_tokens": 0, "no_embed_class": False}
    by_default |= {"qkv_bias": True, **implied}
    arguments |= {
        name: value for name, value in others.items() if value != by_default[name]
    }
    classes = checkpoint.classes or 0
    config = {
        "architecture": architecture,
        "num_classes": classes,
        "num_features": hidden_size,
        "global_pool": pooled,
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": classes,
            "input_size": [channels, *image_size],
            "fixed_input_size": True,
            "mean": config.input_mean,
            "std": config.input_std,
            "first_conv": first_convolution,
            "classifier": ["head", "head_dist"]
            if config.distillation_token
            else "head",
        },
    }
    return {_CONFIG: config}


def _written_as(checkpoint):
    """Returns an architecture that implies what no argument can say."""
    config = checkpoint.config
    kinds = {
        "deit_base_distilled_patch16_224": checkpoint.pooling == "distilled",
        "vit_giant_patch14_dinov2": config.activation == "swiglu",
        "vit_base_patch16_clip_224": config.norm_before_blocks,
        # Of Perception Encoder alone has the pooling another number of heads.
        "vit_base_patch16_siglip_224": checkpoint.pooling == "map",
        "flexivit_base": config.position_resizing == "bilinear_no_antialias",
    }
    kinds = [name for name, fits in kinds.items() if fits]
    if kinds[1:]:
        raise ValueError(f"timm has no network like {' and '.join(kinds)} at once")
    if checkpoint.pooling == "token_and_gap":
        raise ValueError("timm's heads read the class token or the mean, not both")
    if config.distillation_token and checkpoint.pooling != "distilled":
        raise ValueError("timm's distilled DeiT has two heads, and this has one")
    return (*kinds, "vit_base_patch16_224")[0]


def without_biases(checkpoint) -> tuple[str, ...]:
    """Returns the released biases that the library has not, which must be zeros."""
    return ("embedding/bias",) if checkpoint.config.norm_before_blocks else ()


def column_of(checkpoint) -> str:
    """Returns the column of `names.TABLE` that a checkpoint is written with."""
    return COLUMN


def file_names(arrays: dict, checkpoint) -> dict:
    """Returns arrays under the keys of a whole file."""
    if any(name.startswith("patch_embed.backbone.stages.") for name in arrays):
        return arrays
    return {
        name.replace(_STEM, "patch_embed.backbone."): arrays[name] for name in arrays
    }
