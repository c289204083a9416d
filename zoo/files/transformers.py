"""Checkpoints of Hugging Face transformers' `ViTModel` and its kin.

`transformers_fields.csv` has each field of its configurations, those of older versions
too, and `configuration_fields.csv` what all types have (`fields.py`).
"""

import dataclasses
import pathlib
import re
from typing import NamedTuple

import numpy as np

from zoo.files import description, fields, image_processors
from zoo.files.architectures import INPUTS
from zoo.files.archive import CheckpointError
from zoo.files.comparison import APART, BIASES, Shown
from zoo.files.description import Description
from zoo.files.names import flat_patches
from zoo.files.timm import may_be_joined
from zoo.head import Head
from zoo.network import ROTARY_BASES, ViTConfig
from zoo.text import brief

COLUMN = "transformers"
DEFAULTS = ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-12)

_CONFIG = "config.json"
BESIDE = (_CONFIG, *image_processors.FILES)
# As `timm.SHARED_BIASES`.
SHARED_BIASES = (
    "encoder.relative_position_bias.relative_position_bias_table",
    "encoder.layer.{}.attention.attention.relative_position_bias."
    "relative_position_bias_table",
)
# The last two forms are of CLIP, SigLIP and DINOv3, only to say what they are.
KEYS = re.compile(
    r"(^|\.)embeddings\.(patch_embeddings\.projection|patch_embeddings?)\.weight$|"
    # TIPSv2, the rest of whose names is that of timm.
    r"^(vision_encoder\.)?register_tokens$"
)
_ACTIVATIONS = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_WRITTEN = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
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
# Of pre-training and other towers; the network of the images has no use for them.
_UNUSED = re.compile(
    r"(\w+\.)?(embeddings\.)?(mask_token|position_ids)$|decoder\.|lm_head\.|"
    r".*\.relative_position_index$"
)
_UNUSED_OF_TWO = re.compile(
    r"(\w+\.)?(embeddings\.)?(mask_token|position_ids)$|"
    r"temperature$|logit_(scale|bias)$|text_(model|encoder|projection)\."
)
REASONS = {
    # Of its two classes for segmentation.
    r"^(decode_head|auxiliary_head)\.": "it has a head that segments images",
}


class _Type(NamedTuple):
    """What a `model_type` implies: the defaults of its classes, and its names."""

    prefix: str
    activation: str = "gelu"
    epsilon: float = 1e-12
    heads: int = 12
    class_token: bool = True
    registers: int = 0
    layer_scale: bool = False
    distillation_token: bool = False
    tokens_with_positions: str = "all"
    position_resizing: str = "bicubic_no_antialias"
    inputs: str = "half"
    # The class of its image processor, a key of `image_processors`.
    processor: str = "ViT"
    # Pairs of parts of names: in files, and in the column of `names.TABLE`.
    renamed: tuple = ()
    renamed_with_gates: tuple = ()
    norm_before_blocks: bool = False
    rotary: str = "none"
    relative_position_resizing: str | None = None
    column: str = COLUMN


_DINOV2_NORMS = (
    (".norm1.", ".layernorm_before."),
    (".norm2.", ".layernorm_after."),
)
_DINOV2 = _Type(
    "dinov2.",
    epsilon=1e-6,
    layer_scale=True,
    inputs="clip",
    processor="Bit",
    renamed=(
        *_DINOV2_NORMS,
        (".mlp.fc1.", ".intermediate.dense."),
        (".mlp.fc2.", ".output.dense."),
    ),
    renamed_with_gates=(
        *_DINOV2_NORMS,
        (".mlp.weights_in.", ".intermediate.dense."),
        (".mlp.weights_out.", ".output.dense."),
    ),
)
_TIPSV2 = _DINOV2._replace(
    prefix="vision_encoder.",
    registers=1,
    tokens_with_positions="class token and patches",
    position_resizing="bilinear",
    inputs="unit",
    processor="Tipsv2",
    renamed=(
        ("register_tokens", "reg_token"),
        (".mlp.c_fc.", ".mlp.fc1."),
        (".mlp.c_proj.", ".mlp.fc2."),
    ),
    renamed_with_gates=(
        ("register_tokens", "reg_token"),
        (".mlp.w12.", ".mlp.fc1."),
        (".mlp.w3.", ".mlp.fc2."),
    ),
    column="timm",
)
_SIGLIP = _Type(
    "vision_model.",
    activation="gelu_pytorch_tanh",
    epsilon=1e-6,
    class_token=False,
    processor="Siglip",
    renamed=(
        ("embeddings.class_embedding", "embeddings.cls_token"),
        ("embeddings.patch_embedding.", "embeddings.patch_embeddings.projection."),
        ("embeddings.position_embedding.weight", "embeddings.position_embeddings"),
        ("encoder.layers.", "encoder.layer."),
        (".layer_norm1.", ".layernorm_before."),
        (".layer_norm2.", ".layernorm_after."),
        (".self_attn.q_proj.", ".attention.attention.query."),
        (".self_attn.k_proj.", ".attention.attention.key."),
        (".self_attn.v_proj.", ".attention.attention.value."),
        (".self_attn.out_proj.", ".attention.output.dense."),
        (".mlp.fc1.", ".intermediate.dense."),
        (".mlp.fc2.", ".output.dense."),
        ("post_layernorm.", "layernorm."),
        ("head.attention.in_proj_", "head.attention.in_proj."),
    ),
)
# Of any number of patches, which it has flattened.
_NAFLEX = _SIGLIP._replace(position_resizing="bilinear", processor="Siglip2")
_CLIP = _SIGLIP._replace(
    activation="quick_gelu",
    epsilon=1e-5,
    class_token=True,
    norm_before_blocks=True,
    inputs="clip",
    processor="CLIP",
    renamed=(*_SIGLIP.renamed, ("visual_projection.", "classifier.")),
)
_DINOV3 = _DINOV2._replace(
    prefix="",
    epsilon=1e-5,
    heads=6,
    tokens_with_positions="none",
    rotary="dinov3",
    inputs="imagenet",
    processor="DINOv3ViT",
    renamed=(
        ("^layer.", "^encoder.layer."),
        ("^norm.", "^layernorm."),
        *_DINOV2_NORMS,
        ("embeddings.patch_embeddings.", "embeddings.patch_embeddings.projection."),
        (".attention.q_proj.", ".attention.attention.query."),
        (".attention.k_proj.", ".attention.attention.key."),
        (".attention.v_proj.", ".attention.attention.value."),
        (".attention.o_proj.", ".attention.output.dense."),
        (".mlp.up_proj.", ".intermediate.dense."),
        (".mlp.down_proj.", ".output.dense."),
    ),
    renamed_with_gates=(),
)
_BEIT = _Type(
    "beit.",
    layer_scale=True,
    processor="Beit",
    tokens_with_positions="none",
    relative_position_resizing="bilinear_no_antialias",
    renamed=(
        (".lambda_1", ".layer_scale1.lambda1"),
        (".lambda_2", ".layer_scale2.lambda1"),
    ),
)
_DATA2VEC = _BEIT._replace(prefix="data2vec_vision.")
# Its gates, and the values behind them, are one array elsewhere.
_GATE, _VALUES = ".mlp.gate_proj.", ".intermediate.dense."
_TYPES = {
    "vit": _Type("vit."),
    "deit": _Type("deit.", distillation_token=True, processor="DeiT"),
    "vit_mae": _Type("vit."),
    "vit_msn": _Type("vit.", epsilon=1e-6),
    "ijepa": _Type("ijepa.", class_token=False),
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2._replace(
        prefix="dinov2_with_registers.",
        registers=4,
        tokens_with_positions="class token and patches",
        position_resizing="bicubic",
        inputs="imagenet",
    ),
    "tipsv2_vision_model": _TIPSV2,
    "tipsv2": _TIPSV2,
    "siglip_vision_model": _SIGLIP,
    "siglip": _SIGLIP,
    "siglip2_vision_model": _NAFLEX,
    "siglip2": _NAFLEX,
    **{
        f"{name}{tower}": _CLIP
        for name in ("clip", "metaclip_2", "altclip", "chinese_clip")
        for tower in ("_vision_model", "")
    },
    "dinov3_vit": _DINOV3,
    "beit": _BEIT,
    "data2vec-vision": _DATA2VEC,
}
_BEITS = (_BEIT, _DATA2VEC)
# Those in messages, without the names of single towers.
_NAMED = tuple(dict.fromkeys(name.removesuffix("_vision_model") for name in _TYPES))
_POOLER = re.compile(r"(^|\.)pooler\.layernorm\.weight$")
_ROPE = {"rope_type": "default", "rope_theta": 0}
_TWO_TOWERS = re.compile(r"(CLIP|MetaClip2|AltCLIP|ChineseCLIP)Model")
_BEIT_KEYS = re.compile(r"\.lambda_[12]$|relative_position_bias_table$")
# Their names of sizes, and ours.
_SIZES = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "mlp_dim",
    "num_channels": "channels",
}
FIELDS = fields.OF_EVERY_TYPE | fields.table("transformers_fields.csv")
_OF_BOTH = "of another tower"
_PREFIXES = tuple({kind.prefix for kind in _TYPES.values() if kind.prefix})


def _named_as(keys):
    """Returns a type of the names that keys have."""
    if any(".self_attn." in key for key in keys):
        return _CLIP
    if any(key.endswith("embeddings.patch_embeddings.weight") for key in keys):
        return _DINOV3
    if any(key.endswith("register_tokens") and "embeddings" not in key for key in keys):
        return _TIPSV2
    if any(map(_BEIT_KEYS.search, keys)):
        return _BEIT
    return _DINOV2


def column(keys) -> str:
    """Returns the column of `names.TABLE` that has the names of `select`."""
    return _named_as(keys).column


def select(keys) -> dict[str, str]:
    """Returns {key: name in `names.TABLE`} of the model's arrays."""
    chosen = {}
    classifies = any(key.startswith(("classifier.", "cls_classifier.")) for key in keys)
    kind = _named_as(keys)
    of_two = kind in (_CLIP, _TIPSV2)
    # The classifier reads the tokens themselves.
    unused_heads = ("head." if of_two else "pooler.dense.",) if classifies else ()
    if classifies and any(key.endswith("embeddings.class_embedding") for key in keys):
        # CLIP's classifiers read the tokens before the last norm.
        unused_heads += ("post_layernorm.",)
    idle = _UNUSED_OF_TWO if of_two else _UNUSED
    renamed = dict((*kind.renamed, *kind.renamed_with_gates))
    for key in keys:
        prefix = next(filter(key.startswith, _PREFIXES), "")
        name = key.removeprefix(prefix)
        if name.startswith(unused_heads) or idle.match(key):
            continue
        if kind is _DINOV3:
            name = name.removeprefix("model.")
        if kind is _DINOV2:
            for pattern, replacement in _RENAMED.items():
                name = re.sub(pattern, replacement, name)
        for theirs, ours in renamed.items():
            # The MLP of an attention pooling is called so by all.
            if not (theirs.startswith(".mlp") and name.startswith("head.")):
                name = _replaced(name, theirs, ours)
        chosen[key] = name.replace("cls_classifier.", "classifier.")
    return chosen


def _replaced(name, old, new):
    """Returns a name with a part of it replaced, its start where that begins with ^."""
    if not old.startswith("^"):
        return name.replace(old, new)
    is_start = name.startswith(old[1:])
    return new[1:] + name.removeprefix(old[1:]) if is_start else name


def joined(arrays: dict) -> tuple[dict, bool]:
    """Joins gates and values, and says whether keys have biases where queries do."""
    found = {}
    for name, array in arrays.items():
        gate = name.replace(_VALUES, _GATE) if _VALUES in name else None
        if gate in arrays and may_be_joined((arrays[gate], array)):
            found[name] = np.concatenate([np.asarray(arrays[gate]), np.asarray(array)])
        elif _GATE not in name or name.replace(_GATE, _VALUES) not in arrays:
            found[name] = array
    return found, True


def of_type(file: pathlib.Path, model_type: str) -> _Type:
    """Returns what a `model_type` implies, and refuses one not known."""
    if (kind := _TYPES.get(model_type)) is None:
        raise CheckpointError(
            f"{file} describes a model of type {brief(model_type)}, which is not read: "
            f"only {', '.join(_NAMED)} are."
        )
    return kind


def describe(folder: pathlib.Path, shown: Shown) -> Description:
    """Returns what the settings beside a file say, transformers' defaults elsewhere."""
    file = folder / _CONFIG
    config = _settings(file)
    model_type = fields.name_of_network(file, config, FIELDS, "model_type")
    if model_type is None:
        config, kind = {}, _TYPES["vit"]
        shown.check_plain(folder, COLUMN)
    else:
        kind = of_type(file, model_type)
        _check_names(file, config, kind, shown.keys)
    head = _head(file, config, shown.classes)
    heads = _heads_of(config)
    # Of two towers, that of the images.
    config = _tower(file, config, kind)
    _check_fields(file, config)
    gated = config.get("use_swiglu_ffn", config.get("use_gated_mlp", False))
    shown.check_sizes(file, config, _SIZES)
    if shown.patches.stride[0] == shown.patches.stride[1]:
        shown.check_sizes(file, config, {"patch_size": "patch_height"})
    if "mlp_ratio" in config:
        name, width = "mlp_ratio times hidden_size", shown.facts["hidden_size"]
        stated = {name: _mlp_size(width, config["mlp_ratio"], gated)}
        shown.check_sizes(file, stated, {name: "mlp_dim"})
    activation = config.get("hidden_act", kind.activation)
    # DINOv3's gates have the activation of the settings, those of DINOv2 always SiLU.
    is_gate = gated and kind is _DINOV3
    if is_gate and activation == "silu":
        activation = kind.activation
    elif is_gate:
        raise CheckpointError(
            f"{file} has gates of hidden_act {brief(activation)}: only silu is "
            "supported."
        )
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{file} has hidden_act {activation!r}: only "
            f"{', '.join(_ACTIVATIONS)} are supported."
        )
    inputs = image_processors.read(folder, INPUTS[kind.inputs], kind.processor)
    network = ViTConfig.released(
        num_heads=config.get("num_attention_heads", kind.heads if config else None),
        activation="swiglu" if gated else _ACTIVATIONS[activation],
        layer_norm_epsilon=config.get("layer_norm_eps", kind.epsilon),
        input_mean=inputs.mean,
        input_std=inputs.std,
    )
    families = {
        "layer_scale": kind.layer_scale,
        "num_registers": config.get("num_register_tokens", kind.registers),
        "distillation_token": kind.distillation_token,
        "qkv_bias": _biases(file, config)
        if kind is _DINOV3
        else config.get("qkv_bias", True),
        "norm_before_blocks": kind.norm_before_blocks,
        "norm_after_pooling": False,
        "attention_norm_inside": False,
        "mlp_norm_inside": False,
        "relative_position_bias": False,
    }
    covered = "all"
    if families["num_registers"] or kind is _DINOV3:
        covered = kind.tokens_with_positions
    pooling = None
    biases = BIASES[False, False]
    if kind in _BEITS:
        own, covered, pooling, biases = _of_beit(file, config, shown.keys)
        families |= own
    if kind is _CLIP and "classifier.weight" in shown.keys:
        families["final_norm"], pooling = False, "gap"
    if model_type is not None:
        stated = {
            **families,
            **heads,
            "class_token": kind.class_token,
            "gates": gated,
            "flat_patches": kind is _NAFLEX,
            "relative position biases": biases,
        }
        if config.get("vision_use_head") is False:
            stated["attention_pooling"] = False
        shown.check(file, f"a model of type {model_type!r}", stated)
    network = dataclasses.replace(
        network,
        **families,
        rotary=kind.rotary,
        rotary_base=_rotary_base(file, config),
        tokens_with_positions=covered,
        position_resizing=kind.position_resizing,
        relative_position_resizing=kind.relative_position_resizing,
    )
    grid = description.grid_of(config.get("image_size"), config.get("patch_size"))
    if kind in _BEITS and grid is not None and grid[0] != grid[1]:
        raise CheckpointError(
            f"{file} has an image_size that makes a grid of {grid[0]}x{grid[1]} "
            "patches, of whose relative positions transformers' BEiT confuses rows "
            "and columns: only square ones are read."
        )
    head = dataclasses.replace(head, preparation=inputs.preparation)
    return Description(network, grid, pooling, head=head)


def head_of(folder: pathlib.Path, shown: Shown) -> Head:
    """Returns what settings beside a file say of its outputs: names, and meaning."""
    file = folder / _CONFIG
    return _head(file, _settings(file), shown.classes)


def _settings(file):
    config = description.read_json(file)
    fields.check_types(file, config, FIELDS)
    return config


def _class_of(config):
    """Returns the name of the class that wrote settings, "" where they say none."""
    return ([*(config.get("architectures") or ()), ""])[0]


def _head(file, config, classes):
    classes = None if _projects(config) else classes
    return description.head_of_labels(file, config, classes)


def _projects(config):
    """Returns whether the outputs are features, which a projection ends in."""
    name = _class_of(config)
    return name.endswith("WithProjection") or bool(_TWO_TOWERS.fullmatch(name))


def _heads_of(config):
    """Returns which heads the class has that wrote settings; {} if it is not known."""
    name, projects = _class_of(config), _projects(config)
    classifies = "ForImageClassification" in name and config.get("id2label") != {}
    if not (projects or classifies or name.endswith("Model")):
        return {}
    teacher = name.endswith("WithTeacher")
    return {"head": projects or classifies, "second_head": teacher}


def _of_beit(file, config, keys):
    """Returns families, tokens with positions, pooling and biases of a BEiT."""
    by_default = {
        "use_relative_position_bias": False,
        "use_shared_relative_position_bias": False,
        "use_absolute_position_embeddings": False,
        "use_mean_pooling": True,
    }
    said = {name: config.get(name, value) for name, value in by_default.items()}
    own, shared, absolute, mean = said.values()
    if not any((own, shared, absolute)):
        raise CheckpointError(
            f"{file} has no positions of any kind, learned or relative, which is not "
            "read: no published BEiT is without."
        )
    # That for masked patches has a norm of its own before its head.
    kind = _class_of(config)
    masked = kind == "BeitForMaskedImageModeling"
    # Data2Vec's class without a head has no pooling, and so no norm, by default.
    bare = kind.endswith("Model") and not any(map(_POOLER.search, keys))
    families = {
        "layer_scale": config.get("layer_scale_init_value", 0.1) > 0,
        "qkv_bias": "query and value",
        "norm_after_pooling": mean and not (masked or bare),
        "final_norm": not (mean and bare),
        "relative_position_bias": own or shared,
    }
    covered, pooling = "all" if absolute else "none", "gap" if mean else "token"
    return families, covered, pooling, BIASES[own, shared]


def _check_names(file, config, kind, keys):
    """Refuses arrays in the names of another type."""
    model_type = config["model_type"]
    prefixes = {prefix for prefix in _PREFIXES for k in keys if k.startswith(prefix)}
    if _named_as(keys) not in _names_of(kind) or prefixes - {kind.prefix}:
        raise CheckpointError(
            f"{file} describes a model of type {model_type!r}, and the arrays have the "
            f"names of another type: {APART}"
        )


def _names_of(kind):
    """Returns what `_named_as` may return for the arrays of a type."""
    if kind.prefix == _CLIP.prefix:
        return (_CLIP,)
    if kind in _BEITS:
        return (_BEIT, _DINOV2)  # the latter's where it has neither biases nor factors
    return (kind,) if kind in (_DINOV3, _TIPSV2) else (_DINOV2,)


def _tower(file, config, kind):
    """Returns the settings of the tower of images, those themselves where it is one."""
    again = config.get("vision_config_dict") or {}
    if "vision_config" not in config and not again:
        return config
    tower = config.get("vision_config", {})
    if tower is None:
        description.refuse_null(file, ["vision_config"])
    fields.check(file, config, FIELDS)
    for table in (tower, again):
        fields.check_types(file, table, FIELDS)
    model_type = tower.get("model_type")
    if model_type is not None and _TYPES.get(model_type) is not kind:
        raise CheckpointError(
            f"{file} describes a model of type {config.get('model_type')!r} with a "
            f"tower of type {brief(model_type)}: keep each model in a folder of its "
            "own, beside its own settings."
        )
    _check_twice(file, kind, tower, again)
    return tower | again


def _check_twice(file, kind, tower, again):
    """Refuses a vision_config_dict that would change what vision_config says."""
    if not again:
        return
    by_default = {
        "hidden_act": kind.activation,
        "layer_norm_eps": kind.epsilon,
        "num_attention_heads": kind.heads,
    }
    wrong = [
        name
        for name, value in (by_default | again).items()
        if name in FIELDS
        and FIELDS[name].is_computed
        and tower.get(name, value) != value
    ]
    if wrong:
        raise CheckpointError(
            f"{file} has a vision_config_dict and a vision_config of different "
            f"{', '.join(wrong)}: take the one out that the model was not trained with."
        )


def _check_fields(file, config):
    """Refuses fields of one tower that are not known, or have no or another value."""
    description.refuse_null(
        file,
        [
            name
            for name, field in FIELDS.items()
            if config.get(name, ...) is None
            and field.is_computed
            and (field.use != "implied" or field.implied is not None)
        ],
    )
    known = {name: FIELDS[name] for name in FIELDS if FIELDS[name].use != _OF_BOTH}
    fields.check(file, config, known)


def _biases(file, config):
    """Returns `qkv_bias` of the settings of a DINOv3."""
    names = ("query_bias", "key_bias", "value_bias")
    has = tuple(config.get(name, name != "key_bias") for name in names)
    known = {(True, False, True): "query and value", (False,) * 3: False}
    known[True, True, True] = True
    if has not in known:
        raise CheckpointError(
            f"{file} has settings that are not supported: "
            f"{dict(zip(names, has, strict=True))}."
        )
    return known[has]


def _rotary_base(file, config):
    """Returns the base of rotary positions, None where nothing states one."""
    parameters = config.get("rope_parameters", {})
    tables = (config, parameters)
    bases = [table["rope_theta"] for table in tables if "rope_theta" in table]
    kind = {"rope_type": "default", **parameters}
    if len(set(bases)) > 1 or kind | {"rope_theta": 0} != _ROPE:
        raise CheckpointError(
            f"{file} has settings that are not supported: rope_parameters="
            f"{brief(parameters)} (only rope_type 'default', and one rope_theta)."
        )
    return bases[0] if bases else None


# Of each type, the classes without and with a head.
_CLASSES = {
    "vit": ("ViTModel", "ViTForImageClassification"),
    "deit": ("DeiTModel", "DeiTForImageClassification"),
    "ijepa": ("IJepaModel", "IJepaForImageClassification"),
    "dinov2": ("Dinov2Model", "Dinov2ForImageClassification"),
    "dinov2_with_registers": (
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersForImageClassification",
    ),
    "tipsv2_vision_model": ("Tipsv2VisionModel", None),
    "siglip_vision_model": ("SiglipVisionModel", "SiglipForImageClassification"),
    "siglip2_vision_model": ("Siglip2VisionModel", None),
    "clip_vision_model": ("CLIPVisionModel", "CLIPVisionModelWithProjection"),
    "dinov3_vit": ("DINOv3ViTModel", None),
    "beit": ("BeitModel", "BeitForImageClassification"),
    "data2vec-vision": ("Data2VecVisionModel", None),
}
# What the head of each class reads, where it is not the class token alone.
_HEADS = {
    "deit": ("token", "distilled"),
    "ijepa": ("gap",),
    "dinov2": ("token_and_gap",),
    "dinov2_with_registers": ("token_and_gap",),
    "siglip_vision_model": ("gap",),
    # Its projection, and its classifier.
    "clip_vision_model": ("token", "gap"),
    "beit": ("token", "gap"),
}


def _type_of(checkpoint):
    """Returns the `model_type` that a checkpoint is written as."""
    config = checkpoint.config
    if config.rotary == "dinov3":
        name = "dinov3_vit"
    elif config.relative_position_bias:
        # Without a norm behind the mean, of which Data2Vec's class has none.
        bare = not config.final_norm and checkpoint.pooling == "gap"
        name = "data2vec-vision" if bare else "beit"
    elif config.layer_scale:
        name = "dinov2"
        if config.num_registers:
            tipsv2 = config.position_resizing == "bilinear"
            name = "tipsv2_vision_model" if tipsv2 else "dinov2_with_registers"
    elif config.distillation_token:
        name = "deit"
    elif config.norm_before_blocks:
        name = "clip_vision_model"
    elif checkpoint.pooling_heads or (
        not checkpoint.class_token and config.activation == "gelu_tanh"
    ):
        naflex = config.position_resizing == "bilinear"
        name = "siglip2_vision_model" if naflex else "siglip_vision_model"
    else:
        name = "vit" if checkpoint.class_token else "ijepa"
    kind, (_, classifier) = _TYPES[name], _CLASSES[name]
    head = checkpoint.classes is not None
    bare = name == "data2vec-vision" or _is_classifier_of_clip(name, checkpoint)
    wanted = {
        "a class token": (kind.class_token, checkpoint.class_token),
        "registers": (
            bool(config.num_registers) if kind is _DINOV3 else bool(kind.registers),
            bool(config.num_registers),
        ),
        "other rotary positions": (kind.rotary != "none", config.rotary != "none"),
        "norms elsewhere": (
            False,
            config.attention_norm_inside
            or config.mlp_norm_inside
            or config.norm_after_branches,
        ),
        "a distillation token": (kind.distillation_token, config.distillation_token),
        "a norm before the blocks": (
            kind.norm_before_blocks,
            config.norm_before_blocks,
        ),
        "a final norm": (not bare, config.final_norm),
        "a norm after the pooling": (
            kind is _BEIT and checkpoint.pooling == "gap",
            config.norm_after_pooling,
        ),
        "biases of keys": (
            kind not in _BEITS and config.qkv_bias is True,
            config.qkv_bias is True,
        ),
        "a head": (head and classifier is not None, head),
        "gates in its MLPs": (
            kind not in _BEITS and kind.layer_scale and config.activation == "swiglu",
            config.activation == "swiglu",
        ),
    }
    for what, (has, needs) in wanted.items():
        if has != needs:
            raise ValueError(
                f"transformers' nearest network, {name!r}, is one "
                f"{'with' if has else 'without'} {what}"
            )
    reads = _HEADS.get(name, ("token",))
    if head and checkpoint.pooling not in reads:
        raise ValueError(
            f"transformers' nearest network, {name!r}, has a head on "
            f"{' or '.join(reads)}, and this one reads {checkpoint.pooling}"
        )
    if kind in _BEITS:
        _check_beit(checkpoint)
        return name
    there = kind.registers or kind is _DINOV3
    expected = kind.tokens_with_positions if there else "all"
    if config.tokens_with_positions != expected:
        raise ValueError(
            f"transformers' {name!r} has positions of {expected} tokens, and this of "
            f"{config.tokens_with_positions}"
        )
    return name


def _is_classifier_of_clip(name, checkpoint):
    """Returns whether a head reads the mean of patches, as CLIP's classifiers do."""
    clip = name == "clip_vision_model" and checkpoint.pooling == "gap"
    return clip and checkpoint.classes is not None


def _check_beit(checkpoint):
    """Makes sure that a network is one that transformers' BEiT can be."""
    config, grid = checkpoint.config, checkpoint.grid_size
    if config.qkv_bias != "query and value":
        raise ValueError("transformers' BEiT has biases of queries and values")
    if config.tokens_with_positions not in ("all", "none"):
        raise ValueError("transformers' BEiT has positions of all tokens, or none")
    if grid[0] != grid[1]:
        raise ValueError(
            f"transformers' BEiT confuses rows and columns of a grid of {grid[0]}x"
            f"{grid[1]} patches: take a model of square images"
        )


def settings(checkpoint) -> dict[str, dict]:
    """Returns {name: table} of the files that `from_pretrained` needs."""
    if checkpoint.resnet_stages is not None:
        raise ValueError("transformers has no hybrid models")
    name = _type_of(checkpoint)
    kind, (encoder, classifier) = _TYPES[name], _CLASSES[name]
    if checkpoint.pooling == "distilled":
        classifier = "DeiTForImageClassificationWithTeacher"
    classes, semantics = checkpoint.classes, checkpoint.semantics
    gated = semantics.activation == "swiglu"
    if classes is not None and checkpoint.representation_size is not None:
        raise ValueError(
            "transformers has no model with pre_logits before its head: leave the "
            "arrays of one of them out"
        )
    height, width = checkpoint.image_size
    config = {
        "architectures": [encoder if classes is None else classifier],
        "model_type": name,
        "hidden_size": checkpoint.hidden_size,
        "num_hidden_layers": checkpoint.num_layers,
        "num_attention_heads": checkpoint.num_heads,
        "intermediate_size": checkpoint.mlp_dim,
        "hidden_act": "gelu" if gated else _WRITTEN[semantics.activation],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": semantics.layer_norm_epsilon,
        "image_size": height if height == width else [height, width],
        "patch_size": checkpoint.config.patch_size,
        "num_channels": checkpoint.channels,
        "qkv_bias": semantics.qkv_bias is not False,
    }
    if kind is _NAFLEX:
        del config["image_size"]
        config["num_patches"] = checkpoint.num_positions
    if kind in (_SIGLIP, _NAFLEX):
        config["vision_use_head"] = checkpoint.pooling_heads is not None
    of_two = name == "siglip_vision_model" and classes is not None
    if _is_classifier_of_clip(name, checkpoint):
        of_two, config["architectures"] = True, ["CLIPForImageClassification"]
    elif name == "clip_vision_model" and classes is not None:
        config["projection_dim"] = classes
    if kind is _DINOV3:
        has = semantics.qkv_bias
        config |= {
            "use_gated_mlp": gated,
            "hidden_act": "silu" if gated else _WRITTEN[semantics.activation],
            "num_register_tokens": checkpoint.config.num_registers,
            "query_bias": has is not False,
            "key_bias": has is True,
            "value_bias": has is not False,
            "layerscale_value": 1.0,
            "rope_theta": checkpoint.config.rotary_base or ROTARY_BASES["dinov3"],
        }
    elif kind in _BEITS:
        del config["qkv_bias"]
        config |= {
            "use_mask_token": False,
            "use_absolute_position_embeddings": (
                checkpoint.config.tokens_with_positions == "all"
            ),
            "use_relative_position_bias": True,
            "use_shared_relative_position_bias": False,
            "layer_scale_init_value": float(
                0.1 if checkpoint.config.layer_scale else 0
            ),
            "use_mean_pooling": checkpoint.pooling == "gap",
        }
    elif kind.layer_scale:
        config |= {
            "mlp_ratio": _mlp_ratio(checkpoint, gated),
            "use_swiglu_ffn": gated,
            "layerscale_value": 1.0,
        }
        if kind.registers:
            config["num_register_tokens"] = checkpoint.config.num_registers
    if checkpoint.representation_size is not None:
        config["pooler_output_size"] = checkpoint.representation_size
    if classes is not None:
        names = checkpoint.class_names or description.placeholders(classes)
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
        if checkpoint.head.problem_type is not None:
            config["problem_type"] = checkpoint.head.problem_type
    if of_two:
        # The class with a head is one of two towers.
        own = ("architectures", "id2label", "label2id", "problem_type")
        outside = {key: config.pop(key) for key in own if key in config}
        both = name.removesuffix("_vision_model")
        config = {**outside, "model_type": both, "vision_config": config}
    processor = image_processors.write(checkpoint)
    return {_CONFIG: config, image_processors.FILES[0]: processor}


def _mlp_size(width, ratio, gated):
    """Returns the size of DINOv2's MLP, whose gates take a third of it."""
    found = int(width * ratio)
    return (int(found * 2 / 3) + 7) // 8 * 8 if gated else found


def _mlp_ratio(checkpoint, gated):
    """Returns the ratio from which DINOv2's classes find the size of the MLP."""
    size, width = checkpoint.mlp_dim, checkpoint.hidden_size
    # A whole number where there is one, which its classes insist on.
    for ratio in range(1, 2 + 2 * size // width):
        if _mlp_size(width, ratio, gated) == size:
            return ratio
    ratio = (3 * size // 2 if gated else size) / width
    if _mlp_size(width, ratio, gated) != size:
        raise ValueError(f"transformers' DINOv2 has no MLP of {size} at width {width}")
    return ratio


def column_of(checkpoint) -> str:
    """Returns the column of `names.TABLE` that a checkpoint is written with."""
    return _TYPES[_type_of(checkpoint)].column


# How many first axes CLIP and SigLIP leave out.
_FLAT = {"embeddings.cls_token": 2, "embeddings.position_embeddings": 1}


def without_biases(checkpoint) -> tuple[str, ...]:
    """Returns the released biases that the library has not, which must be zeros."""
    if not checkpoint.config.norm_before_blocks:
        return ()
    projects = not _is_classifier_of_clip("clip_vision_model", checkpoint)
    return ("embedding/bias", "head/bias")[: 1 + projects]


def file_names(arrays: dict, checkpoint) -> dict:
    """Returns arrays under the keys of a whole file."""
    kind = _TYPES[_type_of(checkpoint)]
    gated = checkpoint.config.activation == "swiglu"
    # A class with a head has the encoder inside, others are it.
    prefix = kind.prefix if "classifier.weight" in arrays else ""
    clip = kind.prefix == _CLIP.prefix
    two = "distillation_classifier.weight" in arrays
    classifies = "classifier.bias" in arrays
    named = {}
    for name, array in arrays.items():
        if kind is _NAFLEX and name == "embeddings.patch_embeddings.projection.weight":
            array = flat_patches(array)
        if clip and name in _FLAT:
            array = array.reshape(array.shape[_FLAT[name] :])
        if kind is _CLIP and name.startswith("classifier.") and not classifies:
            named[name.replace("classifier", "visual_projection")] = array
            continue
        if name.startswith("head."):
            in_proj = name.replace("in_proj.", "in_proj_")
            named[prefix + in_proj] = array
            continue
        if name.partition(".")[0].endswith("classifier"):
            name = name.replace("classifier", "cls_classifier", two)
            named[name.replace("distillation_cls_", "distillation_")] = array
            continue
        if gated and kind is _DINOV3 and _VALUES in name:
            gate, array = np.split(array, 2)
            place = name.replace(_VALUES, _GATE)
            named[_replaced(place, "^encoder.layer.", "^layer.")] = gate
        with_gates = gated and kind.renamed_with_gates
        for theirs, ours in with_gates or kind.renamed:
            # The attention's own output has the name that an MLP's second layer has.
            if f".attention{ours}" not in name or ours.startswith(".attention."):
                name = _replaced(name, ours, theirs)
        named[prefix + name] = array
    size = checkpoint.hidden_size
    if kind is _DINOV3 and not checkpoint.config.num_registers:
        named["embeddings.register_tokens"] = np.zeros((1, 0, size), np.float32)
    if kind is _CLIP and classifies:
        # Its classifier does not use the norm that it has.
        named[f"{prefix}post_layernorm.weight"] = np.ones(size, np.float32)
        named[f"{prefix}post_layernorm.bias"] = np.zeros(size, np.float32)
    return named
