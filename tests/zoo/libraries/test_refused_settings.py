"""Settings that would change what is computed, or that a field never has, are refused.

Each row of `refused_settings.txt` is one change of the settings of a sound model. What
is told names the file and the field, in two lines at most.
"""

import json
import pathlib

import numpy as np
import pytest

from zoo.containers import safetensors

_, *LINES = (
    pathlib.Path(__file__).with_name("refused_settings.txt").read_text().splitlines()
)
PROCESSOR = "preprocessor_config.json"


@pytest.mark.parametrize("line", LINES)
def test_a_change_of_settings_is_refused_by_name(line, changed, refused):
    model, file, table, change, without, told = line.split("|")
    changes = json.loads(change) | dict.fromkeys(without.split(), ...)
    refused(changed(model, changes, table, file or "config.json"), told)


# {(file, table): {field: values that it never has}}
VALUES = {
    ("config.json", None): {
        "architecture": (5, ["vit"], {"a": 1}),
        "global_pool": (5, ["token"]),
        "num_features": ("48", 0, 10**400, [48]),
        "label_names": (5, "cat"),
    },
    ("config.json", "pretrained_cfg"): {
        "interpolation": (5, ["bicubic"]),
        "label_descriptions": ("x", ["cat"]),
        "crop_pct": ("x", 2),
        "crop_mode": (5,),
        "mean": ("x", [1e9] * 3),
        "std": ("x", [0.5, 0.5, 0]),
        "input_size": (32, [32, 32], [3, 32, 0], "x"),
        "notes": (5, [5], {"a": 1}),
        "label_names": (5, "cat", True),
    },
    ("config.json", "model_args"): {
        "num_heads": ("3", 0, 10**400, [3], True),
        "reg_tokens": ("1", -1, 4.9, True),
        "img_size": ("x", [32, 0], [], 10**30),
        "qkv_bias": ("yes", 1, []),
        "act_layer": (["gelu"], 5),
    },
    (PROCESSOR, None): {
        "size": (
            *("x", 0, True, 10**30, 2.0, [], [1, 2, 3], [224, "x"], {}),
            *({"height": 0, "width": 0}, {"height": "a", "width": 1}, {"height": 8}),
            *({"height": 1e400, "width": 3}, {"side": 3}, {"shortest_edge": True}),
        ),
        "crop_size": ("x", 0, [1], {"height": 10}, {"shortest_edge": 8}, True, 10**30),
        "crop_pct": ("x", 2, -1, 1e-9, [1], True, float("nan")),
        "resample": ("bicubic", 6, -1, 2.0, True, [2]),
        "rescale_factor": ("1/255", 0, -1, 1e-300, 1e400, True, [1], 10**400),
        "image_mean": ("x", ["a"] * 3, [None] * 3, [], {"a": 1}, True, [1e9] * 3),
        "image_std": ("x", 0, [0.5, 0.5, 0.0], [True] * 3, 1e297, [1e-300] * 3, -1),
        "do_resize": ("no", 1, []),
        "default_to_square": ("no", 0),
        "image_processor_type": (5, ["ViT"], "MyImageProcessor", "LlavaImageProcessor"),
        "gamma": (0, "", []),
        "antialias": (True, False),
    },
}


@pytest.mark.parametrize(
    ("file", "table", "field"),
    [(*place, field) for place, fields in VALUES.items() for field in fields],
)
def test_values_that_a_field_never_has_are_refused(
    file, table, field, changed, refused
):
    name, beside = "timm_label_names", {}
    if file == PROCESSOR:
        name = "own_names_of_3"
        beside = {"image_processor_type": "ViTImageProcessor", "do_center_crop": True}
    for value in VALUES[file, table][field]:
        folder = changed(name, beside | {field: value}, table, file)
        message = refused(folder, str(folder / file), field)
        assert "rite" in message or "ake" in message, value


# Settings or arrays alone name a network that is not read.
PATCHES = "patch_embed.proj.weight"
PROJECTION = "embeddings.patch_embeddings.projection.weight"
RESNET = {"architecture": "resnet18", "model_type": "timm_wrapper"}


@pytest.mark.parametrize(
    ("keys", "config", "told"),
    [
        (
            ["layers.0.attn.rel_pos_h"],
            {"model_type": "sam"},
            "of type 'sam', which is n",
        ),
        ([PROJECTION], {"model_type": "later"}, "of type 'later', which is not read"),
        ([PATCHES], {"architecture": "resnet50"}, "timm's resnet50, which is not read"),
        (["timm_model.conv1.weight"], RESNET, "timm's resnet18, which is not read"),
        ([PATCHES, "blocks.0.attn.q_norm.weight"], {}, "normalises queries and keys"),
        ([PATCHES, "blocks.0.attn.rel_pos.bias"], {}, "positions are not learned"),
        ([PROJECTION, "decode_head.classifier.weight"], {}, "segments images"),
    ],
)
def test_a_network_that_is_not_read_is_named(keys, config, told, tmp_path, refused):
    arrays = {key: np.ones((4, 4), "float32") for key in [*keys, "norm.bias"]}
    safetensors.write(tmp_path / "model.safetensors", arrays)
    (tmp_path / "config.json").write_text(json.dumps(config))
    # Arrays that are missing too would only hide the reason.
    assert "missing" not in refused(tmp_path, told)
