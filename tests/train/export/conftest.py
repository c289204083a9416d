"""A small model that is exported in this process, and an export in all formats."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from train.export import parity, program, run, tflite
from train.models.exports import tensorflow


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A small model whose answers differ from image to image."""
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(16, 1, 2, 32, 8)
    model = keras_vit.VisionTransformer(config, image_size=32, classes=10)
    head = model.get_layer("head")
    head.kernel.assign(np.random.default_rng(0).normal(size=head.kernel.shape))
    path = tmp_path_factory.mktemp("models") / "tiny.keras"
    model.save(path)
    (path.parent / "class_names.txt").write_text("\n".join("0123456789"))
    return str(path)


def eager(path, threads):
    """What the program does, without tracing the model, which takes longer."""
    model = keras.saving.load_model(path)
    facts = {"version": "Keras", "one_by_one": False}
    return lambda images: model(images).numpy(), facts


def run_here(monkeypatch):
    """Runs models in this process: those of their own are for test_parity."""
    monkeypatch.setattr(tensorflow, "tensorflow_on", lambda threads: tf)

    def run(name, path, images, *, threads, count):
        run, facts = program.load(path, threads)
        found = [run(images) for images in program.read_images(images)]
        facts |= {"latency": {"1": 0.001, "8": 0.008}, "peak_bytes": 1_000_000}
        assert len(np.concatenate(found)) == count
        return np.concatenate(found), facts

    monkeypatch.setattr(parity, "run", run)


@pytest.fixture
def in_this_process(monkeypatch):
    run_here(monkeypatch)
    monkeypatch.setattr(program, "_keras", eager)


@pytest.fixture(scope="module")
def convert_once():
    """Converts the model of `model_file`, and no other, once to each precision."""
    convert, known = tflite._converted, {}

    def converted(model, *arguments):
        if arguments not in known:
            known[arguments] = convert(model, *arguments)
        return known[arguments]

    return lambda patch: patch.setattr(tflite, "_converted", converted)


@pytest.fixture(scope="module")
def all_formats(model_file, convert_once, tmp_path_factory):
    """The results of an export in all formats, and its folder."""
    with pytest.MonkeyPatch.context() as patch:
        run_here(patch)
        convert_once(patch)
        out = tmp_path_factory.mktemp("exports") / "out"
        results = run.export(
            model_file,
            ["all"],
            out,
            dataset="digits",
            compared=40,
            calibration=16,
            min_agreement=0.0,  # int8 of a model that is not trained
        )
    return results, out
