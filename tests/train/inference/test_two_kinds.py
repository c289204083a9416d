"""Folders with models of two kinds: every way to a model refuses them."""

import json

import pytest

import zoo
from train.common.errors import RunError
from train.inference import exported_model, finding
from train.inference.run_directory import RunDirectory

# What makes a folder's own model, the first of which messages name.
FOLDERS = {
    "a run": ["model.keras", "report.json", "class_names.txt", "config.json"],
    "a run that has begun": ["checkpoints", "config.json"],
    "a published model": ["model.json", "model.npz"],
    "a timm folder": ["model.safetensors", "config.json"],
    "shards": ["model.safetensors.index.json"],
    "OpenCLIP's": ["open_clip_model.safetensors"],
}


def made(folder, names):
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def opened(folder):
    """Returns what finds a model in a folder, as functions by name."""
    return {
        "predict": lambda: exported_model.find(folder),
        "evaluate, explain, export, few_shot": lambda: finding.find(str(folder)),
        "publish, compare": lambda: RunDirectory(folder).require(),
        "finetune": lambda: RunDirectory(folder).claim({}),
        "load_model, --weights": lambda: zoo.locate(folder),
        "read": lambda: zoo.read(folder),
    }


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_saved_model_in_the_folder_of_another_model_is_refused(kind, tmp_path):
    folder = made(tmp_path / "own", FOLDERS[kind])
    (folder / "saved_model.pb").touch()
    said = f"two kinds, {FOLDERS[kind][0]} and saved_model.pb, and which one is meant"
    for way, find in opened(folder).items():
        with pytest.raises((RunError, zoo.CheckpointError), match=said):
            pytest.fail(f"{way}: {find()}")


def test_weights_of_a_library_beside_the_model_of_a_run_are_refused(tmp_path):
    folder = made(tmp_path / "own", ["model.keras", "model.safetensors"])
    for way, find in opened(folder).items():
        with pytest.raises((RunError, zoo.CheckpointError), match="two kinds, model.s"):
            pytest.fail(f"{way}: {find()}")


def test_a_published_model_of_a_registry_is_refused_by_its_name(tmp_path, monkeypatch):
    card = {
        "name": "flowers", "architecture": {}, "image_size": [32, 32], "channels": 3,
        "classes": 1, "class_names": ["rose"], "parameters": 1, "variant": None,
        "weights": "model.npz", "file_size": 1, "sha256": "0" * 64, "base": None,
        "data_set": "digits", "metrics": {}, "licence": "mit",
    }  # fmt: skip
    folder = made(tmp_path / "flowers", ["model.keras", "model.npz"])
    (folder / "model.json").write_text(json.dumps(card))
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(tmp_path))
    assert finding.find("flowers") == finding.FoundModel()
    (folder / "saved_model.pb").touch()
    assert zoo.get("flowers").name == "flowers"  # the registry can be read
    with pytest.raises(RunError, match="two kinds, model.keras and saved_model.pb"):
        finding.find("flowers")
