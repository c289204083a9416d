"""Sound files of networks that are not read are refused by the name of these."""

import json
import shutil

import numpy as np
import pytest

import zoo
from zoo.files import safetensors

KEYS = {
    "vitdet": "encoder.layer.0.attention.qkv.weight",
    "aimv2_vision_model": "encoder.layers.0.ffn.gate_proj.weight",
    "sam": "vision_encoder.layers.0.attn.rel_pos_h",
    "segformer": "segformer.encoder.patch_embeddings.0.proj.weight",
    "swin": "swin.encoder.layers.0.blocks.0.attention.self.query.weight",
    "a_later_one": "embeddings.patch_embeddings.projection.weight",
}
NAMES = {
    "aimv2_large_patch14_224": "blocks.0.mlp.fc1_g.weight",
    "samvit_base_patch16": "blocks.0.attn.rel_pos_h",
    "resnet50": "layer1.0.conv1.weight",
    "vit_relpos_base_patch16_224": "blocks.0.attn.rel_pos.mlp.fc1.weight",
    "vit_base_patch16_rope_mixed_224": "rope.freqs",
}


def saved(folder, config, *keys):
    arrays = {key: np.ones((4, 4), "float32") for key in keys}
    safetensors.write(folder / "model.safetensors", arrays)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def refused(folder):
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(folder)
    text = str(error.value)
    assert len(text.splitlines()) <= 2
    assert str(folder / "config.json") in text
    assert "damaged" not in text
    return text


@pytest.mark.parametrize("model_type", KEYS)
def test_a_type_of_transformers_that_is_not_read_is_named(model_type, tmp_path):
    folder = saved(tmp_path, {"model_type": model_type}, KEYS[model_type], "a.bias")
    assert f"of type {model_type!r}, which is not read" in refused(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_timm_that_is_not_read_is_named(name, tmp_path):
    folder = saved(tmp_path, {"architecture": name}, NAMES[name], "norm.bias")
    assert f"timm's {name}, which is not read" in refused(folder)


def test_a_wrapped_network_of_timm_that_is_not_read_is_named(tmp_path):
    config = {"architecture": "resnet18", "model_type": "timm_wrapper"}
    folder = saved(tmp_path, config, "timm_model.layer1.0.conv1.weight")
    assert "timm's resnet18, which is not read" in refused(folder)


def test_settings_of_another_network_do_not_matter_beside_released_names(tmp_path):
    shutil.copy("tests/goldens/token.npz", tmp_path / "model.npz")
    (tmp_path / "config.json").write_text('{"model_type": "sam"}')
    assert zoo.read(tmp_path).classes == 10


def test_an_empty_array_elsewhere_is_refused(tmp_path):
    arrays = {"embeddings.patch_embeddings.projection.weight": np.ones((0, 3, 4, 4))}
    safetensors.write(tmp_path / "model.safetensors", arrays)
    with pytest.raises(zoo.CheckpointError, match="patch_embeddings.projection"):
        zoo.read(tmp_path)
