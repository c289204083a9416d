"""A folder of photos, a small model in files, and a stub of one."""

import dataclasses
import os

import numpy as np
import pytest
from photo_folder import NAMES, STUB, by_mean
from PIL import Image
from small_models import shared

from train.predict import classifiers


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ten photos and one that is none."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("photos")
    rng = np.random.default_rng(0)
    for number in range(10):
        pixels = rng.integers(0, 256, (20, 30, 3), "uint8")
        Image.fromarray(pixels).save(f"photos/{number}.png")
    with open("photos/5bad.jpg", "w") as file:
        file.write("no photo")
    return tmp_path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small model as `.keras` and `.onnx`, with class names beside."""
    folder = tmp_path_factory.mktemp("models")
    # Without that feature, those of this one are tested no further.
    export = pytest.importorskip("train.export.onnx")
    pytest.importorskip("onnxruntime")
    model = shared()
    model.save(folder / "model.keras")
    export.write_onnx(model, folder / "model.onnx", class_names=NAMES)
    (folder / "class_names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    return folder


@pytest.fixture
def stub(monkeypatch):
    """Puts a model of three classes in the place of any; it answers by the mean."""

    def put(compute=by_mean, **changes):
        classifier = dataclasses.replace(STUB, compute=compute, **changes)
        monkeypatch.setattr(classifiers, "load", lambda *_, **__: classifier)

    return put
