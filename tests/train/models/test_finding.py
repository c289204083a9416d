"""Models are found by their names; folders of two models are refused everywhere."""

import json
import pathlib
import shutil
from unittest import mock

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
# Each list makes a folder's own model; messages name its first file.
FOLDERS = [
    ["model.keras", "report.json", "class_names.txt", "config.json"],
    ["checkpoints", "config.json"],
    ["model.json", "model.npz"],
    ["model.safetensors", "config.json"],
    ["model.safetensors.index.json"],
    ["open_clip_model.safetensors"],
    [SHARD, "config.json"],
    ["pytorch_model.bin", "config.json"],
    ["open_clip_pytorch_model.bin", "open_clip_config.json"],
    ["tf_model.h5", "config.json"],
    ["flax_model.msgpack", "config.json"],
    ["model.weights.h5", "config.json"],
    ["vit_b16.npz"],
    ["config.json", "class_names.txt"],
    ["best.keras"],
]
WEIGHTS = (
    *("model.safetensors", "model.npz", "open_clip_model.safetensors", SHARD),
    "open_clip_pytorch_model.bin",
)
EXPORTS = ("model.onnx", "vit.tflite", "saved_model.pb")
COMMANDS = ("predict", "evaluate, explain, export, few_shot")


def refused():
    """Yields files of a folder, what is told of them, and which ways tell it."""
    for own in FOLDERS:
        kinds = f"{own[0]} and saved_model.pb, and which one is meant"
        yield [*own, "saved_model.pb"], f"two kinds, {kinds}", None
    yield ["model.keras", "model.safetensors"], "two kinds, model.s", None
    for weights in WEIGHTS:
        for export in EXPORTS:
            told = f"own has models of two kinds, {weights} and {export}, .* the file"
            yield [weights, export], told, COMMANDS
    for pair, names in (
        (EXPORTS[:2], "model.onnx, vit.tflite"),
        (EXPORTS[1:], "saved_model.pb, vit.tflite"),
        (("x.onnx", "model.onnx"), "model.onnx, x.onnx"),
        (("model.onnx", "1/saved_model.pb"), "1, model.onnx"),
    ):
        yield pair, f"own has several exports, {names}: give one of them", COMMANDS


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


@pytest.mark.parametrize(("names", "told", "ways"), refused())
def test_a_folder_of_two_models_is_refused(names, told, ways, made):
    folder = made(*names)
    finders = {
        "predict": lambda: finding.find(str(folder), exports=True),
        "evaluate, explain, export, few_shot": lambda: finding.find(str(folder)),
        "publish, compare": lambda: RunDirectory(folder).require(),
        "finetune": lambda: RunDirectory(folder).claim({}),
        "load_model, --weights": lambda: zoo.locate(folder),
        "read": lambda: zoo.read(folder),
    }
    for way in ways or finders:
        with pytest.raises((RunError, zoo.CheckpointError), match=told):
            pytest.fail(f"{way}: {finders[way]()}")


def test_a_file_in_such_a_folder_is_meant_alone(made):
    folder = made("model.onnx", "vit.tflite", "saved_model.pb", "model.npz")
    for export in EXPORTS[:2]:
        assert exported_model.find(folder / export) == folder / export
    assert exported_model.find(folder / "saved_model.pb") == folder
    assert exported_model.find(folder / "model.npz") is None
    shutil.copy(GOLDENS / "token.npz", made("model.onnx", name="read") / "model.npz")
    assert zoo.read(zoo.locate(folder.with_name("read"))).classes == 10


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
        # A Mac adds such files when it copies.
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
        ["model.onnx", "model.onnx.data", "weights.bin", "preprocessor_config.json"],
        ["model.tflite", "export.json", "features.npz", "config.json"],
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


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("a\0b", r"^the model is 'a\\x00b', with a null byte .*: take it out\.$"),
        ("a\0.keras", r"^the model is 'a\\x00\.keras', with a null byte"),
        ("\ud800", r"^the model is '\\ud800', with a null byte or a character that no"),
        (300 * "x", "^The model x+ cannot be used .File name too long.: check its nam"),
        ("hf://a\0b/c", r"^The model hf://a\\x00b/c cannot be used .*: check its name"),
        ("~nobody-here/run", "^~nobody-here/run begins with ~nobody-here, a home"),
        ("nowhere", "^There is no file or folder nowhere: check the path"),
        ("nowhere.keras", "^The model nowhere.keras cannot be used: there is no such"),
        ("https://host/m.onnx", "^https://host/m.onnx is an export: download it for k"),
        ("http://host/m.keras", "^http://host/m.keras is a model of Keras: download"),
        ("https://host/a.jpg?b=1", "^https://host/a.jpg.b=1 is a photo, no model: pas"),
    ],
)
def test_odd_names_are_refused_as_those_of_models(source, told):
    with pytest.raises(RunError, match=told) as caught:
        finding.find(source)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["model.onnx", "m.tflite", "m.keras", "a.jpg"])
def test_a_repository_of_the_hub_is_not_judged_by_its_name(name):
    source = f"hf://org/{name}"
    assert finding.find(source) == finding.FoundModel(source)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (KeyError("weights"), "(KeyError: 'weights'): check its name or path."),
        (PermissionError(13, "Not permitted"), "(Not permitted): allow this user to "),
    ],
)
def test_errors_of_libraries_and_the_system_name_the_model(error, told, monkeypatch):
    monkeypatch.setattr(finding, "check", mock.Mock(side_effect=error))
    with pytest.raises(RunError) as caught:
        finding.find("a.npz")
    assert str(caught.value).startswith(f"The model a.npz cannot be used {told}")


def test_a_folder_of_several_runs_is_refused_with_one_of_them(made):
    folder = made("seed-0/model.keras", "seed-1/model.keras", "report.json")
    told = (
        "own holds 2 runs and no model itself: pass one of them, such as .*own/seed-0"
    )
    with pytest.raises(RunError, match=told):
        finding.find(str(folder))
    with pytest.raises(RunError, match=told):
        RunDirectory(folder).read_results()
