import json

import numpy as np
import peer_models
import pytest
from peer_files import assert_same, golden

import zoo
from zoo import ViTConfig
from zoo.containers import safetensors
from zoo.libraries import array_names, description
from zoo.libraries.description import Description

INDEX = "model.safetensors.index.json"
FIRST, SECOND, THIRD = (f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3))


def refusal(folder):
    with pytest.raises(zoo.CheckpointError) as error:
        zoo.read(folder)
    return str(error.value)


@pytest.fixture
def folder(tmp_path):
    """A checkpoint in three files, in timm's names."""
    arrays = array_names.from_released("timm", golden().arrays, 3)
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


def rewrite(folder, name, change=lambda arrays: None, metadata=None):
    """Changes the arrays of one of the files."""
    file = safetensors.Safetensors(folder / name)
    arrays = {key: np.asarray(file.check(key)) for key in file.keys}
    change(arrays)
    safetensors.write(folder / name, arrays, metadata)


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


def test_what_the_headers_say(folder):
    said = ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-5, num_heads=3)
    arrays = array_names.from_released("timm", golden().arrays, 3)
    write(folder, arrays, description.to_metadata(Description(said)))
    checkpoint = zoo.read(folder)
    assert (checkpoint.semantics, checkpoint.num_heads) == (said.semantics, 3)
    rewrite(folder, SECOND)
    zoo.read(folder)  # one without a header does not contradict the others
    other = description.to_metadata(Description(ViTConfig(num_heads=3)))
    rewrite(folder, SECOND, metadata=other)
    assert f"{SECOND} says another keras_vit" in refusal(folder)


def test_arrays_are_read_when_they_are_asked_for(folder):
    checkpoint = zoo.read(folder, num_heads=3)
    assert_same(checkpoint.arrays, golden().arrays)
    name = places(folder)["cls_token"]
    (folder / name).write_bytes(b"other")
    with pytest.raises(zoo.CheckpointError, match=f"{name} was changed while"):
        checkpoint.arrays["cls"]
    assert f"{name} is damaged" in refusal(folder)


def test_files_that_are_missing(folder):
    (folder / SECOND).unlink()
    (folder / THIRD).unlink()
    told = refusal(folder)
    assert f"{INDEX} is not the index of the files beside it" in told
    assert f"{SECOND} is not beside it\n  {THIRD} is not beside" in told
    assert "download or save all of them again" in told


def test_arrays_in_other_files_than_the_index_says(folder):
    said = places(folder)
    name = said["cls_token"]
    other = next(other for other in said.values() if other != name)
    rewrite(folder, other, lambda arrays: arrays.update(cls_token=np.zeros(3)))
    assert f"{other} holds cls_token, which it places in {name}" in refusal(folder)
    rewrite(folder, other, lambda arrays: arrays.pop("cls_token"))
    rewrite(folder, name, lambda arrays: arrays.pop("cls_token"))
    assert f"{name} does not hold cls_token" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda arrays: arrays.update(a=np.zeros(3)), "holds a, which it does not na"),
        (lambda arrays: arrays[min(arrays)].fill(np.nan), "holds NaN or infinity"),
        (lambda arrays: arrays.clear(), f"{THIRD} does not hold"),
    ],
)
def test_a_changed_file_is_refused_by_its_name(change, told, folder):
    rewrite(folder, THIRD, change)
    message = refusal(folder)
    assert THIRD in message and told in message


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "sub/a", "/etc/passwd", "..", "", ".hidden", "C:secret"]
    + ["..\\secret.safetensors", "a\0b", "a\n", None, 3, ["a"]],
)
def test_no_file_elsewhere_is_read(name, folder):
    (folder.parent / "secret.safetensors").write_bytes(b"secret")
    change(folder, places(folder) | {"cls_token": name})
    assert "which is not a file beside it" in refusal(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ('{"weight_map": []}', "is not the index of a checkpoint"),
        ('{"weight_map": {}}', "is not the index of a checkpoint"),
        ("[]", "is neither an .npz file"),
    ],
)
def test_what_is_no_index(text, message, folder):
    (folder / INDEX).write_text(text)
    assert message in refusal(folder)


def test_a_whole_file_beside_the_parts(folder):
    safetensors.write(folder / "model.safetensors", {})
    assert "a folder with 2 of model.safe" in refusal(folder)


def test_a_published_folder_may_hold_other_formats(tmp_path):
    zoo.write(tmp_path / "model.npz", golden())
    for other in ("model.json", "model.keras", "README.md"):
        (tmp_path / other).write_text("not read")
    assert_same(zoo.read(tmp_path).arrays, golden().arrays)
