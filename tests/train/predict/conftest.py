"""A folder of photos, and a small model in files."""

import os

import numpy as np
import pytest
from photo_folder import NAMES
from PIL import Image
from small_models import shared


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
    model = shared()
    model.save(folder / "model.keras")
    export.write_onnx(model, folder / "model.onnx", class_names=NAMES)
    (folder / "class_names.txt").write_text("".join(f"{name}\n" for name in NAMES))
    return folder
