"""Checkpoints in the names of the authors' own code: DINOv2, DINOv3, CLIP, OpenCLIP.

Their arrays become timm's, and what no array tells comes from a `config.json` that
names timm's architecture, as timm takes these files too; from OpenCLIP's settings; or
from the name that the authors gave the file.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import read_json
from zoo.libraries import array_names, description, fields, timm
from zoo.libraries.comparison import Shown
from zoo.libraries.description import Description

COLUMN = "the authors' code"
_CONFIG, _OPEN_CLIP = "config.json", "open_clip_config.json"

_CLIP = re.compile(r"^visual\.(transformer\.resblocks|trunk\.blocks)\.")
_DINO = ("mask_token", "patch_embed.proj.weight")
_CHUNK = re.compile(r"^blocks\.[0-9]+\.(?=[0-9]+\.)")
# The network of images needs no towers of texts, nothing of pre-training, no angles.
_UNUSED = {
    "open_clip": re.compile(
        r"transformer\.|text\.|token_embedding\.|positional_embedding$|ln_final\.|"
        r"text_projection$|logit_(scale|bias)$|attn_mask$|"
        r"(input_resolution|context_length|vocab_size)$"
    ),
    "dino": re.compile(
        r"mask_token$|rope_embed\.periods$|.*\.bias_mask$|local_cls_norm\.|projectors\."
    ),
}
# DINOv3's biases of queries, keys and values, of which the second are masked.
_MASKED = ".masked_bias"
# The names of published files say which network it is, and where their code computes
# otherwise than timm's.
_PUBLISHED = fields.rows("published_files.csv")
_POOLINGS = {"tok": "token", "avg": "avg"}
# Their names of sizes, and ours.
_SIZES = {
    "width": "hidden_size",
    "layers": "num_layers",
    "patch_size": "patch_height",
    "mlp_ratio * width": "mlp_dim",
}
# Each field of OpenCLIP's settings, by the table that has it.
_FIELDS = {
    part: fields.table("open_clip_fields.csv", part)
    for part in ("top", "model_cfg", "vision_cfg", "timm_tower", "preprocess_cfg")
}
# How OpenCLIP's `image_transform` brings photos to the size, in timm's words.
_FITS = {"shortest": "center", "squash": "squash"}
_INTERPOLATIONS = {"bicubic": "bicubic", "bilinear": "bilinear", "random": "bicubic"}


def kind(keys: Iterable[str]) -> str:
    """Returns whose names these are: `"open_clip"` or `"dino"`."""
    return "open_clip" if any(map(_CLIP.match, keys)) else "dino"


def _with_class_row(described):
    # In the authors' tables the class token has a row, whatever timm's have.
    if described.config.tokens_with_positions != "patches":
        return described
    covered = "class token and patches"
    config = dataclasses.replace(described.config, tokens_with_positions=covered)
    return described._replace(config=config)


def _of_open_clip(file, shown):
    """Returns timm's settings of the tower that OpenCLIP's describe."""
    settings = fields.read(file, _FIELDS["top"])
    config = settings.get("model_cfg") or {}
    fields.check_types(file, config, _FIELDS["model_cfg"])
    vision = config.get("vision_cfg")
    if vision is None:
        raise CheckpointError(
            f"{file} has no vision_cfg in its model_cfg: copy the file again."
        )
    name = vision.get("timm_model_name")
    known = _FIELDS["vision_cfg"] | (_FIELDS["timm_tower"] if name else {})
    fields.check(
        file,
        {
            key: vision[key]
            for key in vision
            if key in known or vision[key] != "default"
        },
        known,
    )
    said = fields.complete(vision, known)
    _check_tower(file, said, vision.get("timm_proj", "linear") if name else None)
    inputs = _of_preprocessing(file, settings.get("preprocess_cfg") or {})
    if name:
        arguments = {"img_size": said["image_size"]}
        pooled = {"global_pool": said["timm_pool"]} if said.get("timm_pool") else {}
        return {"architecture": name, "model_args": arguments, **pooled, **inputs}
    sizes = said | {"mlp_ratio * width": int(said["width"] * said["mlp_ratio"])}
    shown.check_sizes(file, sizes, _SIZES)
    arguments = {
        "img_size": said["image_size"],
        "num_heads": said["width"] // said["head_width"],
        "act_layer": "quick_gelu" if config.get("quick_gelu") else "gelu",
        "init_values": said["ls_init_value"],
        "pre_norm": not said["no_ln_pre"],
        "global_pool": _POOLINGS[said["pool_type"]],
        "fc_norm": False,
    }
    return {
        "architecture": "vit_base_patch16_clip_224",
        "model_args": arguments,
        **inputs,
    }


def _check_tower(file, said, projection):
    """Refuses settings of a tower that are not computed."""
    known = {"pool_type": _POOLINGS}
    description.check_choices(file, said, known, description.NOT_READ)
    wrong = []
    # timm's towers have a projection as their head, or none.
    if projection not in (None, "", "none"):
        wrong.append(f"timm_proj={brief(projection)}")
    if said["pool_type"] == "avg" and said["final_ln_after_pool"]:
        wrong.append("final_ln_after_pool=True with pool_type='avg'")
    fields.refuse(file, wrong)


def _of_preprocessing(file, said):
    """Returns timm's settings of photos that OpenCLIP's `preprocess_cfg` describes."""
    fields.check(file, said, _FIELDS["preprocess_cfg"])
    # As OpenCLIP, which passes over what is empty.
    said = {name: value for name, value in said.items() if value}
    said = fields.complete(said, _FIELDS["preprocess_cfg"])
    known = {"resize_mode": _FITS, "interpolation": _INTERPOLATIONS}
    description.check_choices(file, said, known, description.NEAREST)
    return {
        "mean": said["mean"],
        "std": said["std"],
        "crop_pct": 1.0,
        "crop_mode": _FITS[said["resize_mode"]],
        "interpolation": _INTERPOLATIONS[said["interpolation"]],
    }


class Original(timm.Timm):
    """The authors' own code, whose names and settings become timm's."""

    name = COLUMN
    beside = (_CONFIG, _OPEN_CLIP)
    reasons: dict[str, str] = {}
    shared_biases = None
    without_biases = ()
    is_written = False

    def recognises(self, keys: Iterable[str], folder: pathlib.Path) -> bool:
        keys = set(keys)
        if any(map(_CLIP.match, keys)):
            return True
        is_chunked = any(_CHUNK.match(key) for key in keys if ".attn." in key)
        if not (is_chunked or keys.issuperset(_DINO)):
            return False
        # A class of transformers has those of DINO, too.
        return "model_type" not in read_json(folder / _CONFIG)

    def column(self, keys: Iterable[str]) -> str:
        return timm.COLUMN

    def select(self, keys: Iterable[str]) -> dict[str, str]:
        names_of, chosen = kind(keys), {}
        is_masked = "storage_tokens" in keys
        for key in keys:
            if _UNUSED[names_of].match(key):
                continue
            pairs = array_names.RENAMED[names_of]
            name = array_names.renamed(_CHUNK.sub("blocks.", key), pairs)
            if is_masked and name.endswith(".attn.qkv.bias"):
                name = name.removesuffix(".qkv.bias") + _MASKED
            chosen[key] = name
        of_timm = super().select(chosen.values())
        return {key: of_timm[name] for key, name in chosen.items()}

    def arranged(self, arrays: dict) -> dict:
        arranged: dict[str, Any] = {}
        for name, array in arrays.items():
            if name.endswith(_MASKED) and array.ndim == 1 and not array.shape[0] % 3:
                # The bias of keys is masked.
                query, _, value = np.split(np.asarray(array), 3)
                arranged[name.replace(_MASKED, ".qkv[0].bias")] = query
                arranged[name.replace(_MASKED, ".qkv[2].bias")] = value
            else:
                arranged[name] = array
        head = arranged.get("head.weight")
        kernel = arranged.get("patch_embed.proj.weight")
        if head is not None and "head.bias" not in arranged and head.ndim == 2:
            pattern = "inputs outputs -> outputs inputs"
            arranged["head.weight"] = array_names.Rearranged(head, pattern)
            arranged["head.bias"] = np.zeros(head.shape[1], np.float32)
        if kernel is not None and "patch_embed.proj.bias" not in arranged:
            arranged["patch_embed.proj.bias"] = np.zeros(kernel.shape[0], np.float32)
        return arranged

    def describe(self, folder: pathlib.Path, shown: Shown) -> Description:
        file, beside = folder / _CONFIG, folder / _OPEN_CLIP
        config = read_json(file)
        names_of, name = kind(shown.keys), shown.stem
        if "architecture" in config:
            return _with_class_row(timm.described(file, config, shown))
        if names_of == "open_clip" and beside.exists():
            said = _of_open_clip(beside, shown)
            return timm.described(beside, said, shown)
        for row in _PUBLISHED:
            if names_of == "dino" and re.fullmatch(row["file"], name):
                said = {"architecture": row["architecture"]}
                described = _with_class_row(
                    timm.described(folder / name, said, shown, row["inputs"])
                )
                config = described.config
                resizing = row["position_resizing"] or config.position_resizing
                config = dataclasses.replace(config, position_resizing=resizing)
                return described._replace(config=config, pooling="token")
        asked, example = {
            "open_clip": (
                "whether it computes quick GELU or GELU, and its heads: keep its "
                f"{_OPEN_CLIP} beside it",
                "vit_base_patch16_clip_quickgelu_224",
            ),
            "dino": (
                "its heads, epsilon and what images it expects: keep the name that it "
                "was published by (dinov2_vits14_pretrain)",
                "vit_small_patch14_dinov2",
            ),
        }[names_of]
        raise CheckpointError(
            f"{folder / name} has the names of its authors' code, and nothing says "
            f'{asked}, or write timm\'s name of its network, {{"architecture": '
            f'"{example}"}}, into {file}.'
        )
