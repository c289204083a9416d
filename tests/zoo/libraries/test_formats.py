"""Names of libraries and files of safetensors: what is written is read back."""

import dataclasses
import json

import numpy as np
import pytest
from peer_files import arrays_of, assert_same, golden

import zoo
from zoo.containers import safetensors
from zoo.libraries import array_names

MODELS = ("token", "gap", "pre_logits", "hybrid_stem", "hybrid_three_stages")
FILE = "model.safetensors"
PLAIN = ("token", "gap", "non_square")


def write(folder, name="token", naming="timm", **kwargs):
    path, grid = folder / FILE, (4, 7) if name == "non_square" else None
    zoo.write(path, golden(name).arrays, grid, naming=naming, **kwargs)
    return path


# The table of names


@pytest.mark.parametrize("column", array_names._PATTERNS)
def test_no_name_is_there_twice(column):
    found = [row[column] for row in array_names.TABLE if row[column]]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", MODELS)
def test_every_released_array_has_a_name_of_timms(name):
    checkpoint = golden(name)
    assert all(
        array_names.foreign_name("timm", released) for released in checkpoint.arrays
    )
    theirs = array_names.from_released("timm", checkpoint.arrays, checkpoint.num_heads)
    found, problems = array_names.to_released("timm", theirs, checkpoint.num_heads)
    assert not problems
    np.testing.assert_equal(
        {key: np.asarray(part) for key, part in found.items()}, dict(checkpoint.arrays)
    )


def test_arrays_are_called_as_their_library_calls_them(tmp_path):
    theirs = array_names.from_released("timm", golden().arrays, 3)
    del theirs["blocks.1.attn.qkv.bias"]
    theirs["blocks.2.attn.qkv.bias"] = np.float32(0)
    theirs["blocks.01.norm1.bias"] = np.zeros(48, "float32")
    theirs["norm.weight"] = np.zeros((2, 48), "float32")
    np.savez(tmp_path / "a.npz", **theirs)
    with pytest.raises(zoo.CheckpointError, match="under the names of timm") as error:
        zoo.read(tmp_path / "a.npz")
    message = str(error.value)
    assert "(2, 48)" in message and "unknown blocks.01." in message
    assert "blocks.2.attn.qkv.bias has shape ()" in message
    assert message.count("missing blocks.1.attn.qkv.bias") == 1


@pytest.mark.parametrize("key", ["blocks.0.attn.qkv[0].bias", "blocks.0.a[9/2].b"])
def test_no_key_of_a_file_names_a_part_of_an_array(key, tmp_path):
    theirs = array_names.from_released("timm", golden().arrays, 3)
    np.savez(tmp_path / "a.npz", **theirs, **{key: np.zeros(48, "float32")})
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(tmp_path / "a.npz")
    assert f"unknown {key}" in str(error.value)


# Writing


@pytest.mark.parametrize(
    ("name", "naming"),
    [(name, naming) for name in PLAIN for naming in ("timm", "transformers")]
    + [("hybrid_three_stages", "released"), ("non_square", "released")],
)
def test_what_is_written_is_read_back(name, naming, tmp_path):
    said = zoo.ViTConfig.released(
        activation="gelu", layer_norm_epsilon=1e-6, input_mean=(0.1, 0.2, 0.3)
    )
    path = write(tmp_path, name, naming, semantics=said)
    again = zoo.read(path)
    assert_same(again.arrays, golden(name).arrays)
    assert (again.semantics, again.num_heads) == (said, golden(name).num_heads)
    assert again.grid_size == golden(name).grid_size or again.grid_size == (4, 7)
    zoo.write(tmp_path / "back.safetensors", again)
    assert_same(zoo.read(tmp_path / "back.safetensors").arrays, golden(name).arrays)


@pytest.mark.parametrize(
    ("resizing", "architecture"),
    [("bicubic", "vit_base_patch16_224"), ("bilinear_no_antialias", "flexivit_base")],
)
def test_timms_model_resizes_positions_as_its_file_says(
    resizing, architecture, tmp_path
):
    said = zoo.ViTConfig(activation="gelu", position_resizing=resizing)
    path = write(tmp_path, semantics=said)
    settings = json.loads(path.with_name("config.json").read_text())
    assert settings["architecture"] == architecture
    assert zoo.read(path).semantics.position_resizing == resizing


def test_the_pooler_of_transformers(tmp_path):
    arrays, path = dict(golden("pre_logits").arrays), tmp_path / "model.safetensors"
    with pytest.raises(zoo.CheckpointError, match="pre_logits before its head"):
        zoo.write(path, arrays, naming="transformers")
    del arrays["head/kernel"], arrays["head/bias"]
    zoo.write(path, arrays, naming="transformers")
    assert "pooler.dense.weight" in safetensors.Safetensors(path).keys
    assert_same(zoo.read(path).arrays, arrays)
    with pytest.raises(zoo.CheckpointError, match="timm has no model with pre_log"):
        zoo.write(path, arrays, naming="timm")


EPSILON, POSITIONS = {"layer_norm_epsilon": 1e-12}, {"tokens_with_positions": "patches"}
EVA = {"rotary": "eva", "rotary_grid": (2, 2)}


@pytest.mark.parametrize(
    ("name", "file", "naming", "said", "told"),
    [
        ("token", FILE, "timm", {"rotary": "dinov3"}, "no network like this: .*rotary"),
        ("token", FILE, "timm", EVA, "no network like this: .*rotary"),
        ("token", FILE, "timm", EPSILON, "like this: .*layer_norm_epsilon .*, not"),
        ("hybrid_stem", FILE, "transformers", {}, "no hybrid"),
        ("hybrid_stem", FILE, "timm", {}, "has resnet_width 64, not"),
        ("token", FILE, "flax", {}, "unknown naming 'flax'"),
        ("token", "a.safetensors", "timm", {}, "must be model.safetensors"),
        ("token", "a.npz", "transformers", {}, "must be model.safetensors"),
        ("token", "a.npz", "released", {}, "activation='gelu'.*safetensors"),
        ("token", "a.npz", "released", POSITIONS, "tokens_with_positions='patches"),
    ],
)
def test_what_files_cannot_say_is_not_written(name, file, naming, said, told, tmp_path):
    said = dataclasses.replace(zoo.ViTConfig.released(activation="gelu"), **said)
    with pytest.raises(zoo.CheckpointError, match=told):
        zoo.write(tmp_path / file, golden(name).arrays, naming=naming, semantics=said)
    assert list(tmp_path.iterdir()) == []


# Files of safetensors


def test_files_are_those_of_the_library_safetensors(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    path, arrays = write(tmp_path, naming="released"), dict(golden().arrays)
    assert_same(library.load_file(path), arrays)
    arrays["head/bias"] = arrays["head/bias"].astype("f2")
    arrays["embedding/kernel"] = arrays["embedding/kernel"].astype(ml_dtypes.bfloat16)
    library.save_file(arrays, path)
    expected = {name: array.astype("f4") for name, array in arrays.items()}
    assert_same(zoo.read(path).arrays, expected)
    library.save_file(arrays | {"cls": arrays["cls"].astype("f8")}, path)
    with pytest.raises(zoo.CheckpointError, match="cls has dtype float64"):
        zoo.read(path)


def test_nan_in_the_last_of_many_blocks_is_found(tmp_path):
    numbers = np.zeros(140_000)
    numbers[-1] = np.nan
    safetensors.write(tmp_path / "a.safetensors", {"a": numbers})
    file = safetensors.Safetensors(tmp_path / "a.safetensors")
    with pytest.raises(zoo.CheckpointError, match="NaN or infinity under 'a'"):
        file.check("a")


# Settings beside arrays


@pytest.fixture
def alone(tmp_path):
    """The arrays of a plain network of timm, without settings."""
    path = tmp_path / "model.safetensors"
    safetensors.write(path, arrays_of("deit_timm"))
    return path


def test_settings_of_something_else_are_left_alone(alone):
    (alone.parent / "config.json").write_text('{"recipe": 1}')
    found = zoo.read(alone, num_heads=2).semantics
    assert found.computed == zoo.ViTConfig.released(activation="gelu").computed
    assert found.position_resizing == "bicubic"
    (alone.parent / "config.json").write_text("{")
    with pytest.raises(zoo.CheckpointError, match="config.json cannot be read"):
        zoo.read(alone)


def test_heads_and_semantics_that_are_handed_in(alone):
    said = zoo.ViTConfig.released()
    found = zoo.read(alone, num_heads=4, semantics=said)
    assert (found.num_heads, found.semantics.computed) == (4, said.computed)
    with pytest.raises(zoo.CheckpointError, match="size 16, .* 5 .* num_heads says"):
        zoo.read(alone, num_heads=5)


def test_positions_without_that_of_the_class_token_need_settings(tmp_path):
    arrays = arrays_of("deit_timm")
    arrays["pos_embed"] = arrays["pos_embed"][:, 1:]
    safetensors.write(tmp_path / "a.safetensors", arrays)
    with pytest.raises(zoo.CheckpointError, match="16 positions are a square grid"):
        zoo.read(tmp_path / "a.safetensors", num_heads=2)
