"""Checkpoints of timm's Vision Transformers, hybrids and DeiT.

`timm_fields.csv` has each field of its settings (`fields.py`).
"""

import dataclasses
import pathlib
import re

import numpy as np

from zoo.files import architectures, description, fields
from zoo.files.archive import CheckpointError
from zoo.files.comparison import BIASES, Shown
from zoo.files.description import Description
from zoo.files.names import flat_patches
from zoo.head import Head
from zoo.network import ViTConfig, pair
from zoo.preparation import INTERPOLATIONS, Preparation
from zoo.text import brief

COLUMN = "timm"
# `resample_abs_pos_embed` widens its cubic kernel when it shrinks.
DEFAULTS = ViTConfig.released(activation="gelu", resnet_epsilons="timm")
_RESIZING = "bicubic"

_CONFIG = "config.json"
BESIDE = (_CONFIG,)
# Biases of offsets that all blocks share, and where a block has its own.
SHARED_BIASES = (
    "rel_pos_bias.relative_position_bias_table",
    "blocks.{}.attn.relative_position_bias_table",
)
_STEM = "patch_embed.backbone.stem."
_LONE_STEM = re.compile(r"patch_embed\.backbone\.(?=(conv|norm)\.)")
# Those of WordNet, and of Open Images.
_LABEL_ID = re.compile(r"n\d{8}|/[mgt]/\w+")
# What transformers puts before the keys of timm's models that it wraps.
_WRAPPER = "timm_model."
KEYS = re.compile(r"^(timm_model\.)?(patch_embed\.|blocks\.[0-9]+\.(attn|mlp)\.)")
REASONS = {
    r"\.[qk]_norm\.": "it normalises queries and keys, which is not computed",
    r"(^|\.)(shared_)?rel_pos\.|freqs": "its positions are not learned by addition "
    "alone",
    r"backbone\.(conv1|bn1|layer1)": "its ResNet is not the papers'",
}
_ACTIVATIONS = {
    None: "gelu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
}
# Each field that timm writes.
FIELDS = {
    part: fields.table("timm_fields.csv", part)
    for part in ("top", "pretrained_cfg", "model_args")
}
# Files of earlier versions have all there, and transformers' of what it wraps its own.
_AT_THE_TOP = fields.OF_EVERY_TYPE | FIELDS["pretrained_cfg"] | FIELDS["top"]
# What stands for one of ours.
_READ = (
    "act_layer", "reg_tokens", "no_embed_class", "init_values", "qkv_bias", "pre_norm",
    "global_pool", "fc_norm", "final_norm", "ref_feat_shape", "use_abs_pos_emb",
    "use_post_norm", "scale_attn_inner", "use_rel_pos_bias", "rope_temperature",
)  # fmt: skip
_FLAGS = (
    "no_embed_class", "qkv_bias", "pre_norm", "fc_norm", "final_norm",
    "use_abs_pos_emb", "use_post_norm", "scale_attn_inner", "use_rel_pos_bias",
    "use_shared_rel_pos_bias",
)  # fmt: skip
# What its classes `Beit` and `Eva` call otherwise than `VisionTransformer`.
_ARGUMENTS = {
    "beit": {"use_fc_norm": "fc_norm"},
    "eva": {
        "num_reg_tokens": "reg_tokens",
        "use_pre_transformer_norm": "pre_norm",
        "use_post_transformer_norm": "final_norm",
        "use_fc_norm": "fc_norm",
    },
}
# The names of classes whose keys have no biases.
_BIASES_APART = ("beit", "eva", "eva unfused")
# Which timm has None for, too.
_MAY_BE_NULL = ("fc_norm", "final_norm")
# Columns of `architectures.csv` that are no arguments of timm's: only names imply them.
_IMPLIED = (
    "epsilon", "distilled", "swiglu", "inputs", "position_resizing", "rotary",
    "mlp_norm_inside", "pooling_heads", "named_as",
)  # fmt: skip
# What timm takes where a `config.json` says a part of how photos come to the size.
_EVALUATION = {"crop_pct": 0.875, "crop_mode": "center", "interpolation": "bicubic"}
_FITS = {"center": "crop", "squash": "squash"}
_POOLINGS = {"token": "token", "avg": "gap", "map": "map", "": None, None: None}
_NAFLEX = re.compile(r"^embeds\.")
# What is called otherwise in timm's EVA.
_EVA = {".gamma_1": ".ls1.gamma", ".gamma_2": ".ls2.gamma"}
_QKV = [f".attn.{part}_proj.weight" for part in "qkv"]
_QKV_BIAS = [f".attn.{part}_proj.bias" for part in "qkv"]
_FUSED_BIAS = [f".attn.{part}_bias" for part in "qkv"]
# The first of arrays that are one elsewhere: that one's name, and all that it has.
_APART = {
    _QKV[0]: (".attn.qkv.weight", _QKV),
    _QKV_BIAS[0]: (".attn.qkv.bias", _QKV_BIAS),
    _FUSED_BIAS[0]: (".attn.qkv.bias", _FUSED_BIAS),
    ".mlp.fc1_g.weight": (
        ".mlp.fc1.weight",
        [".mlp.fc1_g.weight", ".mlp.fc1_x.weight"],
    ),
    ".mlp.fc1_g.bias": (".mlp.fc1.bias", [".mlp.fc1_g.bias", ".mlp.fc1_x.bias"]),
}
# The others, by the first.
_BEHIND = {other: first for first, (_, parts) in _APART.items() for other in parts[1:]}
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
    chosen = {}
    for key in keys:
        if key.endswith(".relative_position_index"):
            continue  # of the grid alone
        own = key.removeprefix(_WRAPPER)
        name = _LONE_STEM.sub(_STEM, _NAFLEX.sub("", own))
        if _NAFLEX.match(own) and name.startswith("proj."):
            name = f"patch_embed.{name}"
        for theirs, ours in _EVA.items():
            name = name.replace(theirs, ours)
        chosen[key] = name
    return chosen


def joined(arrays: dict) -> tuple[dict, bool]:
    """Joins what timm's EVA has apart, queries, keys and values, gates and values.

    Returns the arrays, and whether keys have biases where queries do.
    """
    found, key_biases = {}, True
    for name, array in arrays.items():
        behind = next(filter(name.endswith, _BEHIND), None)
        if behind and _joins(arrays, name.removesuffix(behind), _BEHIND[behind]):
            continue  # joined where the first of its parts is
        first = next(filter(name.endswith, _APART), None)
        if first is None:
            found[name] = array
            continue
        stem, (whole, others) = name.removesuffix(first), _APART[first]
        parts = [arrays.get(stem + other) for other in others]
        is_bias = len(parts) == 3 and np.ndim(array) == 1
        # Of keys there is no bias, and of others both or none.
        if is_bias and parts[1] is None:
            key_biases = False
            parts[1] = np.zeros(array.shape, np.float32)
        if stem + whole in arrays or not may_be_joined(parts):
            found[name] = array  # which is unknown, as its others are
            continue
        found[stem + whole] = np.concatenate([np.asarray(part) for part in parts])
    return found, key_biases


def _joins(arrays, stem, first):
    whole, _ = _APART[first]
    return stem + first in arrays and stem + whole not in arrays


def may_be_joined(parts) -> bool:
    """Returns whether arrays are all there, and fit along the first axis."""
    shapes = {None if part is None else part.shape[1:] for part in parts}
    lengths = {0 if part is None else part.ndim for part in parts}
    return len(shapes) == len(lengths) == 1 and shapes != {None} and lengths != {0}


def describe(folder: pathlib.Path, shown: Shown) -> Description:
    """Returns what the settings beside a file say, timm's defaults elsewhere."""
    file = folder / _CONFIG
    # timm's own default, whatever the architecture was published with.
    return described(file, description.read_json(file), shown, "imagenet")


def of_name(file: pathlib.Path, architecture: str) -> dict[str, object]:
    """Returns what the name of an architecture implies, and refuses one not known."""
    found = architectures.implied(architecture)
    if found is None:
        raise CheckpointError(
            f"{file} describes timm's {architecture}, which is not read: only the "
            "Vision Transformers that docs/models.md names are."
        )
    return found


def described(
    file: pathlib.Path, config: dict, shown: Shown, normalizing: str | None = None
) -> Description:
    """Returns what settings of timm say.

    Args:
        file: the settings, for messages.
        config: what they say.
        shown: what the arrays show.
        normalizing: a key of `architectures.INPUTS`: mean and deviation where settings
            have none; None for those that the architecture was published with.
    """
    fields.check_types(file, config, _AT_THE_TOP)
    architecture = fields.name_of_network(file, config, _AT_THE_TOP, "architecture")
    if architecture is None:
        config, implied = {}, {}
        shown.check_plain(file.parent, COLUMN)
    else:
        implied = of_name(file, architecture)
    # transformers' settings of a wrapped model have null for none.
    own = config.get("model_args")
    own = {} if own is None else own
    _check_fields(file, config, own)
    said = {name: implied.pop(name, None) for name in _IMPLIED}
    kind = _class_of(said["named_as"])
    ours = _ARGUMENTS.get(kind, {})
    own = {ours.get(name, name): value for name, value in {**own}.items()}
    by_name = {**implied, **own}.get("global_pool")
    if config.get("global_pool") is not None:
        implied["global_pool"] = config["global_pool"]
    arguments = {**implied, **own}
    if arguments.get("qkv_bias") is True and said["named_as"] in _BIASES_APART:
        arguments["qkv_bias"] = "query and value"
    inputs = _inputs_of(config)
    nulls = [name for name in ("mean", "std") if inputs.get(name, 0) is None]
    nulls += [
        name
        for name in (*_FLAGS, "num_heads", "reg_tokens", "class_token")
        if own.get(name, 0) is None and name not in _MAY_BE_NULL
    ]
    description.refuse_null(file, nulls)
    shown.check_sizes(file, config, {"num_features": "hidden_size"})
    shown.check_sizes(file, own, {"depth": "num_layers"})
    said |= {name: arguments.pop(name, None) for name in _READ}
    facts, pooled = shown.facts, said["global_pool"]
    token = facts["class_token"]
    wrong = []
    final_norm, after_pooling = _norms(said, kind == "eva")
    if kind == "eva" and after_pooling and said["final_norm"]:
        wrong.append("use_fc_norm beside use_post_transformer_norm")
    registers = said["reg_tokens"] or 0
    if said["act_layer"] not in _ACTIVATIONS:
        wrong.append(f"act_layer={brief(said['act_layer'])}")
    if pooled == "" and facts["head"]:
        wrong.append("global_pool='' with a head, which answers for each token")
    if (
        pooled not in _POOLINGS
        or (pooled == "token" and not token)
        or arguments.get("class_token", True) != token
    ):
        wrong.append(
            f"global_pool={pooled!r} {'with' if token else 'without'} a class token"
        )
    if architecture and (pooled == "map") != (by_name == "map"):
        wrong.append(f"global_pool={brief(pooled)} where {architecture} has {by_name}")
    if wrong:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(wrong)}."
        )
    names = ("mean", "std")
    key = (architecture and normalizing) or said["inputs"] or "half"
    by_default = dict(zip(names, architectures.INPUTS[key], strict=True))
    mean, std = description.channels(file, names, {**by_default, **inputs})
    prefixed, patches = token or registers, shown.patches
    network = ViTConfig.released(
        num_heads=arguments.get("num_heads"),
        activation="swiglu" if said["swiglu"] else _ACTIVATIONS[said["act_layer"]],
        layer_norm_epsilon=said["epsilon"] or DEFAULTS.layer_norm_epsilon,
        input_mean=mean,
        input_std=std,
        resnet_epsilons=DEFAULTS.resnet_epsilons if patches.is_hybrid else "released",
    )
    families = {
        "layer_scale": bool(said["init_values"]),
        "num_registers": registers,
        "distillation_token": bool(said["distilled"]),
        "qkv_bias": True if said["qkv_bias"] is None else said["qkv_bias"],
        "norm_before_blocks": bool(said["pre_norm"]),
        "attention_norm_inside": bool(said["scale_attn_inner"]),
        "mlp_norm_inside": bool(said["mlp_norm_inside"]),
        "relative_position_bias": facts["relative_position_bias"],
        "norm_after_pooling": after_pooling,
    }
    if architecture is not None:
        shared = arguments.get("use_shared_rel_pos_bias")
        stated = {
            **families,
            "final_norm": None if final_norm else False,
            "gates": network.activation == "swiglu",
            # timm's NaFlex takes a plain network's file, too.
            "flat_patches": None if said["named_as"] == "naflex" else False,
            # timm's SigLIP of a mean leaves the pooling of a file out.
            "attention_pooling": None
            if pooled == "map" or "siglip" in architecture
            else False,
            "relative position biases": BIASES[
                bool(said["use_rel_pos_bias"]), bool(shared)
            ],
        }
        shown.check(file, f"timm's {architecture}", stated)
    patches_alone = said["no_embed_class"] and prefixed
    covered = "patches" if patches_alone else "all"
    if said["use_abs_pos_emb"] is False:
        covered = "none"
    network = dataclasses.replace(
        network,
        **families,
        final_norm=final_norm,
        norm_after_branches=bool(said["use_post_norm"]),
        rotary=said["rotary"] or "none",
        rotary_grid=said["ref_feat_shape"],
        rotary_base=said["rope_temperature"],
        tokens_with_positions=covered,
        position_resizing=said["position_resizing"] or _RESIZING,
    )
    image_size = arguments.get("img_size")
    stride = patches.stride
    if image_size is None and inputs.get("input_size") is not None:
        _, height, width = inputs["input_size"]
        count = (height // stride[0]) * (width // stride[1])
        prefix = token + registers + bool(said["distilled"]) if covered == "all" else 0
        # As timm, which resizes a table from this size where that fits.
        if covered == "none" or count == shown.sizes["positions"] - prefix:
            image_size = height, width
    grid = description.grid_of(image_size, stride)
    if patches.is_hybrid and image_size is not None:
        grid = patches.grid_size(image_size, architecture)
    pooling = "distilled" if said["distilled"] else _POOLINGS[pooled]
    grid = arguments.get("pos_embed_grid_size", grid)
    grid = None if grid is None else pair(grid, "pos_embed_grid_size")
    notes = inputs.get("notes") or ()
    warning = None
    if (
        "QuickGELU" in " ".join([notes] if isinstance(notes, str) else notes)
        and network.activation == "gelu"
    ):
        warning = (
            f"{file} has the note that its weights were trained with quick GELU, and "
            f"timm's {architecture} computes GELU: pass zoo.read(path, semantics="
            'zoo.ViTConfig(activation="quick_gelu")) for the original\'s numbers.'
        )
    head = dataclasses.replace(
        _head(file, config, inputs, shown.classes),
        preparation=_preparation(file, inputs),
    )
    return Description(network, grid, pooling, said["pooling_heads"], warning, head)


def _check_fields(file, config, own):
    """Refuses fields that are not known, or have another value than is computed."""
    fields.check(file, config, _AT_THE_TOP)
    fields.check(file, config.get("pretrained_cfg") or {}, FIELDS["pretrained_cfg"])
    fields.check(file, own, FIELDS["model_args"])


def _inputs_of(config):
    """Returns the table of inputs; files of earlier versions have it at the top."""
    inside = config.get("pretrained_cfg")
    return config if inside is None else inside


def head_of(folder: pathlib.Path, shown: Shown) -> Head:
    """Returns what settings beside a file say of its outputs: their names."""
    file = folder / _CONFIG
    config = description.read_json(file)
    inputs = _inputs_of(config)
    fields.check_types(file, config, _AT_THE_TOP)
    fields.check_types(file, inputs, FIELDS["pretrained_cfg"])
    return _head(file, config, inputs, shown.classes)


def _head(file, config, inputs, classes):
    # transformers, which wraps timm's models, has settings of its own for them.
    labels = description.head_of_labels(file, config, classes)
    names = _names(file, config, inputs, classes)
    if None not in (names, labels.class_names) and names != labels.class_names:
        raise CheckpointError(
            f"{file} has an id2label of other names than its label_names: take the "
            "wrong one out."
        )
    return dataclasses.replace(labels, class_names=names or labels.class_names)


def _names(file, config, inputs, classes):
    """Returns the names of a head's outputs, as they are shown to people."""
    for field in ("label_names", "labels"):
        said = config.get(field) or inputs.get(field)
        if names := description.names_of_outputs(file, field, said, classes):
            break
    else:
        return None
    about = config.get("label_descriptions") or inputs.get("label_descriptions") or {}
    # Of data sets whose labels are ids the descriptions are the names.
    if all(map(_LABEL_ID.fullmatch, names)) and about.keys() >= {*names}:
        found = [about[name] for name in names]
        names = description.names_of_outputs(file, "label_descriptions", found, classes)
    return names


def _preparation(file, inputs):
    """Returns how photos come to the size, None where nothing of that is said."""
    # As timm, which passes over what is empty.
    said = {name: inputs[name] for name in _EVALUATION if inputs.get(name)}
    if not said:
        return None
    said = {**_EVALUATION, **said}
    for name, known in (("crop_mode", _FITS), ("interpolation", INTERPOLATIONS)):
        if said[name] not in known:
            raise CheckpointError(
                f"{file} has a {name} of {brief(said[name])}: only "
                f"{', '.join(known)} are computed; write the one that is nearest to it."
            )
    fit, share = _FITS[said["crop_mode"]], float(said["crop_pct"])
    return str(Preparation("timm", fit, said["interpolation"], share))


def _norms(said, is_eva):
    """Returns whether there is a final norm, and whether it follows the pooling."""
    # As timm: without a word the norm follows a mean.
    after = said["global_pool"] == "avg" if said["fc_norm"] is None else said["fc_norm"]
    if is_eva:
        # Two norms, each with a switch of its own.
        return bool(after) or said["final_norm"] is not False, bool(after)
    final = said["final_norm"] is not False
    return final, bool(after) and final


def _class_of(named_as):
    """Returns `"beit"` or `"eva"` for the classes of these names, else another word."""
    return (named_as or "").partition(" ")[0]


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
    named_as = implied.get("named_as", "")
    kind = _class_of(named_as)
    if config.qkv_bias == "query and value" and named_as not in _BIASES_APART:
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
    # But its class Eva does that itself.
    gated = config.activation == "swiglu"
    expanded = checkpoint.mlp_dim * (2 if gated and kind != "eva" else 1)
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
    if kind == "beit":
        _check_beit(checkpoint)
        if config.tokens_with_positions == "all":
            arguments["use_abs_pos_emb"] = True
    if kind in _ARGUMENTS and config.activation not in ("swiglu", "gelu"):
        raise ValueError(
            f"timm's {kind} computes the exact GELU, not {config.activation}"
        )
    if not (gated or kind in _ARGUMENTS):
        arguments["act_layer"] = config.activation
    if implied.get("pooling_heads") not in (None, checkpoint.pooling_heads):
        raise ValueError(
            f"timm's attention pooling has {implied['pooling_heads']} heads, not "
            f"{checkpoint.pooling_heads}"
        )
    first_convolution = "patch_embed.proj"
    if stages is not None:
        first_convolution = f"patch_embed.backbone.{'stem.' if stages else ''}conv"
    pooled = {"map": "map", "gap": "avg"}.get(checkpoint.pooling, "token")
    own_grid = list(config.rotary_grid) if config.rotary_grid else None
    others = {
        "ref_feat_shape": own_grid,
        "rope_temperature": config.rotary_base,
        "global_pool": pooled,
        "fc_norm": config.norm_after_pooling if pooled == "avg" else None,
        "final_norm": None if config.final_norm else False,
        "class_token": checkpoint.class_token,
        # A starting value; the arrays have those of the file.
        "init_values": 1e-5 if config.layer_scale else None,
        "reg_tokens": config.num_registers,
        "no_embed_class": config.tokens_with_positions == "patches",
        "qkv_bias": config.qkv_bias,
    }
    by_default = {"init_values": None, "reg_tokens": 0, "no_embed_class": False}
    by_default |= {"qkv_bias": True, "class_token": True}
    by_default |= {"ref_feat_shape": None, "rope_temperature": None}
    by_default |= {"global_pool": "avg" if kind == "eva" else "token"}
    by_default |= {"fc_norm": None, "final_norm": None, **implied}
    if by_default["init_values"]:
        by_default["init_values"] = 1e-5
    arguments |= {
        name: value for name, value in others.items() if value != by_default[name]
    }
    if arguments.get("qkv_bias") == "query and value":
        arguments["qkv_bias"] = True
    if kind in _ARGUMENTS:
        theirs = {ours: name for name, ours in _ARGUMENTS[kind].items()}
        arguments = {theirs.get(name, name): arguments[name] for name in arguments}
    classes = checkpoint.classes or 0
    if named_as == "naflex":
        # The grid of its positions, whatever the size of an image.
        del arguments["img_size"]
        arguments["pos_embed_grid_size"] = list(checkpoint.grid_size)
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
            **_evaluation(checkpoint),
        },
    }
    if checkpoint.class_names is not None:
        config["label_names"] = list(checkpoint.class_names)
    return {_CONFIG: config}


def _evaluation(checkpoint):
    """Returns how timm brings photos to the size, as near as it can."""
    said = Preparation.nearest(checkpoint.head.preparation, "timm")
    return {
        "crop_pct": said.share,
        "crop_mode": "center" if said.fit == "crop" else "squash",
        "interpolation": said.interpolation,
    }


# EVA's attention of its own, and timm's SBB, by their biases.
_ROPE = {
    False: "vit_mediumd_patch16_rope_reg1_gap_256",
    "query and value": "vit_base_patch16_rope_reg1_gap_256",
}


def _written_as(checkpoint):
    """Returns an architecture that implies what no argument can say."""
    config = checkpoint.config
    # Of all networks of timm, NaFlex alone resizes so.
    naflex = checkpoint.pooling == "map" and config.position_resizing == "bilinear"
    swiglu = config.activation == "swiglu"
    rotary = config.rotary
    normed = config.mlp_norm_inside, config.attention_norm_inside
    biases = {False: "", "query and value": "_qkvb"}.get(config.qkv_bias)
    dinov3 = f"vit_{'small_plus' if swiglu else 'base'}_patch16_dinov3{biases}"
    eva = {
        (True, False): "eva02_base_patch14_448",
        (True, True): "eva02_base_patch16_clip_224",
    }.get(normed, "eva02_tiny_patch14_336" if swiglu else _ROPE.get(config.qkv_bias))
    positions = "ape_" if config.tokens_with_positions != "none" else ""
    axial = f"vit_base_patch16_rope_{positions}224"
    # Of timm's two networks, that with biases of queries and values has it in EVA.
    is_eva = config.qkv_bias == "query and value"
    after = f"{'eva02_enormous_patch14_clip' if is_eva else 'vit_base_patch16_rpn'}_224"
    # With a class token the coordinates of patches begin at 1.
    perception = {
        (True, True): "vit_pe_core_base_patch16_224",
        (True, False): "vit_pe_core_gigantic_patch14_448",
        (False, True): "vit_pe_spatial_base_patch16_512",
        (False, False): "vit_pe_spatial_gigantic_patch14_448",
    }[bool(config.final_norm), checkpoint.class_token]
    kinds = {
        "deit_base_distilled_patch16_224": checkpoint.pooling == "distilled",
        "vit_giant_patch14_dinov2": swiglu and rotary == "none",
        "vit_base_patch16_clip_224": config.norm_before_blocks and rotary == "none",
        "naflexvit_base_patch16_siglip": naflex,
        "vit_base_patch16_siglip_224": checkpoint.pooling == "map"
        and rotary == "none"
        and not naflex,
        "flexivit_base": config.position_resizing == "bilinear_no_antialias",
        dinov3: rotary == "dinov3" and biases is not None,
        eva: rotary == "eva" and eva is not None,
        axial: rotary == "axial",
        after: config.norm_after_branches,
        "beit3_base_patch16_224": all(normed) and not swiglu,
        "beit_base_patch16_224": config.relative_position_bias,
        perception: rotary == "perception",
        "eva_giant_patch14_224": rotary == "none"
        and config.qkv_bias == "query and value"
        and not (swiglu or config.norm_after_branches or config.relative_position_bias),
    }
    kinds = [name for name, fits in kinds.items() if fits]
    if kinds[1:]:
        raise ValueError(f"timm has no network like {' and '.join(kinds)} at once")
    if checkpoint.pooling == "token_and_gap":
        raise ValueError("timm's heads read the class token or the mean, not both")
    if not is_eva and config.norm_after_branches and config.layer_scale:
        raise ValueError("timm has no network with norms after branches and LayerScale")
    if config.distillation_token and checkpoint.pooling != "distilled":
        raise ValueError("timm's distilled DeiT has two heads, and this has one")
    return (*kinds, "vit_base_patch16_224")[0]


def _check_beit(checkpoint):
    """Makes sure that a network is one that timm's BEiT can be."""
    config = checkpoint.config
    others = {
        "biases of keys": config.qkv_bias is True,
        "registers": bool(config.num_registers),
        "no class token": not checkpoint.class_token,
        "norms inside": config.mlp_norm_inside or config.attention_norm_inside,
        f"positions of {config.tokens_with_positions}": (
            config.tokens_with_positions not in ("all", "none")
        ),
    }
    if wrong := [what for what, is_so in others.items() if is_so]:
        raise ValueError(f"timm's BEiT has no network with {', '.join(wrong)}")


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
    arrays = {
        name.replace(_STEM, "patch_embed.backbone."): arrays[name] for name in arrays
    }
    named_as = architectures.implied(_written_as(checkpoint)).get("named_as", "")
    if named_as == "naflex":
        return _flat(arrays, checkpoint)
    return _apart(arrays, named_as, checkpoint) if named_as else arrays


def _flat(arrays, checkpoint):
    """Returns arrays as timm's NaFlex has them, undoing `select`."""
    found = {}
    for name, array in arrays.items():
        if name == "patch_embed.proj.weight":
            array = flat_patches(array)
        if name == "pos_embed":
            array = array.reshape((1, *checkpoint.grid_size, -1))
        of_embeds = name.startswith(("patch_embed.", "pos_embed", "reg_", "cls_"))
        name = name.removeprefix("patch_embed.")
        found[f"embeds.{name}" if of_embeds else name] = array
    return found


def _apart(arrays, named_as, checkpoint):
    """Returns arrays as timm's EVA has them, undoing `joined` and `select`."""
    found = {}
    unfused, fused = named_as.endswith(" unfused"), named_as.endswith(" fused")
    halves = checkpoint.config.activation == "swiglu" and _has_halves(checkpoint)
    for name, array in arrays.items():
        stem, _, part = name.partition(".attn.qkv.")
        mlp, _, of_mlp = name.partition(".mlp.fc1.")
        if part == "bias" and not fused:
            thirds = zip(
                _QKV_BIAS if unfused else _FUSED_BIAS, np.split(array, 3), strict=True
            )
            found |= {stem + key: third for key, third in thirds if "k_" not in key}
        elif part and unfused:
            thirds = zip(_QKV, np.split(array, 3), strict=True)
            found |= {stem + key: third for key, third in thirds}
        elif of_mlp and halves:
            _, keys = _APART[f".mlp.fc1_g.{of_mlp}"]
            parts = zip(keys, np.split(array, 2), strict=True)
            found |= {mlp + key: half for key, half in parts}
        else:
            for theirs, ours in _EVA.items():
                name = name.replace(ours, theirs)
            found[name] = array
    return found


def _has_halves(checkpoint):
    # Of timm's SwiGLU, those of EVA-02's tiny and small models are packed.
    config = checkpoint.config
    return config.mlp_norm_inside or config.rotary == "dinov3"
