"""Folders with models of two kinds: every way to a model refuses them."""

import json
import pathlib
import shutil

import pytest

import zoo
from train.common.errors import RunError
from train.models import finding
from train.models.exports import exported_model
from train.models.run_directory import RunDirectory
from zoo.containers import opening

HEADER = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
SHARD = "model-00001-of-00002.safetensors"
CONTENTS = {
    ".safetensors": len(HEADER).to_bytes(8, "little") + HEADER + bytes(4),
    ".index.json": json.dumps({"weight_map": {"a": SHARD}}).encode(),
    ".npz": b"PK\5\6" + bytes(18),
}
GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
# What makes a folder's own model, the first of which messages name.
FOLDERS = {
    "a run": ["model.keras", "report.json", "class_names.txt", "config.json"],
    "a run that has begun": ["checkpoints", "config.json"],
    "a published model": ["model.json", "model.npz"],
    "a timm folder": ["model.safetensors", "config.json"],
    "shards": ["model.safetensors.index.json"],
    "OpenCLIP's": ["open_clip_model.safetensors"],
    "parts without an index": ["model-00001-of-00002.safetensors", "config.json"],
    "a pickle": ["pytorch_model.bin", "config.json"],
    "OpenCLIP's pickle": ["open_clip_pytorch_model.bin", "open_clip_config.json"],
    "TensorFlow's weights": ["tf_model.h5", "config.json"],
    "Flax's weights": ["flax_model.msgpack", "config.json"],
    "keras-hub's": ["model.weights.h5", "config.json"],
    "big_vision's": ["vit_b16.npz"],
    "settings": ["config.json", "class_names.txt"],
    "a Keras model of another name": ["best.keras"],
}


@pytest.fixture
def made(tmp_path):
    """Makes a folder of files of some names, with the least that such files hold."""

    def make(*names, name="own"):
        folder = tmp_path / name
        for one in names:
            (folder / one).parent.mkdir(parents=True, exist_ok=True)
            endings = (ending for ending in CONTENTS if one.endswith(ending))
            (folder / one).write_bytes(CONTENTS.get(next(endings, None), b""))
        return folder

    return make


def opened(folder):
    """Returns what finds a model in a folder, as functions by name."""
    return {
        "predict": lambda: finding.find(str(folder), exports=True),
        "evaluate, explain, export, few_shot": lambda: finding.find(str(folder)),
        "publish, compare": lambda: RunDirectory(folder).require(),
        "finetune": lambda: RunDirectory(folder).claim({}),
        "load_model, --weights": lambda: zoo.locate(folder),
        "read": lambda: zoo.read(folder),
    }


def refused(folder, told, ways=None):
    for way, find in opened(folder).items():
        if ways is None or way in ways:
            with pytest.raises((RunError, zoo.CheckpointError), match=told):
                pytest.fail(f"{way}: {find()}")


COMMANDS = ("predict", "evaluate, explain, export, few_shot")


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_saved_model_in_the_folder_of_another_model_is_refused(kind, made):
    own = FOLDERS[kind]
    folder = made(*own, "saved_model.pb")
    refused(folder, f"two kinds, {own[0]} and saved_model.pb, and which one is meant")


def test_weights_of_a_library_beside_the_model_of_a_run_are_refused(made):
    refused(made("model.keras", "model.safetensors"), "two kinds, model.s")


EXPORTS = ("model.onnx", "vit.tflite", "saved_model.pb")


@pytest.mark.parametrize("weights", ["model.safetensors", "model.npz", *(
    names[0] for kind, names in FOLDERS.items() if kind.startswith(("Open", "parts"))
)])  # fmt: skip
@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_beside_weights_is_refused_where_either_could_be_meant(
    weights, export, made
):
    folder = made(weights, export)
    told = f"own has models of two kinds, {weights} and {export}, .* the file itself"
    refused(folder, told, COMMANDS)
    meant = exported_model.find(folder / export)
    assert meant == (folder if export == "saved_model.pb" else folder / export)
    assert exported_model.find(folder / weights) is None


def test_weights_are_read_where_no_export_could_be_meant(made):
    folder = made("model.onnx")
    shutil.copy(GOLDENS / "token.npz", folder / "model.npz")
    assert zoo.read(zoo.locate(folder)).classes == 10


@pytest.mark.parametrize("first", EXPORTS)
@pytest.mark.parametrize("second", [*EXPORTS, "x.onnx", "1/saved_model.pb"])
def test_two_exports_in_a_folder_are_named(first, second, made):
    folder = made(first, second)
    if first == second:
        assert exported_model.find(folder) is not None
        return
    names = sorted([first, second.removesuffix("/saved_model.pb")])
    told = f"own has several exports, {', '.join(names)}: give one of them"
    refused(folder, told, COMMANDS)


@pytest.mark.parametrize(
    "names",
    [
        # A repository of transformers, as cloned.
        ["model.safetensors", "config.json", "pytorch_model.bin", "tf_model.h5",
         "flax_model.msgpack", "onnx/model.onnx", "saved_model/1/saved_model.pb"],
        ["open_clip_model.safetensors", "open_clip_pytorch_model.bin",
         "open_clip_config.json", "model.safetensors", "config.json"],
        ["model.safetensors.index.json", SHARD],
        # A published model, one with an export in it, and a run with its weights.
        ["model.json", "model.npz", "model.keras", "class_names.txt", "report.json",
         "saved_model/saved_model.pb"],
        ["model.json", "model.safetensors", "model.onnx"],
        ["open_clip_model.safetensors", "1/saved_model.pb"],
        # What a Mac adds when it copies.
        ["model.safetensors", "._model.onnx"],
    ],
)  # fmt: skip
def test_a_model_in_several_formats_is_one_model(names, made):
    folder = made(*names)
    assert exported_model.find(folder) is None
    assert finding.find(str(folder)) == finding.FoundModel(str(folder))
    assert zoo.locate(folder) == folder


@pytest.mark.parametrize(
    "names",
    [
        ["model.onnx", "config.json", "preprocessor_config.json"],
        ["model.onnx", "model.onnx.data", "weights.bin", "class_names.txt"],
        ["model.tflite", "export.json", "export.md", "features.npz"],
        ["model.onnx", "._model.onnx", ".model.tflite"],
    ],
)
def test_an_export_with_what_belongs_to_it_is_found(names, made):
    folder = made(*names)
    assert exported_model.find(folder) == folder / names[0]


def test_the_model_of_a_run_is_meant_beside_its_exports(made):
    folder = made("model.keras", "model.onnx", "model.tflite")
    assert exported_model.find(folder) is None
    assert finding.find(str(folder)).keras_file == folder / "model.keras"


def test_every_ending_of_an_export_has_a_loader():
    assert {*opening.EXPORTS, ""} == exported_model.RUNTIMES.keys()


def test_a_published_model_of_a_registry_is_refused_by_its_name(
    made, tmp_path, monkeypatch
):
    card = {
        "name": "flowers", "architecture": {}, "image_size": [32, 32], "channels": 3,
        "classes": 1, "class_names": ["rose"], "parameters": 1, "variant": None,
        "weights": "model.npz", "file_size": 1, "sha256": "0" * 64, "base": None,
        "data_set": "digits", "metrics": {}, "licence": "mit",
    }  # fmt: skip
    folder = made("model.keras", "model.npz", name="flowers")
    (folder / "model.json").write_text(json.dumps(card))
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(tmp_path))
    assert finding.find("flowers") == finding.FoundModel("flowers")
    (folder / "saved_model.pb").touch()
    assert zoo.get("flowers").name == "flowers"  # the registry can be read
    with pytest.raises(RunError, match="two kinds, model.keras and saved_model.pb"):
        finding.find("flowers")
