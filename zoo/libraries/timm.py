"""Checkpoints of timm's Vision Transformers, hybrids and DeiT.

`timm_fields.csv` has each field of its settings (`fields.py`).
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import read_json
from zoo.libraries import architectures, array_names, description, fields
from zoo.libraries.architectures import ARGUMENTS
from zoo.libraries.comparison import BIASES, Shown
from zoo.libraries.description import Description
from zoo.libraries.library import EMBEDDING_BIAS, Library, arrays_of, first_alike
from zoo.network import FAMILIES, RELEASED, ViTConfig, pair, released_names
from zoo.network.head import Head
from zoo.network.preparation import INTERPOLATIONS, Preparation

if TYPE_CHECKING:
    from zoo.libraries.checkpoint import Checkpoint

COLUMN = "timm"

CONFIG = "config.json"
# Ids of labels in WordNet, and in Open Images.
_LABEL_ID = re.compile(r"n\d{8}|/[mgt]/\w+")
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

# The names of classes whose keys have no biases.
_BIASES_APART = ("beit", "eva", "eva_unfused")
# timm takes these where a `config.json` says a part of how photos come to the size.
_EVALUATION = ("crop_pct", "crop_mode", "interpolation")
_FITS = {"center": "crop", "squash": "squash"}
_POOLINGS = {"token": "token", "avg": "gap", "map": "map", "": None, None: None}
# The stages of the ResNets of hybrids, which are 64 wide.
_HYBRIDS = {
    "vit_tiny_r_s16_p8_224": (),
    "vit_small_r26_s32_224": (2, 2, 2, 2),
    "vit_base_r50_s16_224": (3, 4, 9),
    "vit_large_r50_s32_224": (3, 4, 6, 3),
}


def of_name(file: pathlib.Path, architecture: str) -> dict[str, Any]:
    """Returns what the name of an architecture implies, and refuses one not known."""
    implied = architectures.implied(architecture)
    if implied is None:
        raise CheckpointError(
            f"{file} describes timm's {architecture}, which is not read: only the "
            "Vision Transformers that docs/models.md names are."
        )
    return implied


def described(
    file: pathlib.Path, config: dict, shown: Shown, normalizing: str | None = None
) -> Description:
    """Returns what settings of timm say.

    Where they have no mean and deviation, these are `normalizing`, a key of
    `architectures.INPUTS`, or those that the architecture was published with.
    """
    fields.check_types(file, config, _AT_THE_TOP)
    architecture = fields.name_of_network(file, config, _AT_THE_TOP, "architecture")
    if architecture is None:
        config, implied = {}, {}
        shown.check_plain(file.parent, COLUMN)
    else:
        implied = of_name(file, architecture)
    # transformers' settings of a wrapped model have null for none.
    own = config.get("model_args") or {}
    inputs = _inputs_of(config)
    if inputs is config:
        fields.check(file, config, _AT_THE_TOP)
    else:
        fields.check_unused(file, config, _AT_THE_TOP)
        fields.check(file, inputs, FIELDS["pretrained_cfg"])
    fields.check(file, own, FIELDS["model_args"])
    shown.check_sizes(file, config, {"num_features": "hidden_size"})
    shown.check_sizes(file, own, {"depth": "num_layers"})
    said = _said(implied, own)
    by_name = said["global_pool"]
    if "global_pool" not in own and config.get("global_pool") is not None:
        said["global_pool"] = config["global_pool"]
    _check_supported(file, architecture, said, by_name, shown)
    computed = network_of(said, shown.facts["class_token"])
    if architecture is not None:
        _check_arrays(file, architecture, said, computed, shown)
    normalizing = (architecture and normalizing) or said["inputs"]
    means = dict(zip(("mean", "std"), architectures.INPUTS[normalizing], strict=True))
    mean, std = description.channels(file, tuple(means), means | inputs)
    network = ViTConfig.released(
        num_heads=said.get("num_heads"),
        input_mean=mean,
        input_std=std,
        resnet_epsilons="timm" if shown.patches.is_hybrid else "released",
    )
    head = dataclasses.replace(
        _head(file, config, inputs, shown.classes),
        preparation=_preparation(file, inputs),
    )
    return Description(
        dataclasses.replace(network, **computed),
        _grid(architecture, said, inputs, computed, shown),
        pooling_of(said),
        said["pooling_heads"],
        _warning(file, architecture, inputs, computed["activation"]),
        head,
    )


def _said(implied, own):
    """Returns all of `ARGUMENTS`: as in settings, as a name implies, or by default."""
    kind = _class_of(implied.get("named_as"))
    ours = {argument[kind]: name for name, argument in ARGUMENTS.items()}
    own = {ours.get(name, name): value for name, value in own.items()}
    return {**architectures.DEFAULTS, **implied, **own}


def network_of(said: dict, class_token: bool) -> dict[str, Any]:
    """Returns the fields of `ViTConfig` that all of `ARGUMENTS` say together."""
    computed = {
        field: bool(said[name]) if argument["type"] == "flag" else said[name]
        for name, argument in ARGUMENTS.items()
        if (field := argument["field"])
    }
    covered = "all"
    if said["use_abs_pos_emb"] is False:
        covered = "none"
    elif said["no_embed_class"] and (class_token or said["reg_tokens"]):
        covered = "patches"
    biases = said["qkv_bias"]
    if biases is True and said["named_as"] in _BIASES_APART:
        biases = "query and value"
    final_norm, after_pooling = _norms(said)
    return computed | {
        "activation": "swiglu" if said["swiglu"] else _ACTIVATIONS[said["act_layer"]],
        "qkv_bias": biases,
        "final_norm": final_norm,
        "norm_after_pooling": after_pooling,
        "tokens_with_positions": covered,
        "relative_position_bias": bool(
            said["use_rel_pos_bias"] or said["use_shared_rel_pos_bias"]
        ),
    }


def pooling_of(said: dict) -> str | None:
    """Returns what the head reads, None where the tokens decide."""
    return "distilled" if said["distilled"] else _POOLINGS[said["global_pool"]]


def _check_supported(file, architecture, said, by_name, shown):
    """Refuses values that are not computed."""
    facts, pooled, wrong = shown.facts, said["global_pool"], []
    token = facts["class_token"]
    if _class_of(said["named_as"]) == "eva" and _norms(said)[1] and said["final_norm"]:
        wrong.append("use_fc_norm beside use_post_transformer_norm")
    if said["act_layer"] not in _ACTIVATIONS:
        wrong.append(f"act_layer={brief(said['act_layer'])}")
    if pooled == "" and facts["head"]:
        wrong.append("global_pool='' with a head, which answers for each token")
    if (
        pooled not in _POOLINGS
        or (pooled == "token" and not token)
        or said["class_token"] != token
    ):
        wrong.append(
            f"global_pool={pooled!r} {'with' if token else 'without'} a class token"
        )
    if architecture and (pooled == "map") != (by_name == "map"):
        wrong.append(f"global_pool={brief(pooled)} where {architecture} has {by_name}")
    fields.refuse(file, wrong)


def _check_arrays(file, architecture, said, network, shown):
    """Refuses settings of another network than the arrays show."""
    own, shared = said["use_rel_pos_bias"], said["use_shared_rel_pos_bias"]
    # timm's SigLIP of a mean leaves the pooling of a file out.
    any_pooling = said["global_pool"] == "map" or "siglip" in architecture
    stated = {
        **{name: (FAMILIES | network)[name] for name in shown.families},
        "final_norm": None if network["final_norm"] else False,
        "gates": network["activation"] == "swiglu",
        # timm's NaFlex takes a plain network's file, too.
        "flat_patches": None if said["named_as"] == "naflex" else False,
        "attention_pooling": None if any_pooling else False,
        "relative position biases": BIASES[bool(own), bool(shared)],
    }
    shown.check(file, f"timm's {architecture}", stated)


def _grid(architecture, said, inputs, network, shown):
    """Returns the grid of patches of the positions, None where nothing says it."""
    image_size, patches = said.get("img_size"), shown.patches
    stride, covered = patches.stride, network["tokens_with_positions"]
    if image_size is None and inputs.get("input_size") is not None:
        _, height, width = inputs["input_size"]
        count = (height // stride[0]) * (width // stride[1])
        prefix = released_names.num_prefix_tokens(shown.shapes)
        prefix = prefix if covered == "all" else 0
        # As timm, which resizes a table from this size where that fits.
        if covered == "none" or count == shown.sizes["positions"] - prefix:
            image_size = height, width
    grid = description.grid_of(image_size, stride)
    if patches.is_hybrid and image_size is not None:
        grid = patches.grid_size(image_size, architecture)
    grid = said.get("pos_embed_grid_size", grid)
    return None if grid is None else pair(grid, "pos_embed_grid_size")


def _warning(file, architecture, inputs, activation):
    """Returns a warning of a note that the weights want another GELU, or None."""
    notes = inputs.get("notes") or ()
    notes = " ".join([notes] if isinstance(notes, str) else notes)
    if "QuickGELU" not in notes or activation != "gelu":
        return None
    return (
        f"{file} has the note that its weights were trained with quick GELU, and "
        f"timm's {architecture} computes GELU: pass zoo.read(path, semantics="
        'zoo.ViTConfig(activation="quick_gelu")) for the original\'s numbers.'
    )


def _inputs_of(config):
    """Returns the table of inputs; files of earlier versions have it at the top."""
    inside = config.get("pretrained_cfg")
    return config if inside is None else inside


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
    # The descriptions are the names if labels are ids.
    if all(map(_LABEL_ID.fullmatch, names)) and about.keys() >= {*names}:
        texts = [about[name] for name in names]
        names = description.names_of_outputs(file, "label_descriptions", texts, classes)
    return names


def _preparation(file, inputs):
    """Returns how photos come to the size, None where nothing of that is said."""
    # As timm, which passes over what is empty.
    said = {name: inputs[name] for name in _EVALUATION if inputs.get(name)}
    if not said:
        return None
    said = fields.complete(said, FIELDS["pretrained_cfg"])
    known = {"crop_mode": _FITS, "interpolation": INTERPOLATIONS}
    description.check_choices(file, said, known, description.NEAREST)
    fit, share = _FITS[said["crop_mode"]], float(said["crop_pct"])
    return str(Preparation("timm", fit, said["interpolation"], share))


def _norms(said):
    """Returns whether there is a final norm, and whether it follows the pooling."""
    # As timm: without a word the norm follows a mean.
    after = said["global_pool"] == "avg" if said["fc_norm"] is None else said["fc_norm"]
    final = said["final_norm"] is not False
    if _class_of(said["named_as"]) == "eva":
        # Two norms, each with a switch of its own.
        return bool(after) or final, bool(after)
    return final, bool(after) and final


def _class_of(named_as):
    """Returns `"beit"`, `"eva"` or `"vit"`, the class that these names are of."""
    kind = (named_as or "").partition("_")[0]
    return kind if kind in ("beit", "eva") else "vit"


def _settings(checkpoint, architecture, arguments):
    """Returns the settings that `create_model("local-dir:...")` reads."""
    config, stages = checkpoint.config, checkpoint.resnet_stages
    hidden_size, channels = checkpoint.hidden_size, checkpoint.channels
    image_size = list(checkpoint.image_size)
    named_as = architectures.implied(architecture).get("named_as", "")
    # Rounding down, timm turns a ratio into `mlp_dim`, or twice that with gates.
    # But its class Eva does that itself.
    doubled = config.activation == "swiglu" and _class_of(named_as) != "eva"
    expanded = checkpoint.mlp_dim * (2 if doubled else 1)
    ratio, rest = divmod(expanded, hidden_size)
    # The grid of NaFlex's positions is said, whatever the size of an image.
    size = {"img_size": image_size}
    if named_as == "naflex":
        size = {"pos_embed_grid_size": list(checkpoint.grid_size)}
    first_convolution = "patch_embed.proj"
    if stages is not None:
        first_convolution = f"patch_embed.backbone.{'stem.' if stages else ''}conv"
    classes = checkpoint.classes or 0
    table = {
        "architecture": architecture,
        "num_classes": classes,
        "num_features": hidden_size,
        "global_pool": _arguments(checkpoint)["global_pool"],
        "model_args": {
            **size,
            "patch_size": config.patch_size,
            "in_chans": channels,
            "embed_dim": hidden_size,
            "depth": checkpoint.num_layers,
            "num_heads": checkpoint.num_heads,
            "mlp_ratio": (expanded + 0.5) / hidden_size if rest else ratio,
            **arguments,
        },
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
        table["label_names"] = list(checkpoint.class_names)
    return table


def _evaluation(checkpoint):
    """Returns how timm brings photos to the size, as near as it can."""
    said = Preparation.nearest(checkpoint.head.preparation, "timm")
    return {
        "crop_pct": said.share,
        "crop_mode": "center" if said.fit == "crop" else "squash",
        "interpolation": said.interpolation,
    }


# The rule of resizing positions that FlexiViT was trained for.
_FLEXIBLE = "bilinear_no_antialias"
# The names that are written: the first whose network is a checkpoint's. One for
# all that arguments cannot say.
_WRITTEN = (
    "deit_base_distilled_patch16_224",
    "naflexvit_base_patch16_siglip",
    "vit_base_patch16_siglip_224",
    "flexivit_base",
    "vit_base_patch16_224",
    "vit_base_patch16_clip_224",
    "vit_base_patch16_rpn_224",
    "vit_giant_patch14_dinov2",
    "vit_base_patch16_dinov3",
    "vit_small_plus_patch16_dinov3",
    "vit_base_patch16_rope_224",
    "vit_base_patch16_rope_reg1_gap_256",
    "eva_giant_patch14_224",
    "eva02_tiny_patch14_336",
    "eva02_base_patch14_448",
    "eva02_base_patch16_clip_224",
    "eva02_enormous_patch14_clip_224",
    "vit_pe_core_base_patch16_224",
    "vit_pe_core_gigantic_patch14_448",
    "vit_pe_spatial_base_patch16_512",
    "vit_pe_spatial_gigantic_patch14_448",
    "beit3_base_patch16_224",
    "beit_base_patch16_224",
    *_HYBRIDS,
)


def _differences(architecture, checkpoint):
    """Returns the arguments of a name, and its network beside the wanted one."""
    implied = architectures.implied(architecture)
    said = {**architectures.DEFAULTS, **implied}
    kind = _class_of(said["named_as"])
    # The default of `Eva` is another than that of its architectures.
    pooled = implied.get("global_pool", None if kind == "eva" else "token")
    said["global_pool"] = pooled
    said["init_values"] = 1e-5 if said["init_values"] else None
    # Names have the biases of queries and values if those of keys are apart.
    said["qkv_bias"] = bool(said["qkv_bias"])
    arguments = {}
    for name, value in _arguments(checkpoint).items():
        theirs = ARGUMENTS[name][kind]
        if theirs and value != said[name] and name not in _fixed(said):
            said[name] = arguments[theirs] = value
    wanted = {
        **vars(checkpoint.config),
        "class_token": checkpoint.class_token,
        "pooling": checkpoint.pooling,
        "attention_pooling": checkpoint.pooling == "map",
        "pooling_heads": checkpoint.pooling_heads,
    }
    if not checkpoint.num_prefix_tokens and wanted["tokens_with_positions"] != "none":
        wanted["tokens_with_positions"] = "all"
    if said["pooling_heads"] is None:
        said["pooling_heads"] = checkpoint.pooling_heads
    # Another size is resized to as timm does, unless its own names differ there.
    if "position_resizing" not in implied and wanted["position_resizing"] != _FLEXIBLE:
        wanted["position_resizing"] = said["position_resizing"]
    network = {
        **network_of(said, checkpoint.class_token),
        "class_token": said["class_token"],
        "pooling": pooling_of(said),
        "attention_pooling": pooled == "map",
        "pooling_heads": said["pooling_heads"],
        "resnet_stages": _HYBRIDS.get(architecture),
        "resnet_width": 64,
    }
    if checkpoint.resnet_stages is not None:
        network["resnet_padding"] = RELEASED["resnet_padding"]
    return arguments, {name: (network[name], wanted[name]) for name in network}


def _arguments(checkpoint):
    """Returns the values of timm's arguments that make a checkpoint's network."""
    config, pooling = checkpoint.config, checkpoint.pooling
    pooled = {"map": "map", "gap": "avg"}.get(pooling, "token")
    covered, gated = config.tokens_with_positions, config.activation == "swiglu"
    return {
        "global_pool": pooled,
        "fc_norm": config.norm_after_pooling if pooled == "avg" else None,
        "final_norm": None if config.final_norm else False,
        "class_token": checkpoint.class_token,
        "reg_tokens": config.num_registers,
        "no_embed_class": covered == "patches",
        "use_abs_pos_emb": covered != "none",
        # A starting value; the arrays have those of the file.
        "init_values": 1e-5 if config.layer_scale else None,
        "qkv_bias": bool(config.qkv_bias),
        "act_layer": None if gated else config.activation,
        "ref_feat_shape": config.rotary_grid,
        "rope_temperature": config.rotary_base,
    }


def _fixed(said):
    """Returns the arguments that change nothing, or more than they say."""
    fixed = set()
    if said["rotary"] == "perception":
        # With a class token the coordinates of patches begin at 1.
        fixed |= {"class_token", "final_norm"}
    if said["use_post_norm"]:
        # Blocks with norms after their branches have no LayerScale.
        fixed.add("init_values")
    if said["distilled"] or said["named_as"] == "naflex":
        fixed.add("no_embed_class")
    return fixed


def _file_keys(arrays, named_as, checkpoint):
    """Returns arrays under the keys of a whole file, undoing `select`."""
    config = checkpoint.config
    dialects = [named_as, "" if checkpoint.resnet_stages else "lone_stem"]
    # The gates of EVA-02's tiny and small models are packed with the values.
    is_packed = not config.mlp_norm_inside and config.rotary != "dinov3"
    if named_as and config.activation == "swiglu" and not is_packed:
        dialects.append("gates")
    if named_as == "naflex":
        kernel, grid = "patch_embed.proj.weight", checkpoint.grid_size
        arrays[kernel] = array_names.flat_patches(arrays[kernel])
        arrays["pos_embed"] = arrays["pos_embed"].reshape((1, *grid, -1))
    pairs = [pair for name in dialects for pair in array_names.RENAMED.get(name, ())]
    return array_names.in_files(arrays, pairs)


class Timm(Library):
    """timm's Vision Transformers, hybrids, DeiT, BEiT and EVA."""

    name = COLUMN
    beside: tuple[str, ...] = (CONFIG,)
    keys = re.compile(r"^(timm_model\.)?(patch_embed\.|blocks\.[0-9]+\.(attn|mlp)\.)")
    reasons = {
        r"\.[qk]_norm\.": "it normalises queries and keys, which is not computed",
        r"(^|\.)(shared_)?rel_pos\.|freqs": "its positions are not learned by "
        "addition alone",
        r"backbone\.(conv1|bn1|layer1)": "its ResNet is not the papers'",
    }
    shared_biases = (
        "rel_pos_bias.relative_position_bias_table",
        "blocks.{}.attn.relative_position_bias_table",
    )
    without_biases: tuple[str, ...] = (EMBEDDING_BIAS,)
    is_written = True

    def check_named(self, file: pathlib.Path, config: dict) -> None:
        if isinstance(config.get("architecture"), str):
            of_name(file, config["architecture"])

    def select(self, keys: Iterable[str]) -> dict[str, str]:
        return {
            key: array_names.renamed(key, array_names.RENAMED[COLUMN])
            for key in keys
            # It follows from the grid alone.
            if not key.endswith(".relative_position_index")
        }

    def describe(self, folder: pathlib.Path, shown: Shown) -> Description:
        file = folder / CONFIG
        # timm's own default, whatever the architecture was published with.
        return described(file, read_json(file), shown, "imagenet")

    def head_of(self, folder: pathlib.Path, shown: Shown) -> Head:
        file = folder / CONFIG
        config = fields.read(file, _AT_THE_TOP)
        inputs = _inputs_of(config)
        fields.check_types(file, inputs, FIELDS["pretrained_cfg"])
        return _head(file, config, inputs, shown.classes)

    def written(self, checkpoint: "Checkpoint") -> tuple[dict, dict[str, dict]]:
        if checkpoint.representation_size is not None:
            raise ValueError("timm has no model with pre_logits: leave the arrays out")
        differences = {name: _differences(name, checkpoint) for name in _WRITTEN}
        architecture, arguments = first_alike(self, differences)
        table = _settings(checkpoint, architecture, arguments)
        without = self.without_biases if checkpoint.config.norm_before_blocks else ()
        arrays = arrays_of(checkpoint, COLUMN, self, without)
        named_as = architectures.implied(architecture).get("named_as", "")
        return _file_keys(arrays, named_as, checkpoint), {CONFIG: table}
