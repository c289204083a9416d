"""Checkpoints of Hugging Face transformers' `ViTModel` and its kin.

`transformers_fields.csv` has each field of its configurations, those of older versions
too, and `configuration_fields.csv` what all types have (`fields.py`).
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.libraries import array_names, description, fields, image_processors
from zoo.libraries.architectures import INPUTS
from zoo.libraries.comparison import APART, BIASES, Shown
from zoo.libraries.description import Description
from zoo.libraries.library import (
    EMBEDDING_BIAS,
    HEAD_BIAS,
    Library,
    arrays_of,
    first_alike,
)
from zoo.network import FAMILIES, RESIZING, ROTARY_BASES, ViTConfig
from zoo.network.head import NO_OBJECT, Head
from zoo.network.released_names import QUERIES

if TYPE_CHECKING:
    from zoo.libraries.checkpoint import Checkpoint

COLUMN = "transformers"

_CONFIG = "config.json"
_ACTIVATIONS = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_WRITTEN = {ours: theirs for theirs, ours in reversed(_ACTIVATIONS.items())}
# The network of images has no use for arrays of pre-training and of other towers.
_UNUSED = re.compile(
    r"(\w+\.)?(embeddings\.)?(mask_token|position_ids)$|decoder\.|lm_head\.|"
    r".*\.relative_position_index$|criterion\."
)
_UNUSED_OF_TWO = re.compile(
    r"(\w+\.)?(embeddings\.)?(mask_token|position_ids)$|"
    r"temperature$|logit_(scale|bias)$|text_(model|encoder|projection)\."
)


def _is_gated(config):
    return config["use_swiglu_ffn"] or config["use_gated_mlp"]


def _mlp_size(width, ratio, gated):
    """Returns the size of DINOv2's MLP, whose gates take a third of it."""
    mlp_dim = int(width * ratio)
    return (int(mlp_dim * 2 / 3) + 7) // 8 * 8 if gated else mlp_dim


def _mlp_ratio(checkpoint, gated):
    """Returns the ratio from which DINOv2's classes find the size of the MLP."""
    size, width = checkpoint.mlp_dim, checkpoint.hidden_size
    # A whole number where there is one, which its classes insist on.
    for ratio in range(1, 2 + 2 * size // width):
        if _mlp_size(width, ratio, gated) == size:
            return ratio
    return (3 * size // 2 if gated else size) / width


class _Type(NamedTuple):
    """A row of `transformers_types.csv`: what a `model_type` implies, and its names.

    Fields with names of `ViTConfig` mean the same, the activation in their words. An
    empty cell is the default here.
    """

    # Types of one family have the same names of arrays and fields of settings.
    family: str = "vit"
    prefix: str = ""
    # The classes without and with a head, and what the head reads.
    encoder: str = ""
    classifier: str = ""
    reads: tuple[str, ...] = ("token",)
    activation: str = "gelu"
    layer_norm_epsilon: float = 1e-12
    num_heads: int = 12
    class_token: bool = True
    num_registers: int = 0
    layer_scale: bool = False
    distillation_token: bool = False
    tokens_with_positions: str = "all"
    position_resizing: str = "bicubic_no_antialias"
    relative_position_resizing: str | None = None
    rotary: str = "none"
    norm_before_blocks: bool = False
    num_queries: int = 0
    query_blocks: int = 0
    upscale_blocks: int = 0
    # Mean and deviation, and the class of the image processor, where no file says them.
    inputs: str = "half"
    processor: str = "ViT"
    # The settings that it has besides those of all types, and the families whose names
    # its arrays may have: BEiT without biases of offsets has only names of DINOv2.
    settings: tuple[str, ...] = ()
    named_as: tuple[str, ...] = ("dinov2",)


def _cell(default, text):
    if isinstance(default, bool):
        return text == "1"
    if isinstance(default, tuple):
        return tuple(text.split())
    return text if default is None else type(default)(text)


def _types():
    by_default = _Type._field_defaults
    for row in fields.rows("transformers_types.csv"):
        types = row.pop("types").split()
        cells = {key: _cell(by_default[key], row[key]) for key in row if row[key]}
        yield from dict.fromkeys(types, _Type(**cells)).items()


_TYPES = dict(_types())
_GATES = re.compile(r"\.mlp\.(gate_proj|weights_in|w12)\.")
# How often training hides from a query what is outside of its mask, per block.
_MASK_PROBABILITIES = "attn_mask_probs"
# Messages name these, without the names of single towers.
_NAMED = tuple(dict.fromkeys(name.removesuffix("_vision_model") for name in _TYPES))
_POOLER = re.compile(r"(^|\.)pooler\.layernorm\.weight$")
_ROPE = {"rope_type": "default", "rope_theta": 0}
_TWO_TOWERS = re.compile(r"(CLIP|MetaClip2|AltCLIP|ChineseCLIP)Model")
_OF_QUERIES = re.compile(r"^query\.weight$")
_OF_DINOV3 = re.compile(r"embeddings\.patch_embeddings\.weight$")
# Keys of the families whose names are not those of DINOv2, the first that fits.
_KEYS = {
    "eomt_dinov3": (_OF_QUERIES, _OF_DINOV3),
    "eomt": (_OF_QUERIES,),
    "clip": (re.compile(r"\.self_attn\."),),
    "dinov3": (_OF_DINOV3,),
    "tipsv2": (re.compile(r"^(?!.*embeddings).*register_tokens$"),),
    "beit": (re.compile(r"\.lambda_[12]$|relative_position_bias_table$"),),
}
# Fields of `ViTConfig` that a type implies, and those that settings say alone.
_IMPLIED = vars(ViTConfig()).keys() & _Type._fields
_ARGUMENTS = {
    "hidden_act": "activation",
    "num_attention_heads": "num_heads",
    "layer_norm_eps": "layer_norm_epsilon",
    "num_register_tokens": "num_registers",
    "num_queries": "num_queries",
    "num_blocks": "query_blocks",
    "num_upscale_blocks": "upscale_blocks",
}
# Their names of sizes, and ours.
_SIZES = {
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "mlp_dim",
    "num_channels": "channels",
}
FIELDS = fields.OF_EVERY_TYPE | fields.table("transformers_fields.csv")
_OF_ONE_TOWER = {
    name: field for name, field in FIELDS.items() if field.use != "of another tower"
}
_PREFIXES = tuple({kind.prefix for kind in _TYPES.values() if kind.prefix})


def _named_as(keys):
    """Returns the family whose names keys have."""
    families = (
        family
        for family, patterns in _KEYS.items()
        if all(any(map(pattern.search, keys)) for pattern in patterns)
    )
    return next(families, "dinov2")


def _column(family):
    """Returns the column of `array_names.TABLE` that has the names of a family."""
    return "timm" if family == "tipsv2" else COLUMN


def _renamed(family, gated):
    """Returns the pairs of `array_names.RENAMED` of a family, with gates or without."""
    return array_names.RENAMED.get(f"{family}_gated" if gated else family, ())


def _of_type(kind):
    """Returns the settings that a type implies."""
    return {theirs: getattr(kind, ours) for theirs, ours in _ARGUMENTS.items()}


def of_type(file: pathlib.Path, model_type: str) -> _Type:
    """Returns what a `model_type` implies, and refuses one not known."""
    if (kind := _TYPES.get(model_type)) is None:
        raise CheckpointError(
            f"{file} describes a model of type {brief(model_type)}, which is not read: "
            f"only {', '.join(_NAMED)} are."
        )
    return kind


def network_of(
    file: object, kind: _Type, config: dict, keys: Iterable[str]
) -> tuple[dict[str, Any], str | None]:
    """Returns the fields of `ViTConfig` that settings say, and what a head reads.

    Two classes of a type differ by the names of their arrays, `keys`.
    """
    network = {name: getattr(kind, name) for name in _IMPLIED}
    network |= {ours: config[name] for name, ours in _ARGUMENTS.items()}
    if network["num_registers"] == 0 and "class" in kind.tokens_with_positions:
        network["tokens_with_positions"] = "all"
    network |= {
        "activation": _activation(file, kind, config),
        "qkv_bias": _biases(file, config)
        if kind.rotary == "dinov3"
        else config["qkv_bias"],
        "rotary_base": _rotary_base(file, config),
        "final_norm": True,
        "norm_after_pooling": False,
        "attention_norm_inside": False,
        "mlp_norm_inside": False,
        "relative_position_bias": False,
    }
    pooling = None
    if kind.family == "beit":
        own, pooling = _network_of_beit(file, config, keys)
        network |= own
    if kind.family == "clip" and "classifier.weight" in keys:
        network["final_norm"], pooling = False, "gap"
    return network, pooling


def _activation(file, kind, config):
    """Returns the activation of settings in our words."""
    gated, activation = _is_gated(config), config["hidden_act"]
    # DINOv3's gates have the activation of the settings, those of DINOv2 always SiLU.
    is_gate = gated and kind.rotary == "dinov3"
    known = {"hidden_act": ("silu",) if is_gate else _ACTIVATIONS}
    description.check_choices(file, config, known, description.NOT_READ)
    return "swiglu" if gated else _ACTIVATIONS[activation]


def _class_of(config):
    """Returns the name of the class that wrote settings, "" where they say none."""
    return ([*(config.get("architectures") or ()), ""])[0]


def _head(file, config, shown):
    classes = None if _projects(config) else shown.classes
    if QUERIES not in shown.shapes or classes is None:
        return description.head_of_labels(file, config, classes)
    # Its labels leave out the last output.
    head = description.head_of_labels(file, config, classes - 1)
    names = head.class_names and (*head.class_names, NO_OBJECT)
    return dataclasses.replace(head, class_names=names)


def _projects(config):
    """Returns whether the outputs are features, which a projection ends in."""
    name = _class_of(config)
    return name.endswith("WithProjection") or bool(_TWO_TOWERS.fullmatch(name))


def _heads_of(config):
    """Returns which heads the class has that wrote settings; {} if it is not known."""
    name, projects = _class_of(config), _projects(config)
    kinds = ("ForImageClassification", "ForUniversalSegmentation")
    classifies = any(one in name for one in kinds) and config.get("id2label") != {}
    if not (projects or classifies or name.endswith("Model")):
        return {}
    teacher = name.endswith("WithTeacher")
    return {"head": projects or classifies, "second_head": teacher}


def _network_of_beit(file, config, keys):
    """Returns the fields of a BEiT's network, and what its head reads."""
    absolute, mean = (
        config["use_absolute_position_embeddings"],
        config["use_mean_pooling"],
    )
    biased = any(_relative_biases(config))
    if not biased and not absolute:
        raise CheckpointError(
            f"{file} has no positions of any kind, learned or relative, which is not "
            "read: no published BEiT is without."
        )
    # The class for masked patches has a norm of its own before its head.
    kind = _class_of(config)
    masked = kind == "BeitForMaskedImageModeling"
    # Data2Vec's class without a head has no pooling, and so no norm, by default.
    bare = kind.endswith("Model") and not any(map(_POOLER.search, keys))
    families = {
        "layer_scale": config["layer_scale_init_value"] > 0,
        "qkv_bias": "query and value",
        "norm_after_pooling": mean and not (masked or bare),
        "final_norm": not (mean and bare),
        "relative_position_bias": biased,
        "tokens_with_positions": "all" if absolute else "none",
    }
    return families, "gap" if mean else "token"


def _relative_biases(config):
    """Returns whether blocks have biases of their own, and whether they share some."""
    own = config["use_relative_position_bias"]
    return own, config["use_shared_relative_position_bias"]


def _check_names(file, config, kind, keys):
    """Refuses arrays in the names of another type."""
    model_type = config["model_type"]
    prefixes = {prefix for prefix in _PREFIXES for k in keys if k.startswith(prefix)}
    if _named_as(keys) not in kind.named_as or prefixes - {kind.prefix}:
        raise CheckpointError(
            f"{file} describes a model of type {model_type!r}, and the arrays have the "
            f"names of another type: {APART}"
        )


def _tower(file, config, kind):
    """Returns the settings of the tower of images, those themselves where it is one."""
    again = config.get("vision_config_dict") or {}
    if "vision_config" not in config and not again:
        return config
    fields.check_unused(file, config, FIELDS)
    tower = config.get("vision_config", {})
    fields.check(file, {"vision_config": tower}, FIELDS)
    for table in (tower, again):
        fields.check_types(file, table, FIELDS)
    model_type = tower.get("model_type")
    if model_type is not None and _TYPES.get(model_type) is not kind:
        raise CheckpointError(
            f"{file} describes a model of type {config.get('model_type')!r} with a "
            f"tower of type {brief(model_type)}: keep each model in a folder of its "
            "own, beside its own settings."
        )
    if again:
        said = fields.computed(_of_type(kind) | again, FIELDS)
        one = f"The vision_config_dict in {file}"
        fields.refuse_differences(one, said, "its vision_config", tower)
    return tower | again


def _biases(file, config):
    """Returns `qkv_bias` of the settings of a DINOv3."""
    names = ("query_bias", "key_bias", "value_bias")
    has = tuple(config[name] for name in names)
    known = {(True, False, True): "query and value", (False,) * 3: False}
    known[True, True, True] = True
    if has not in known:
        fields.refuse(file, [f"{dict(zip(names, has, strict=True))}"])
    return known[has]


def _rotary_base(file, config):
    """Returns the base of rotary positions, None where nothing states one."""
    parameters = config["rope_parameters"] or {}
    bases = [table.get("rope_theta") for table in (config, parameters)]
    bases = [base for base in bases if base is not None]
    kind = {"rope_type": "default", **parameters}
    if len(set(bases)) > 1 or kind | {"rope_theta": 0} != _ROPE:
        supported = "(only rope_type 'default', and one rope_theta)"
        fields.refuse(file, [f"rope_parameters={brief(parameters)} {supported}"])
    return bases[0] if bases else None


# The types that are written: the first whose network is a checkpoint's.
_WRITTEN_TYPES = (
    "vit", "deit", "siglip_vision_model", "siglip2_vision_model", "ijepa",
    "clip_vision_model", "dinov2", "dinov2_with_registers", "tipsv2_vision_model",
    "dinov3_vit", "beit", "data2vec-vision", "eomt", "eomt_dinov3",
)  # fmt: skip


# The classes with a head where it reads something else than that of the type.
_CLASSIFIERS = {
    ("deit", "distilled"): "DeiTForImageClassificationWithTeacher",
    ("clip_vision_model", "gap"): "CLIPForImageClassification",
}


def _differences(name, checkpoint):
    """Returns the settings of a type, and its network beside the wanted one."""
    kind, network = _TYPES[name], checkpoint.config
    has_head = checkpoint.classes is not None
    classifier = _CLASSIFIERS.get((name, checkpoint.pooling), kind.classifier)
    config = _config_of(checkpoint, name, has_head and classifier or kind.encoder)
    # By these keys two classes of a type differ.
    keys = ["classifier.weight"] if has_head and checkpoint.pooling == "gap" else []
    keys += ["pooler.layernorm.weight"] if name == "beit" else []
    complete = fields.complete(_of_type(kind) | config, FIELDS)
    theirs, _ = network_of(name, kind, complete, keys)
    theirs = dataclasses.replace(network, **{**FAMILIES, **theirs})
    wrong = theirs.differences(network)
    for field in RESIZING:
        wrong.pop(field, None)
    is_siglip = kind.family in ("siglip", "naflex")
    if is_siglip or kind.num_registers:
        # Two types of one network, for images of one size and of any.
        sizes = kind.position_resizing, network.position_resizing
        wrong["position_resizing"] = tuple(size == "bilinear" for size in sizes)
    if "mlp_ratio" in config:
        size = _mlp_size(
            checkpoint.hidden_size,
            config["mlp_ratio"],
            checkpoint.config.activation == "swiglu",
        )
        wrong["mlp_dim"] = size, checkpoint.mlp_dim
    if kind.family == "beit":
        # It confuses rows and columns of others.
        wrong["a square grid"] = True, _has_square_grid(checkpoint)
    is_tanh = network.activation == "gelu_tanh" and not checkpoint.class_token
    reads = checkpoint.pooling in kind.reads
    wrong |= {
        "class_token": (kind.class_token, checkpoint.class_token),
        **_differences_of_masks(kind, config, checkpoint),
        "attention_pooling": (is_siglip, bool(checkpoint.pooling_heads) or is_tanh),
        "head": (has_head and bool(classifier), has_head),
        f"a head that reads {checkpoint.pooling}": (reads or not has_head, True),
    }
    return config, wrong


def _has_square_grid(checkpoint):
    rows, columns = checkpoint.grid_size
    return rows == columns


def _differences_of_masks(kind, config, checkpoint):
    queries = bool(kind.num_queries), bool(checkpoint.config.num_queries)
    if not kind.num_queries:
        return {"queries": queries}
    return {
        "queries": queries,
        # It is that of the head for masks, too.
        "hidden_act": (config["hidden_act"], "gelu"),
        # It knows one side of an image alone.
        "a square grid": (True, _has_square_grid(checkpoint)),
    }


def _config_of(checkpoint, model_type, class_name):
    """Returns the settings of a checkpoint as a type, without names of outputs."""
    network, gated = checkpoint.config, checkpoint.config.activation == "swiglu"
    height, width = checkpoint.image_size
    config = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_size": checkpoint.hidden_size,
        "num_hidden_layers": checkpoint.num_layers,
        "num_attention_heads": checkpoint.num_heads,
        "intermediate_size": checkpoint.mlp_dim,
        "hidden_act": "gelu" if gated else _WRITTEN[network.activation],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": network.layer_norm_epsilon,
        "image_size": height if height == width else [height, width],
        "patch_size": network.patch_size,
        "num_channels": checkpoint.channels,
        "qkv_bias": network.qkv_bias is not False,
    }
    rope_theta = network.rotary_base or ROTARY_BASES["dinov3"]
    own = {
        "num_register_tokens": network.num_registers,
        "mlp_ratio": _mlp_ratio(checkpoint, gated),
        "use_swiglu_ffn": gated,
        "use_gated_mlp": gated,
        "layerscale_value": 1.0,
        "query_bias": config["qkv_bias"],
        "key_bias": network.qkv_bias is True,
        "value_bias": config["qkv_bias"],
        "rope_theta": rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": rope_theta},
        "num_queries": network.num_queries,
        "num_blocks": network.query_blocks,
        "num_upscale_blocks": network.upscale_blocks,
        "vision_use_head": checkpoint.pooling_heads is not None,
        "num_patches": checkpoint.num_positions,
        "projection_dim": checkpoint.classes if checkpoint.pooling == "token" else None,
        "use_mask_token": False,
        "use_absolute_position_embeddings": network.tokens_with_positions == "all",
        "use_relative_position_bias": True,
        "use_shared_relative_position_bias": False,
        "layer_scale_init_value": 0.1 if network.layer_scale else 0.0,
        "use_mean_pooling": checkpoint.pooling == "gap",
    }
    kind = _TYPES[model_type]
    without = {"beit": "qkv_bias", "naflex": "image_size"}.get(kind.family)
    if gated and kind.rotary == "dinov3":
        config["hidden_act"] = "silu"
    config |= {name: own[name] for name in kind.settings}
    return {
        name: value
        for name, value in config.items()
        if value is not None and name != without
    }


def _is_classifier_of_clip(name, checkpoint):
    """Returns whether a head reads the mean of patches, as CLIP's classifiers do."""
    clip = name == "clip_vision_model" and checkpoint.pooling == "gap"
    return clip and checkpoint.classes is not None


# How many first axes the arrays of a family leave out.
_FLAT = {
    "clip": {"embeddings.cls_token": 2, "embeddings.position_embeddings": 1},
    "eomt": {"query.weight": 1, "embeddings.position_embeddings": 1},
    "eomt_dinov3": {"query.weight": 1},
}


def _with_labels(checkpoint, name, config):
    """Returns settings with the names of outputs, those of two towers where needed."""
    classes = checkpoint.classes
    if checkpoint.representation_size is not None:
        config["pooler_output_size"] = checkpoint.representation_size
    if classes is not None:
        names = checkpoint.class_names or description.placeholders(classes)
        names = names[:-1] if checkpoint.config.num_queries else names
        config["id2label"] = {str(index): name for index, name in enumerate(names)}
        config["label2id"] = {name: index for index, name in enumerate(names)}
        if checkpoint.head.problem_type is not None:
            config["problem_type"] = checkpoint.head.problem_type
    of_siglip = name == "siglip_vision_model" and classes is not None
    if of_siglip or _is_classifier_of_clip(name, checkpoint):
        # The class with a head is one of two towers.
        own = ("architectures", "id2label", "label2id", "problem_type")
        outside = {key: config.pop(key) for key in own if key in config}
        both = name.removesuffix("_vision_model")
        config = {**outside, "model_type": both, "vision_config": config}
    return config


def _file_keys(arrays, kind, checkpoint):
    """Returns arrays under the keys of a whole file."""
    # A class with a head has the encoder inside, others are it.
    prefix = kind.prefix if "classifier.weight" in arrays else ""
    size, named, heads = checkpoint.hidden_size, {}, {}
    for name, array in arrays.items():
        key = _classifier_key(name, arrays, kind)
        (heads if key else named)[key or name] = _shaped(name, array, kind)
    named = array_names.in_files(
        named, _renamed(kind.family, checkpoint.config.activation == "swiglu")
    )
    named = heads | {prefix + key: array for key, array in named.items()}
    has_registers = kind.family == "dinov3" or kind.num_queries
    if has_registers and not checkpoint.config.num_registers:
        named["embeddings.register_tokens"] = np.zeros((1, 0, size), np.float32)
    if kind.num_queries:
        # Its class has these for training, the last weight for no object.
        blocks, classes = checkpoint.config.query_blocks, checkpoint.classes
        weights = np.array([1.0] * (classes - 1) + [0.1], np.float32)
        named[_MASK_PROBABILITIES] = np.zeros(blocks, np.float32)
        named["criterion.empty_weight"] = weights
    if kind.family == "clip" and "classifier.bias" in arrays:
        # Its classifier does not use the norm that it has.
        named[f"{prefix}post_layernorm.weight"] = np.ones(size, np.float32)
        named[f"{prefix}post_layernorm.bias"] = np.zeros(size, np.float32)
    return named


def _classifier_key(name, arrays, kind):
    """Returns the key of an array of a classifier, None of others."""
    if not name.partition(".")[0].endswith("classifier") or kind.num_queries:
        return None
    if kind.family == "clip" and "classifier.bias" not in arrays:
        return name.replace("classifier", "visual_projection")
    two = "distillation_classifier.weight" in arrays
    name = name.replace("classifier", "cls_classifier", two)
    return name.replace("distillation_cls_", "distillation_")


def _shaped(name, array, kind):
    """Returns an array with the axes that it has in files of a type."""
    if (
        kind.family == "naflex"
        and name == "embeddings.patch_embeddings.projection.weight"
    ):
        return array_names.flat_patches(array)
    left_out = _FLAT.get(kind.named_as[0], {}).get(name, 0)
    return array.reshape(array.shape[left_out:])


class Transformers(Library):
    """transformers' ViT, DeiT, DINO, CLIP, SigLIP, BEiT and their kin."""

    name = COLUMN
    beside = (_CONFIG, *image_processors.FILES)
    # The last two forms are of CLIP, SigLIP and DINOv3, only to say what they are.
    keys = re.compile(
        r"(^|\.)embeddings\.(patch_embeddings\.projection|patch_embeddings?)\.weight$|"
        # TIPSv2, the rest of whose names is that of timm.
        r"^(vision_encoder\.)?register_tokens$"
    )
    reasons = {
        # Two of its classes segment.
        r"^(decode_head|auxiliary_head)\.": "it has a head that segments images",
    }
    shared_biases = (
        "encoder.relative_position_bias.relative_position_bias_table",
        "encoder.layer.{}.attention.attention.relative_position_bias."
        "relative_position_bias_table",
    )
    without_biases = (EMBEDDING_BIAS, HEAD_BIAS)
    is_written = True

    def check_named(self, file: pathlib.Path, config: dict) -> None:
        is_of_timm = isinstance(config.get("architecture"), str)
        if isinstance(config.get("model_type"), str) and not is_of_timm:
            of_type(file, config["model_type"])

    def column(self, keys: Iterable[str]) -> str:
        return _column(_named_as(keys))

    def select(self, keys: Iterable[str]) -> dict[str, str]:
        chosen = {}
        classifies = any(
            key.startswith(("classifier.", "cls_classifier.")) for key in keys
        )
        family = _named_as(keys)
        of_two = family in ("clip", "tipsv2")
        # The classifier reads the tokens themselves.
        unused_heads = ("head." if of_two else "pooler.dense.",) if classifies else ()
        if classifies and any(
            key.endswith("embeddings.class_embedding") for key in keys
        ):
            # CLIP's classifiers read the tokens before the last norm.
            unused_heads += ("post_layernorm.",)
        idle = _UNUSED_OF_TWO if of_two else _UNUSED
        pairs = _renamed(family, any(map(_GATES.search, keys)))
        if family == "dinov2":
            # In memory transformers 5 has other names than in files.
            pairs = array_names.RENAMED["transformers_5"] + pairs
        if family == "eomt" and any(map(_GATES.search, keys)):
            # Older versions have gates and values in one array.
            pairs += _renamed("dinov2", True)
        for key in keys:
            prefix = next(filter(key.startswith, _PREFIXES), "")
            name = key.removeprefix(prefix)
            if name.startswith(unused_heads) or idle.match(key):
                continue
            if family == "dinov3":
                name = name.removeprefix("model.")
            name = array_names.renamed(name, pairs)
            chosen[key] = name.replace("cls_classifier.", "classifier.")
        return chosen

    def wrong_values(self, arrays: dict) -> list[str]:
        if not np.asarray(arrays.get(_MASK_PROBABILITIES, 0)).any():
            return []
        return [
            f"{_MASK_PROBABILITIES} hides patches from queries until training has "
            "ended, where it is zero"
        ]

    def arranged(self, arrays: dict) -> dict:
        return {key: arrays[key] for key in arrays if key != _MASK_PROBABILITIES}

    def describe(self, folder: pathlib.Path, shown: Shown) -> Description:
        file = folder / _CONFIG
        config = fields.read(file, FIELDS)
        model_type = fields.name_of_network(file, config, FIELDS, "model_type")
        if model_type is None:
            config, kind = {}, _TYPES["vit"]
            shown.check_plain(folder, COLUMN)
        else:
            kind = of_type(file, model_type)
            _check_names(file, config, kind, shown.keys)
        head = _head(file, config, shown)
        heads = _heads_of(config)
        config = _tower(file, config, kind)
        fields.check(file, config, _OF_ONE_TOWER)
        config = fields.complete(_of_type(kind) | config, FIELDS)
        network, pooling = network_of(file, kind, config, shown.keys)
        if kind.num_queries:
            # The head for masks has it, too, which is only computed so.
            exact = {"hidden_act": ("gelu", "gelu_python")}
            description.check_choices(file, config, exact, description.NOT_READ)
        gated = network["activation"] == "swiglu"
        shown.check_sizes(file, config, _SIZES)
        if shown.patches.stride[0] == shown.patches.stride[1]:
            shown.check_sizes(file, config, {"patch_size": "patch_height"})
        if config.get("mlp_ratio") is not None:
            name, width = "mlp_ratio times hidden_size", shown.facts["hidden_size"]
            stated = {name: _mlp_size(width, config["mlp_ratio"], gated)}
            shown.check_sizes(file, stated, {name: "mlp_dim"})
        inputs = image_processors.read(folder, INPUTS[kind.inputs], kind.processor)
        without_head = config.get("vision_use_head") is False
        if model_type is not None:
            stated = {
                **{name: network[name] for name in shown.families},
                **heads,
                "final_norm": None if network["final_norm"] else False,
                "class_token": kind.class_token,
                "gates": gated,
                "flat_patches": kind.family == "naflex",
                "attention_pooling": False if without_head else None,
                "relative position biases": BIASES[_relative_biases(config)],
            }
            shown.check(file, f"a model of type {model_type!r}", stated)
        if model_type is None:
            network["num_heads"] = None
        grid = description.grid_of(config.get("image_size"), config.get("patch_size"))
        if kind.family == "beit" and grid is not None and grid[0] != grid[1]:
            raise CheckpointError(
                f"{file} has an image_size that makes a grid of {grid[0]}x{grid[1]} "
                "patches, of whose relative positions transformers' BEiT confuses rows "
                "and columns: only square ones are read."
            )
        head = dataclasses.replace(head, preparation=inputs.preparation)
        said = ViTConfig.released(input_mean=inputs.mean, input_std=inputs.std)
        return Description(
            dataclasses.replace(said, **network), grid, pooling, head=head
        )

    def head_of(self, folder: pathlib.Path, shown: Shown) -> Head:
        file = folder / _CONFIG
        return _head(file, fields.read(file, FIELDS), shown)

    def written(self, checkpoint: "Checkpoint") -> tuple[dict, dict[str, dict]]:
        if checkpoint.resnet_stages is not None:
            raise ValueError("transformers has no hybrid models")
        has_head = checkpoint.classes is not None
        if has_head and checkpoint.representation_size is not None:
            raise ValueError(
                "transformers has no model with pre_logits before its head: leave the "
                "arrays of one of them out"
            )
        differences = {name: _differences(name, checkpoint) for name in _WRITTEN_TYPES}
        name, config = first_alike(self, differences)
        kind, without = _TYPES[name], ()
        if kind.norm_before_blocks:
            # CLIP's classifiers have one, and its projection none.
            count = 1 if _is_classifier_of_clip(name, checkpoint) else 2
            without = self.without_biases[:count]
        arrays = arrays_of(checkpoint, _column(kind.family), self, without)
        return _file_keys(arrays, kind, checkpoint), {
            _CONFIG: _with_labels(checkpoint, name, config),
            image_processors.FILES[0]: image_processors.write(checkpoint),
        }
