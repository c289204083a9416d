"""Files that commit 1a6d305 wrote stay usable: models, runs, published and exported.

earlier/write_files.py wrote them into earlier/files.zip, with what the models computed.
"""

import json
import shutil
import zipfile

import keras
import numpy as np
import pytest
from earlier import write_files
from in_process import run_command
from packaging.version import Version

import keras_vit
import keras_vit.layers.mask_patches  # noqa: F401 - registers its layer
import train.baselines  # noqa: F401 - registers BiT's

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
HALF = {"rtol": 1e-2, "atol": 1e-2}
needs_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the commands need TensorFlow"
)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """The folder of the files."""
    folder = tmp_path_factory.mktemp("earlier")
    with zipfile.ZipFile(write_files.HERE / "files.zip") as files:
        files.extractall(folder)
    return folder


@pytest.fixture
def in_folder(earlier, monkeypatch):
    """Makes that folder the one in which commands run, in this process."""
    monkeypatch.chdir(earlier)


@pytest.fixture(scope="module")
def expected(earlier):
    """The outputs of the models."""
    return read(earlier / "expected.npz")


def read(path):
    """Returns the weights of a model or of a released file as arrays by name."""
    if path.suffix == ".keras":
        model = keras.models.load_model(path, compile=False)
        return dict(enumerate(model.get_weights()))
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", write_files.MODELS)
def test_a_saved_model_computes_the_same(name, earlier, expected):
    with zipfile.ZipFile(earlier / f"{name}.keras") as file:
        writer = json.loads(file.read("metadata.json"))["keras_version"]
    if Version(keras.__version__) < Version(writer):
        pytest.skip(f"Keras {keras.__version__} is older than {writer}, which wrote it")
    model = keras.models.load_model(earlier / f"{name}.keras", compile=False)
    inputs = write_files.inputs_of(model)
    outputs = model(inputs if len(inputs) > 1 else inputs[0], training=False)
    outputs = keras.ops.convert_to_numpy(keras.ops.cast(outputs, "float32"))
    tolerance = HALF if name == "gray_half" else TOLERANCE
    np.testing.assert_allclose(outputs, expected[name], **tolerance)
    if name != "lora":  # saved merged, whose file has fewer to train
        assert len(model.trainable_weights) == expected[f"{name} trainable"]


@needs_tensorflow
@pytest.mark.parametrize(
    ("task", "end", "expected"),
    [
        ("finetune", "finetune/model.keras", "finished/model.keras"),
        ("masked_patches", "masked_patches/weights.npz", "masked_patches.npz"),
    ],
)
def test_an_interrupted_run_goes_on(task, end, expected, earlier, in_folder):
    log = earlier / task / "metrics.jsonl"
    before = log.read_text()
    run_command(task, *write_files.RUNS[task], f"--run_dir={task}")
    # One that had begun anew would have other seconds in its first lines.
    assert log.read_text().startswith(before)
    end, expected = read(earlier / end), read(earlier / expected)
    assert end.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(end[name], values, err_msg=name, **TOLERANCE)


@needs_tensorflow
def test_a_finished_run_is_evaluated_and_compared(earlier, in_folder, capsys):
    run_command("evaluate", "finished", "--out_dir=again")
    before = json.loads((earlier / "finished" / "report.json").read_text())
    again = json.loads((earlier / "again" / "report.json").read_text())
    assert again["test_accuracy"] == pytest.approx(before["test_accuracy"], abs=0.01)
    shutil.copytree(earlier / "finished", earlier / "other")
    capsys.readouterr()
    run_command("compare", "finished", "other")
    assert "other" in capsys.readouterr().out


@needs_tensorflow
def test_a_published_model_loads_and_is_replaced(earlier, in_folder, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_REGISTRY", str(earlier / "registry"))
    saved = keras.models.load_model(earlier / "finished" / "model.keras", compile=False)
    [images] = write_files.inputs_of(saved)
    published = keras_vit.load_model("finished")
    np.testing.assert_allclose(published(images), saved(images), **TOLERANCE)
    files = {path.name for path in (earlier / "registry" / "finished").iterdir()}
    run_command("publish", "finished", "--to=registry", "--replace")
    assert {p.name for p in (earlier / "registry" / "finished").iterdir()} >= files


@needs_tensorflow
def test_an_export_may_be_replaced(earlier, in_folder, monkeypatch):
    """By another one, which has files of the same names, and by nothing else's."""

    def write(model, path, **_):
        path.write_bytes(b"new")

    def run(name, runtime, path, images, *, threads, count):
        return np.eye(count, 10), {
            "version": "",
            "one_by_one": True,
            "latency": {"1": 0.1, "8": 0.1},
            "peak_bytes": 1,
        }

    monkeypatch.setattr("train.export.tflite.write_tflite", write)
    monkeypatch.setattr("train.export.parity.run", run)
    folder = earlier / "exported"
    before = sorted(path.name for path in folder.iterdir())
    words = ["export", "finished", "--format=tflite", "--out=exported"]
    run_command(*words)
    assert sorted(path.name for path in folder.iterdir()) == before
    assert (folder / "model.tflite").read_bytes() == b"new"
    (folder / "notes.txt").write_text("not of the export")
    with pytest.raises(SystemExit, match="an earlier export, and notes.txt besides"):
        run_command(*words)
