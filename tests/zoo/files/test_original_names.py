"""Files in the names of DINOv2's, DINOv3's, CLIP's and OpenCLIP's own code.

They are goldens of timm's with other names: what is read must be the same to the bit.
"""

import json
import pathlib
import re

import numpy as np
import pytest

import zoo
from zoo.files import original, safetensors

FOLDER = pathlib.Path(__file__).parents[4] / "shared" / "goldens_families"
needs_goldens = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there, which has the files"
)
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


def arrays_of(name):
    file = safetensors.Safetensors(FOLDER / name / "model.safetensors")
    return {key: np.asarray(file.check(key)) for key in file.keys}


def settings_of(name):
    return json.loads((FOLDER / name / "config.json").read_text())


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
    found = {"mask_token": np.ones((1, 48), "float32")}
    for key, array in arrays.items():
        key = key.replace("reg_token", "register_tokens")
        if chunk is not None:
            key = re.sub(r"^blocks\.(\d+)", rf"blocks.{chunk}.\1", key)
        found[key] = array
    return found


def same(found, expected, but=()):
    assert found.config.differences(expected.config).keys() <= {*but}
    assert (found.pooling, found.grid_size) == (expected.pooling, expected.grid_size)
    assert found.shapes == expected.shapes
    for key in expected.arrays:
        np.testing.assert_array_equal(found.arrays[key], expected.arrays[key], key)


@needs_goldens
@pytest.mark.parametrize("chunk", [None, 0])
def test_dinov2(chunk, tmp_path):
    path = tmp_path / "model.safetensors"
    safetensors.write(path, as_dino(arrays_of("dinov2_timm"), chunk))
    (tmp_path / "config.json").write_text(json.dumps(settings_of("dinov2_timm")))
    same(zoo.read(tmp_path), zoo.read(FOLDER / "dinov2_timm"))


@needs_goldens
def test_dinov2_with_registers_and_a_row_of_the_class_token(tmp_path):
    arrays = as_dino(arrays_of("dinov2_reg4_timm"))
    table = arrays["pos_embed"]
    arrays["pos_embed"] = np.concatenate([table[:, :1], table], axis=1)
    path = tmp_path / "model.safetensors"
    safetensors.write(path, arrays)
    (tmp_path / "config.json").write_text(json.dumps(settings_of("dinov2_reg4_timm")))
    found = zoo.read(tmp_path)
    assert found.config.tokens_with_positions == "class token and patches"
    assert found.num_prefix_positions == 1
    # Without the row it is not the authors' file.
    safetensors.write(path, arrays | {"pos_embed": table})
    with pytest.raises(zoo.CheckpointError, match="a grid of"):
        zoo.read(tmp_path)


@needs_goldens
@pytest.mark.parametrize("name", ["clip_timm", "clip_quickgelu_timm"])
def test_clip_with_the_settings_of_open_clip(name, tmp_path):
    arrays, expected = arrays_of(name), zoo.read(FOLDER / name)
    if arrays["head.bias"].any():
        arrays["head.bias"] = arrays["head.bias"] * 0  # which CLIP has not
        kept = dict(expected.arrays)
        kept["head/bias"] = kept["head/bias"] * 0
        expected = zoo.Checkpoint(
            "", kept, expected.grid_size, expected.config, expected.pooling
        )
    file = tmp_path / "open_clip_model.safetensors"
    safetensors.write(file, as_clip(arrays))
    with pytest.raises(
        zoo.CheckpointError, match="computes quick GELU or GELU"
    ) as said:
        zoo.read(tmp_path)
    assert len(str(said.value).splitlines()) <= 2
    width = expected.hidden_size
    settings = {
        "model_cfg": {
            "embed_dim": expected.classes,
            "quick_gelu": "quick" in name,
            "vision_cfg": {
                "image_size": expected.image_size[0],
                "layers": expected.num_layers,
                "width": width,
                "head_width": width // expected.num_heads,
                "mlp_ratio": expected.mlp_dim / width,
                "patch_size": expected.patch_size[0],
            },
        },
        "preprocess_cfg": {
            "mean": expected.config.input_mean,
            "std": expected.config.input_std,
        },
    }

    def write(**changes):
        vision = settings["model_cfg"]["vision_cfg"] | changes
        model = settings["model_cfg"] | {"vision_cfg": vision}
        text = json.dumps(settings | {"model_cfg": model})
        (tmp_path / "open_clip_config.json").write_text(text)

    write()
    same(zoo.read(tmp_path), expected)
    same(zoo.read(file), expected)
    for change, message in (
        ({"width": 1}, "width 1 .the arrays have"),
        ({"layers": 9}, "layers 9 .the arrays have"),
        ({"norm_kwargs": {"eps": 1e-3}}, "norm_kwargs="),
        ({"pool_type": "none"}, "pool_type="),
        ({"pool_type": "avg", "final_ln_after_pool": True}, "final_ln_after_pool="),
        ({"attentional_pool": True}, "attentional_pool=True"),
        ({"proj_bias": False, "scale_fc": False}, "supported: proj_bias=False.$"),
        ({"no_ln_pre": True}, "norm_before_blocks False .the arrays have True"),
        ({"ls_init_value": 0.1}, "layer_scale True .the arrays have False"),
    ):
        write(**change)
        with pytest.raises(zoo.CheckpointError, match=message):
            zoo.read(tmp_path)
    # By timm's name of the network, too.
    (tmp_path / "config.json").write_text(json.dumps(settings_of(name)))
    same(zoo.read(tmp_path), expected)
    arrays = as_clip(arrays)
    del arrays["visual.ln_post.bias"]
    safetensors.write(file, arrays)
    with pytest.raises(zoo.CheckpointError, match="missing norm.bias"):
        zoo.read(tmp_path)


@needs_goldens
def test_a_tower_of_timm_in_open_clip(tmp_path):
    arrays = {f"visual.trunk.{key}": a for key, a in arrays_of("siglip_timm").items()}
    safetensors.write(tmp_path / "open_clip_model.safetensors", arrays)
    vision = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
    vision |= {"timm_proj": "none", "image_size": 32}
    half = {"mean": [0.5] * 3, "std": [0.5] * 3}
    path = tmp_path / "open_clip_config.json"

    def write(**changes):
        model = {"vision_cfg": vision | changes}
        path.write_text(json.dumps({"model_cfg": model, "preprocess_cfg": half}))

    write()
    # The heads of the golden are not those of its architecture.
    found, expected = zoo.read(tmp_path), zoo.read(FOLDER / "siglip_timm")
    assert found.config.differences(expected.config).keys() == {"num_heads"}
    assert (found.pooling, found.grid_size) == ("map", expected.grid_size)
    write(timm_proj="linear")
    with pytest.raises(zoo.CheckpointError, match="timm_proj='linear'"):
        zoo.read(tmp_path)


@needs_goldens
def test_photos_come_to_the_size_as_open_clip_says(tmp_path):
    arrays = {f"visual.trunk.{key}": a for key, a in arrays_of("siglip_timm").items()}
    safetensors.write(tmp_path / "open_clip_model.safetensors", arrays)
    vision = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
    vision |= {"timm_proj": "none", "image_size": 32}
    file = tmp_path / "open_clip_config.json"

    def found(vision=vision, **inputs):
        model = {"vision_cfg": vision}
        file.write_text(json.dumps({"model_cfg": model, "preprocess_cfg": inputs}))
        return zoo.read(tmp_path)

    # OpenCLIP's defaults.
    assert found().head.preparation == "timm crop bicubic"
    assert found().semantics.input_mean == (0.48145466, 0.4578275, 0.40821073)
    squash = found(resize_mode="squash", interpolation="bilinear", mode="RGB", size=32)
    assert squash.head.preparation == "timm squash bilinear"
    assert found(interpolation="random", resize_mode=None).head.preparation == (
        "timm crop bicubic"
    )
    for inputs, told in (
        ({"resize_mode": "longest"}, "resize_mode='longest': only shortest, squash"),
        ({"interpolation": "area"}, "interpolation='area': only bicubic, bilinear"),
        ({"mode": "L"}, "mode='L'"),
        ({"mean": "x"}, "a mean of 'x': write a number"),
        ({"std": [0.5, 0, 0.5]}, "a std of .*: write a number"),
        ({"gamma": 2}, "not known: gamma=2"),
        ({"vision": vision | {"image_size": "x"}}, "an image_size of 'x': write"),
        ({"vision": vision | {"new": 0}}, "not supported: new=0"),
        ({"vision": [1]}, r"a vision_cfg of \[1\]: write a table"),
        ({"vision": None}, "no vision_cfg in its model_cfg: copy"),
    ):
        with pytest.raises(zoo.CheckpointError, match=told) as error:
            found(**inputs)
        assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("stem", "architecture"),
    [
        ("dinov2_vits14_pretrain", "vit_small_patch14_dinov2"),
        ("dinov2_vitg14_reg4_pretrain", "vit_giant_patch14_reg4_dinov2"),
        ("dinov3_vits16_pretrain_lvd1689m-08c60483", "vit_small_patch16_dinov3_qkvb"),
        ("dinov3_vits16plus_pretrain_lvd1689m", "vit_small_plus_patch16_dinov3_qkvb"),
        ("dinov3_vit7b16_pretrain_sat493m", "vit_7b_patch16_dinov3"),
    ],
)
def test_published_names(stem, architecture):
    patterns = (
        (original._DINOV2_FILE, original._dinov2),
        (
            original._DINOV3_FILE,
            original._dinov3,
        ),
    )
    [(said, changes)] = [
        read(match) for pattern, read in patterns if (match := pattern.fullmatch(stem))
    ]
    assert said["architecture"] == architecture
    assert ("mean" in said) == ("sat493m" in stem)
    resized = {"dinov2_vits14_pretrain": "bicubic_no_antialias"}
    if "dinov2" in stem:
        assert changes == {"position_resizing": resized.get(stem, "bicubic")}


@needs_goldens
def test_a_name_answers_what_no_key_tells(tmp_path):
    arrays = as_dino(arrays_of("dinov2_timm"))
    path = tmp_path / "mine.safetensors"
    safetensors.write(path, arrays)
    with pytest.raises(zoo.CheckpointError, match="its heads, epsilon") as said:
        zoo.read(path)
    assert "dinov2_vits14_pretrain" in str(said.value)
    named = path.rename(tmp_path / "dinov2_vitb14_pretrain.safetensors")
    found, expected = zoo.read(named), zoo.read(FOLDER / "dinov2_timm")
    assert found.num_heads == 12
    assert found.config.input_mean == expected.config.input_mean
    others = ("num_heads", "position_resizing")
    assert found.config.differences(expected.config).keys() <= {*others}
    # As a name of another network is refused.
    other = named.rename(tmp_path / "dinov2_vitg14_pretrain.safetensors")
    with pytest.raises(zoo.CheckpointError, match="with gates True"):
        zoo.read(other)
    other = other.rename(tmp_path / "dinov2_vitb14_reg4_pretrain.safetensors")
    with pytest.raises(zoo.CheckpointError, match="num_registers 4 .the arrays have 0"):
        zoo.read(other)


@needs_goldens
def test_biases_of_masked_keys(tmp_path):
    arrays = {}
    for key, array in arrays_of("dinov3_qkvb_timm").items():
        key = key.replace("reg_token", "storage_tokens")
        for one in ("1", "2"):
            key = key.replace(f"gamma_{one}", f"ls{one}.gamma")
        if key.endswith("q_bias"):
            value = arrays_of("dinov3_qkvb_timm")[key.replace("q_bias", "v_bias")]
            parts = [array, np.full_like(array, 7.0), value]
            arrays[key.replace("q_bias", "qkv.bias")] = np.concatenate(parts)
            arrays[key.replace("q_bias", "qkv.bias_mask")] = np.ones(3 * len(array))
        elif not key.endswith("v_bias"):
            arrays[key] = array
    arrays["mask_token"] = np.zeros((1, 48))
    arrays["rope_embed.periods"] = np.ones(4)
    safetensors.write(tmp_path / "model.safetensors", arrays)
    settings = settings_of("dinov3_qkvb_timm")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    same(zoo.read(tmp_path), zoo.read(FOLDER / "dinov3_qkvb_timm"))
