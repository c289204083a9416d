"""What takes a model that averages networks, and what refuses it by name."""

import shutil

import keras
import numpy as np
import PIL.Image
import pytest
import small_models
from in_process import run_command

import keras_vit
from train.export.onnx import write_onnx
from train.export.tflite import write_tflite
from train.models import loaded_model
from train.models.averaging import averaged
from train.models.exports import exported_model
from train.models.exports.saved_model import write_saved_model

NAMES = tuple("0123456789")
WRITERS = {
    "saved": write_saved_model,
    "model.onnx": write_onnx,
    "model.tflite": write_tflite,
}


@pytest.fixture(scope="module")
def run(short_run, tmp_path_factory):
    """The directory of a run whose model averages two networks."""
    folder = tmp_path_factory.mktemp("averaged") / "run"
    shutil.copytree(short_run, folder)
    parts = [
        small_models.made(image_size=size, classes=10, class_names=NAMES)
        for size in (32, 16)
    ]
    averaged(parts, [0.25, 1.5], np.linspace(-1, 1, 10)).save(folder / "model.keras")
    return folder


@pytest.fixture(scope="module")
def model(run):
    return keras.saving.load_model(run / "model.keras")


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("name", WRITERS)
def test_exports_compute_what_it_does(model, images, tmp_path, name, has_bias):
    if not has_bias:
        parts = [model.get_layer(f"network_{number}") for number in range(2)]
        model = averaged(parts, [1.0, 0.5])
    WRITERS[name](model, tmp_path / name, class_names=NAMES)
    export = exported_model.load(exported_model.find(tmp_path / name))
    np.testing.assert_allclose(export.run(images), model(images), atol=1e-4)


def test_a_photo_is_answered_as_by_the_model(run, model, tmp_path, capsys):
    pixels = np.random.default_rng(1).integers(0, 255, (32, 32, 3)).astype("uint8")
    PIL.Image.fromarray(pixels).save(tmp_path / "photo.png")
    with pytest.raises(SystemExit) as done:
        run_command("predict", run, tmp_path / "photo.png")
    assert done.value.code == 0
    _, name, share = capsys.readouterr().out.split("\t")[:3]
    logits = model(keras_vit.preprocess_input(pixels[None]))
    expected = keras.ops.convert_to_numpy(keras.ops.softmax(logits))[0]
    assert name == NAMES[expected.argmax()]
    assert float(share.strip(" %\n")) == pytest.approx(100 * expected.max(), abs=0.1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["publish", "--to=registry"], "a published model is one: .* --single"),
        (["few_shot", "--dataset=digits"], "features are not one row per photo: .*"),
        (["export", "--features", "--format=onnx", "--out=out"], "not one row per"),
        (["finetune", "--dataset=digits", "--weights"], "a model saved by Keras"),
    ],
    ids=lambda words: words[0] if isinstance(words, list) else "",
)
def test_what_wants_one_network_refuses_it_in_two_lines(
    run, tmp_path, monkeypatch, words, told
):
    monkeypatch.chdir(tmp_path)
    command, *rest = words
    given = [run, *rest]
    if rest[-1] == "--weights":
        given = [*rest[:-1], f"--weights={run / 'model.keras'}"]
    with pytest.raises(SystemExit, match=told) as refused:
        run_command(command, *given)
    assert str(refused.value).count("\n") < 2


def test_its_features_and_its_network_are_refused_by_name(run, model):
    with pytest.raises(Exception, match="averages 2 networks, whose features"):
        loaded_model.load(str(run), features=True)
    with pytest.raises(ValueError, match="'average' does not know which network it is"):
        model.rebuild(classes=3)
