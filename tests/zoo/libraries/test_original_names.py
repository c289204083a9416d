"""Files in the names of DINOv2's, DINOv3's, CLIP's and OpenCLIP's own code.

They are goldens of timm's with other names: what is read must be the same to the bit.
"""

import dataclasses
import json
import re

import numpy as np
import pytest
from peer_files import arrays_of, assert_same, folder_of, settings_of

import zoo
from zoo.containers import safetensors
from zoo.libraries import architectures, original

CLIP = {
    "blocks.": "visual.transformer.resblocks.",
    "cls_token": "visual.class_embedding",
    "pos_embed": "visual.positional_embedding",
    "patch_embed.proj.": "visual.conv1.",
    "norm_pre.": "visual.ln_pre.",
    "head.weight": "visual.proj",
    ".norm1.": ".ln_1.",
    ".norm2.": ".ln_2.",
    ".attn.qkv.": ".attn.in_proj_",
    ".attn.proj.": ".attn.out_proj.",
    ".mlp.fc1.": ".mlp.c_fc.",
    ".mlp.fc2.": ".mlp.c_proj.",
}
TEXTS = (
    "transformer.resblocks.0.attn.in_proj_weight",
    "token_embedding.weight",
    "positional_embedding",
    "ln_final.bias",
    "text_projection",
    "logit_scale",
)


def as_clip(arrays):
    found = {}
    for key, array in arrays.items():
        if key == "head.bias":
            continue
        key = re.sub(r"^norm\.", "visual.ln_post.", key)
        for theirs, ours in CLIP.items():
            if theirs.startswith(".") or key.startswith(theirs):
                key = key.replace(theirs, ours)
        if key in ("visual.class_embedding", "visual.positional_embedding"):
            array = array.reshape(array.shape[-2:] if "pos" in key else -1)
        found[key] = array.T if key == "visual.proj" else array
    return found | dict.fromkeys(TEXTS, np.ones(3, "float32"))


def as_dino(arrays, chunk=None):
    found = {"mask_token": np.ones((1, 16), "float32")}
    for key, array in arrays.items():
        key = key.replace("reg_token", "register_tokens")
        if chunk is not None:
            key = re.sub(r"^blocks\.(\d+)", rf"blocks.{chunk}.\1", key)
        found[key] = array
    return found


def same(found, expected):
    assert not found.config.differences(expected.config)
    assert (found.pooling, found.grid_size) == (expected.pooling, expected.grid_size)
    assert_same(found.arrays, expected.arrays)


@pytest.fixture
def write(tmp_path):
    """Writes a golden's arrays under other names; returns what is read of them."""

    def made(arrays, settings=None, file="model.safetensors", beside="config.json"):
        safetensors.write(tmp_path / file, arrays)
        if settings is not None:
            (tmp_path / beside).write_text(json.dumps(settings))
        return zoo.read(tmp_path)

    return made


@pytest.mark.parametrize("chunk", [None, 0])
def test_dinov2(chunk, write):
    arrays = as_dino(arrays_of("dinov2_timm"), chunk)
    found = write(arrays, settings_of("dinov2_timm"))
    same(found, zoo.read(folder_of("dinov2_timm")))


def test_dinov2_with_registers_and_a_row_of_the_class_token(write):
    arrays = as_dino(arrays_of("dinov2_reg4_timm"))
    settings, table = settings_of("dinov2_reg4_timm"), arrays["pos_embed"]
    more = {"pos_embed": np.concatenate([table[:, :1], table], axis=1)}
    found = write(arrays | more, settings)
    assert found.config.tokens_with_positions == "class token and patches"
    assert found.num_prefix_positions == 1
    # Without the row it is not the authors' file.
    with pytest.raises(zoo.CheckpointError, match="a grid of"):
        write(arrays, settings)


OPEN_CLIP = {"file": "open_clip_model.safetensors", "beside": "open_clip_config.json"}


def clip(name="clip_timm", **changes):
    """CLIP's arrays of a golden, and the settings that OpenCLIP has of it, changed."""
    arrays, found = arrays_of(name), zoo.read(folder_of(name))
    # CLIP has no bias.
    arrays["head.bias"] = np.zeros(5, "float32")
    width, config = found.hidden_size, found.config
    vision = {"image_size": found.image_size[0], "layers": found.num_layers}
    vision |= {"width": width, "head_width": width // found.num_heads}
    vision |= {"mlp_ratio": found.mlp_dim / width, "patch_size": found.patch_size[0]}
    model = {"embed_dim": found.classes, "quick_gelu": "quick" in name}
    inputs = {"mean": config.input_mean, "std": config.input_std}
    model["vision_cfg"] = vision | changes
    return as_clip(arrays), {"model_cfg": model, "preprocess_cfg": inputs}


def tower(inputs=(), **changes):
    """A tower of timm, with settings of OpenCLIP."""
    arrays = {f"visual.trunk.{key}": a for key, a in arrays_of("siglip_timm").items()}
    vision = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
    vision |= {"timm_proj": "none", "image_size": 16} | changes
    model = {"vision_cfg": vision if vision["timm_model_name"] else None}
    return arrays, {"model_cfg": model, "preprocess_cfg": dict(inputs)}


@pytest.mark.parametrize("name", ["clip_timm", "clip_quickgelu_timm"])
def test_clip_with_the_settings_of_open_clip(name, write, tmp_path):
    arrays, settings = clip(name)
    expected = zoo.read(folder_of(name))
    kept = dict(expected.arrays) | {"head/bias": np.zeros(5, "float32")}
    expected = dataclasses.replace(expected, arrays=kept)
    with pytest.raises(zoo.CheckpointError, match="computes quick GELU or GELU") as one:
        write(arrays, **OPEN_CLIP)
    assert len(str(one.value).splitlines()) <= 2
    same(write(arrays, settings, **OPEN_CLIP), expected)
    same(zoo.read(tmp_path / OPEN_CLIP["file"]), expected)
    # By timm's name of the network, too.
    file = OPEN_CLIP["file"]
    same(write(arrays, settings_of(name), file), expected)
    del arrays["visual.ln_post.bias"]
    with pytest.raises(zoo.CheckpointError, match="missing norm.bias"):
        write(arrays, settings_of(name), file)


@pytest.mark.parametrize(
    ("inputs", "preparation"),
    [
        # OpenCLIP's defaults.
        ({}, "timm crop bicubic"),
        ({"interpolation": "random", "resize_mode": None}, "timm crop bicubic"),
        ({"resize_mode": "squash", "mode": "RGB"}, "timm squash bicubic"),
    ],
)
def test_a_tower_of_timm_in_open_clip(inputs, preparation, write):
    found = write(*tower(inputs, timm_proj=None), **OPEN_CLIP)
    expected = zoo.read(folder_of("siglip_timm"))
    # The heads of the golden are not those of its architecture.
    different = {"num_heads", "input_mean", "input_std"}
    assert found.config.differences(expected.config).keys() == different
    assert (found.pooling, found.grid_size) == ("map", expected.grid_size)
    assert found.head.preparation == preparation
    assert found.semantics.input_mean == (0.48145466, 0.4578275, 0.40821073)


@pytest.mark.parametrize(
    ("made", "changes", "told"),
    [
        (clip, {"width": 1}, "width 1 .the arrays have"),
        (clip, {"layers": 9}, "layers 9 .the arrays have"),
        (clip, {"norm_kwargs": {"eps": 1e-3}}, "norm_kwargs="),
        (clip, {"pool_type": "none"}, "pool_type='none': only tok, avg .* is not read"),
        (clip, {"pool_type": "avg", "final_ln_after_pool": True}, "after_pool=True wi"),
        (clip, {"attentional_pool": True}, "attentional_pool=True"),
        (
            clip,
            {"proj_bias": False, "scale_fc": False},
            "not known: proj_bias=False. Take",
        ),
        (clip, {"no_ln_pre": True}, "norm_before_blocks False .the arrays have True"),
        (clip, {"ls_init_value": 0.1}, "layer_scale True .the arrays have False"),
        (tower, {"inputs": {"resize_mode": "longest"}}, "'longest': only shortest, sq"),
        (tower, {"inputs": {"interpolation": "area"}}, "'area': only bicubic, biline"),
        (tower, {"inputs": {"mode": "L"}}, "mode='L'"),
        (tower, {"inputs": {"mean": "x"}}, "a mean of 'x': write a number"),
        (tower, {"inputs": {"gamma": 2}}, "not known: gamma=2"),
        (tower, {"timm_proj": "linear"}, "timm_proj='linear'"),
        (tower, {"image_size": "x"}, "an image_size of 'x': write"),
        (tower, {"new": 0}, "not known: new=0"),
        (tower, {"timm_model_name": None}, "no vision_cfg in its model_cfg: copy"),
    ],
)
def test_settings_of_open_clip_are_refused_by_name(made, changes, told, write):
    arrays, settings = made(**changes)
    with pytest.raises(zoo.CheckpointError, match=told) as error:
        write(arrays, settings, **OPEN_CLIP)
    assert OPEN_CLIP["beside"] in str(error.value)


def test_published_names_are_of_known_networks():
    for row in original._PUBLISHED:
        assert architectures.implied(row["architecture"])
        assert row["inputs"] in ("", *architectures.INPUTS)


def test_a_name_answers_what_no_key_tells(tmp_path):
    path = tmp_path / "mine.safetensors"
    safetensors.write(path, as_dino(arrays_of("dinov2_timm")))
    with pytest.raises(zoo.CheckpointError, match="its heads, epsilon") as said:
        zoo.read(path)
    assert "dinov2_vits14_pretrain" in str(said.value)
    named = path.rename(tmp_path / "dinov2_vitb14_pretrain.safetensors")
    found, expected = zoo.read(named), zoo.read(folder_of("dinov2_timm"))
    assert found.num_heads == 12
    assert found.config.input_mean == expected.config.input_mean
    assert found.config.position_resizing == "bicubic_no_antialias"
    others = ("num_heads", "position_resizing")
    assert found.config.differences(expected.config).keys() <= {*others}
    # As a name of another network is refused.
    for name, told in (
        ("dinov2_vitg14_pretrain", "with gates True"),
        ("dinov2_vitb14_reg4_pretrain", "num_registers 4 .the arrays have 0"),
    ):
        named = named.rename(tmp_path / f"{name}.safetensors")
        with pytest.raises(zoo.CheckpointError, match=told):
            zoo.read(named)


def test_biases_of_masked_keys(write):
    theirs, arrays = arrays_of("dinov3_qkvb_timm"), {}
    for key, array in theirs.items():
        key = key.replace("reg_token", "storage_tokens")
        for one in ("1", "2"):
            key = key.replace(f"gamma_{one}", f"ls{one}.gamma")
        if key.endswith("q_bias"):
            value = theirs[key.replace("q_bias", "v_bias")]
            parts = [array, np.full_like(array, 7.0), value]
            arrays[key.replace("q_bias", "qkv.bias")] = np.concatenate(parts)
            arrays[key.replace("q_bias", "qkv.bias_mask")] = np.ones(3 * len(array))
        elif not key.endswith("v_bias"):
            arrays[key] = array
    arrays |= {"mask_token": np.zeros((1, 16)), "rope_embed.periods": np.ones(2)}
    found = write(arrays, settings_of("dinov3_qkvb_timm"))
    same(found, zoo.read(folder_of("dinov3_qkvb_timm")))
