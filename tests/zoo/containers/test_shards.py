import dataclasses
import json
import pathlib

import numpy as np
import peer_models
import pytest

import zoo
from zoo import ViTConfig
from zoo.containers import safetensors
from zoo.libraries import description, names
from zoo.libraries.description import Description

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
INDEX = "model.safetensors.index.json"
FIRST, SECOND, THIRD = (f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3))


def golden():
    return zoo.read(GOLDENS / "token.npz")


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture
def folder(tmp_path):
    """A checkpoint in three files, in timm's names."""
    arrays = names.from_released("timm", golden().arrays, 3)
    write(tmp_path, arrays)
    return tmp_path


def write(folder, arrays, metadata=None):
    places = {}
    for number, name in enumerate((FIRST, SECOND, THIRD)):
        part = {key: arrays[key] for key in list(arrays)[number::3]}
        places |= dict.fromkeys(part, name)
        safetensors.write(folder / name, part, metadata)
    change(folder, places)


def places(folder):
    return json.loads((folder / INDEX).read_text())["weight_map"]


def change(folder, places):
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))


def rewrite(folder, name, change):
    """Changes the arrays of one of the files."""
    file = safetensors.Safetensors(folder / name)
    arrays = {key: np.asarray(file.check(key)) for key in file.keys}
    change(arrays)
    safetensors.write(folder / name, arrays)


def test_what_transformers_writes(transformers, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    transformers(peer_models.save_in_parts, whole, parts)
    assert len(list(parts.glob("model-*-of-*.safetensors"))) > 2
    assert not (parts / "model.safetensors").exists()
    expected = zoo.read(whole)
    for path in (parts, parts / INDEX):
        found = zoo.read(path)
        assert_same(found.arrays, expected.arrays)
        assert (found.semantics, found.num_heads) == (expected.semantics, 3)
        assert found.path == str(parts / INDEX)


def test_every_naming(folder, tmp_path):
    assert_same(zoo.read(folder, num_heads=3).arrays, golden().arrays)
    write(tmp_path, dict(golden().arrays))
    assert_same(zoo.read(tmp_path).arrays, golden().arrays)


def test_what_the_headers_say(tmp_path):
    said = zoo.ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-5)
    theirs = names.from_released("timm", golden().arrays, 3)
    write(
        tmp_path,
        theirs,
        description.to_metadata(Description(dataclasses.replace(said, num_heads=3))),
    )
    checkpoint = zoo.read(tmp_path)
    assert (checkpoint.semantics, checkpoint.num_heads) == (said, 3)
    rewrite(tmp_path, SECOND, lambda arrays: None)
    zoo.read(tmp_path)  # one without a header does not contradict the others
    other = description.to_metadata(Description(ViTConfig(num_heads=3)))
    file = safetensors.Safetensors(tmp_path / SECOND)
    arrays = {key: np.asarray(file.check(key)) for key in file.keys}
    safetensors.write(tmp_path / SECOND, arrays, other)
    with pytest.raises(zoo.CheckpointError, match="00002.* says another keras_vit"):
        zoo.read(tmp_path)


def test_arrays_are_read_when_they_are_asked_for(folder):
    checkpoint = zoo.read(folder, num_heads=3)
    assert checkpoint.shapes == golden().shapes
    name = places(folder)["cls_token"]
    (folder / name).write_bytes(b"other")
    with pytest.raises(zoo.CheckpointError, match=f"{name} was changed while"):
        checkpoint.arrays["cls"]
    with pytest.raises(
        zoo.CheckpointError, match=f"{name} is not an|{name} is damaged"
    ):
        zoo.read(folder)


def test_files_that_are_missing(folder):
    (folder / SECOND).unlink()
    (folder / THIRD).unlink()
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(folder)
    assert f"{INDEX} is not the index of the files beside it" in str(error.value)
    assert f"{SECOND} is not beside it\n  {THIRD} is not beside" in str(error.value)
    assert "download or save all of them again" in str(error.value)


def test_arrays_in_other_files_than_the_index_says(folder):
    said = places(folder)
    name = said["cls_token"]
    other = next(other for other in said.values() if other != name)
    rewrite(folder, other, lambda arrays: arrays.update(cls_token=np.zeros(3)))
    with pytest.raises(
        zoo.CheckpointError, match=f"{other} holds cls_token, which it places in {name}"
    ):
        zoo.read(folder)
    rewrite(folder, name, lambda arrays: arrays.pop("cls_token"))
    with pytest.raises(zoo.CheckpointError, match=f"{name} does not hold cls_token"):
        zoo.read(folder)
    rewrite(folder, other, lambda arrays: arrays.pop("cls_token"))
    with pytest.raises(zoo.CheckpointError, match=f"{name} does not hold cls_token"):
        zoo.read(folder)


def test_arrays_that_the_index_does_not_name(folder):
    rewrite(folder, FIRST, lambda arrays: arrays.update(extra=np.zeros(3)))
    with pytest.raises(zoo.CheckpointError, match="holds extra, which it does not na"):
        zoo.read(folder)


def test_many_problems_are_counted(folder):
    rewrite(folder, FIRST, lambda arrays: arrays.clear())
    rewrite(folder, SECOND, lambda arrays: arrays.clear())
    with pytest.raises(zoo.CheckpointError, match=r"\n  and 10 more$"):
        zoo.read(folder)


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "sub/model.safetensors", "/etc/passwd", "..", ".", ""]
    + [".hidden", "..\\secret.safetensors", "C:\\secret.safetensors", "C:secret"]
    + ["a\0b", "a\n", None, 3, ["a"]],
)
def test_no_file_elsewhere_is_read(name, folder):
    (folder.parent / "secret.safetensors").write_bytes(b"secret")
    change(folder, places(folder) | {"cls_token": name})
    with pytest.raises(zoo.CheckpointError, match="which is not a file beside it"):
        zoo.read(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("{}", "is not the index of a checkpoint"),
        ('{"weight_map": []}', "is not the index of a checkpoint"),
        ('{"weight_map": {}}', "is not the index of a checkpoint"),
        ("[]", "is neither an .npz file"),
    ],
)
def test_what_is_no_index(text, message, folder):
    (folder / INDEX).write_text(text)
    with pytest.raises(zoo.CheckpointError, match=message):
        zoo.read(folder)


def test_nan_in_one_of_the_files(folder):
    def spoil(arrays):
        arrays[min(arrays)][...] = np.nan

    rewrite(folder, THIRD, spoil)
    with pytest.raises(zoo.CheckpointError, match=f"{THIRD} holds NaN or infinity"):
        zoo.read(folder)


def test_a_whole_file_beside_the_parts(folder):
    safetensors.write(folder / "model.safetensors", {})
    with pytest.raises(zoo.CheckpointError, match="a folder with 2 of model.safe"):
        zoo.read(folder)


@pytest.mark.parametrize("name", ["model.npz", "model.safetensors"])
def test_a_folder_that_was_published(name, tmp_path):
    zoo.write(tmp_path / name, golden())
    for other in ("model.json", "model.keras", "README.md"):
        (tmp_path / other).write_text("not read")
    assert_same(zoo.read(tmp_path).arrays, golden().arrays)
