"""Names of libraries and files of safetensors: what is written is read back."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from peer_files import arrays_of

import zoo
from zoo.containers import safetensors
from zoo.libraries import names
from zoo.network import released_names
from zoo.network.released_names import BLOCK

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
INDEX = json.loads((GOLDENS / "index.json").read_text())
MODELS = [name for name, entry in INDEX.items() if "hidden_size" in entry]
PLAIN = ("token", "gap", "non_square")


def golden(name="token"):
    return zoo.read(GOLDENS / f"{name}.npz")


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def write(folder, name="token", naming="timm", **kwargs):
    path, grid = folder / "model.safetensors", (4, 7) if name == "non_square" else None
    zoo.write(path, golden(name).arrays, grid, naming=naming, **kwargs)
    return path


# The table of names


@pytest.mark.parametrize("column", [c for c in names.Row._fields if c != "axes"])
def test_no_name_is_there_twice(column):
    found = [getattr(row, column) for row in names.TABLE if getattr(row, column)]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", MODELS)
def test_every_released_array_has_a_name_of_timms(name):
    checkpoint = golden(name)
    assert all(names.foreign_name("timm", released) for released in checkpoint.arrays)
    theirs = names.from_released("timm", checkpoint.arrays, checkpoint.num_heads)
    found, problems = names.to_released("timm", theirs, checkpoint.num_heads)
    assert not problems
    found = {key: np.asarray(part) for key, part in found.items()}
    assert_same(found, dict(checkpoint.arrays))


def test_arrays_of_another_feature_are_rows_of_a_table(monkeypatch):
    shapes = golden().shapes
    names = [f"{BLOCK}_{block}/Gate_0/scale" for block in range(3)]
    scales = dict.fromkeys(names, (48,))
    assert released_names.measure(shapes | scales)[1][0] == f"unknown {names[0]}"
    rows = {"Gate_0/scale": ("hidden_size",)}
    monkeypatch.setitem(released_names.OPTIONAL_BLOCK_ARRAYS, "gate", rows)
    assert released_names.measure(shapes)[1] == []
    assert released_names.measure(shapes | scales)[1] == []
    assert released_names.features(scales) == {"gate"}
    del scales[names[1]]
    assert released_names.measure(shapes | scales)[1] == [f"missing {names[1]}"]


@pytest.mark.parametrize("number", ["01", "-1", "x", ""])
def test_other_numbers_are_unknown(number):
    arrays = {f"blocks.{number}.norm1.weight": np.zeros(3, "float32")}
    assert names.to_released("timm", arrays, 1)[1][0].startswith("unknown blocks")


def test_arrays_are_called_as_their_library_calls_them(tmp_path):
    theirs = names.from_released("timm", golden().arrays, 3)
    del theirs["blocks.1.attn.qkv.bias"]
    theirs["blocks.2.attn.qkv.bias"] = np.float32(0)
    theirs["extra"] = np.zeros(3, "float32")
    theirs["norm.weight"] = np.zeros((2, 48), "float32")
    np.savez(tmp_path / "a.npz", **theirs)
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(tmp_path / "a.npz")
    message = str(error.value)
    for part in (
        "under the names of timm", "unknown extra", "(2, 48)",
        "blocks.2.attn.qkv.bias has shape ()",
    ):  # fmt: skip
        assert part in message
    assert message.count("missing blocks.1.attn.qkv.bias") == 1


# Writing


@pytest.mark.parametrize(
    ("name", "naming"),
    [(name, "released") for name in MODELS]
    + [(name, naming) for name in PLAIN for naming in ("timm", "transformers")],
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


@pytest.mark.parametrize(
    ("name", "naming", "network", "told"),
    [
        ("token", "timm", {"rotary": "dinov3"}, "no network like this: .*rotary"),
        (
            *("token", "timm", {"rotary": "eva", "rotary_grid": (2, 2)}),
            "no network like this: .*rotary",
        ),
        (
            *("token", "timm", {"layer_norm_epsilon": 1e-12}),
            "no network like this: .*layer_norm_epsilon .*, not",
        ),
        ("hybrid_stem", "transformers", {}, "no hybrid"),
        ("hybrid_stem", "timm", {}, "no hybrid with stages"),
        ("token", "flax", {}, "unknown naming 'flax'"),
    ],
)
def test_what_a_library_has_not_is_not_written(name, naming, network, told, tmp_path):
    said = zoo.ViTConfig.released(activation="gelu")
    with pytest.raises(zoo.CheckpointError, match=told):
        write(tmp_path, name, naming, semantics=dataclasses.replace(said, **network))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "naming", "said", "told"),
    [
        ("a.safetensors", "timm", {}, "must be model.safetensors"),
        ("a.npz", "transformers", {}, "must be model.safetensors"),
        ("a.npz", "released", {"activation": "gelu"}, "activation='gelu'.*safetensors"),
        (
            *("a.npz", "released", {"tokens_with_positions": "patches"}),
            "tokens_with_positions='patches",
        ),
    ],
)
def test_a_file_that_cannot_say_it_is_not_written(file, naming, said, told, tmp_path):
    said = dataclasses.replace(zoo.ViTConfig.released(), **said)
    with pytest.raises(zoo.CheckpointError, match=told):
        zoo.write(tmp_path / file, golden().arrays, naming=naming, semantics=said)


def test_a_failing_write_leaves_the_old_files(tmp_path, monkeypatch):
    path = write(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def full(path, *_):
        pathlib.Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors, "write", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path, naming="transformers")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert path in before


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_are_not_written(value, tmp_path):
    arrays = dict(golden().arrays) | {"cls": np.full((1, 1, 48), value, "float32")}
    with pytest.raises(zoo.CheckpointError, match="cls holds NaN or infinity"):
        zoo.write(tmp_path / "a.npz", arrays)
    assert list(tmp_path.iterdir()) == []


# Files of safetensors


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_what_safetensors_writes_is_read(dtype, tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    arrays, path = dict(golden().arrays), tmp_path / "a.safetensors"
    arrays["head/bias"] = arrays["head/bias"].astype(kind)
    library.save_file(arrays, path)
    if dtype == "float64":
        with pytest.raises(zoo.CheckpointError, match="head/bias has dtype"):
            zoo.read(path)
        return
    found, expected = zoo.read(path).arrays, arrays["head/bias"].astype("float32")
    np.testing.assert_array_equal(found["head/bias"], expected)
    np.testing.assert_array_equal(found["cls"], arrays["cls"])


def test_what_is_written_safetensors_reads(tmp_path):
    library = pytest.importorskip("safetensors")
    path = write(tmp_path, naming="released")
    with library.safe_open(path, "numpy") as file:
        assert set(file.keys()) == golden().arrays.keys()
        for name, array in golden().arrays.items():
            np.testing.assert_array_equal(file.get_tensor(name), array)
        assert file.metadata()["format"] == "pt"


def test_arrays_are_read_when_they_are_asked_for(tmp_path):
    path = write(tmp_path)
    checkpoint = zoo.read(path)
    assert checkpoint.shapes == golden().shapes
    path.write_bytes(b"other")
    with pytest.raises(zoo.CheckpointError, match="changed while"):
        checkpoint.arrays["cls"]


def test_nan_in_the_last_of_many_blocks_is_found(tmp_path):
    numbers = np.zeros(100_000)
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


def test_heads_that_are_handed_in_must_divide_the_tokens(alone):
    assert zoo.read(alone, num_heads=4).num_heads == 4
    with pytest.raises(zoo.CheckpointError, match="size 16, .* 5 .* num_heads says"):
        zoo.read(alone, num_heads=5)


def test_semantics_in_place_of_what_is_said(alone):
    said = zoo.ViTConfig.released()
    found = zoo.read(alone, num_heads=2, semantics=said).semantics
    assert found.computed == said.computed


def test_positions_without_that_of_the_class_token_need_settings(tmp_path):
    arrays = arrays_of("deit_timm")
    arrays["pos_embed"] = arrays["pos_embed"][:, 1:]
    safetensors.write(tmp_path / "a.safetensors", arrays)
    with pytest.raises(zoo.CheckpointError, match="16 positions are a square grid"):
        zoo.read(tmp_path / "a.safetensors", num_heads=2)


@pytest.mark.parametrize(
    "change",
    [
        {"activation": "relu"},
        {"layer_norm_epsilon": 0.0},
        {"layer_norm_epsilon": True},
        {"input_mean": 0.5},
        {"input_mean": ()},
        {"input_std": (0.5, 0.5, 0.0)},
        {"input_std": (0.5, 0.5)},
        {"resnet_padding": "valid"},
        {"resnet_epsilons": "torch"},
    ],
)
def test_values_that_a_config_never_has_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        zoo.ViTConfig.released(**change)
