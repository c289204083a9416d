"""The command answers files of other libraries as these do, and so do exports."""

import csv
import pathlib

import numpy as np
import pytest
from in_process import run_command
from PIL import Image

from train.export.onnx import write_onnx
from train.export.tflite import write_tflite
from train.models import loaded_model
from train.models.classes import names_of
from train.models.exports.saved_model import write_saved_model
from zoo.network.head import sigmoid, softmax

CASES = pathlib.Path(__file__).parents[1] / "cases"
WRITERS = {
    "saved_model": write_saved_model,
    "model.tflite": write_tflite,
    "model.onnx": write_onnx,
}
# The names of the classes or numbers, and the answers, of logits.
KINDS = {
    "own_names_of_3": (("cat", "dog", "elk"), softmax),
    "own_names_of_1000": (tuple(f"product {at}" for at in range(1000)), softmax),
    "timm_label_names": (("red", "green", "blue"), softmax),
    "several_labels": (("a", "b", "c"), sigmoid),
    "one_number": (("output 0",), lambda logits: logits),
}


def written(case, tmp_path):
    """Writes the photos of a case; returns their folder and what is expected."""
    expected, folder = np.load(CASES / case / "expected.npz"), tmp_path / "photos"
    folder.mkdir()
    for number, pixels in enumerate(expected["photos"]):
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder, expected


def predict(*words):
    with pytest.raises(SystemExit) as done:
        run_command("predict", *words)
    assert done.value.code == 0


def answers(model, photos, out):
    """Returns (name, value) of the best classes of each photo, by the command."""
    predict(model, photos, f"--out={out}")
    with out.open(newline="") as file:
        _, *rows = csv.reader(file)
    # A model may have fewer than five classes.
    return [
        [pair for pair in zip(row[1::2], row[2::2], strict=True) if pair[0]]
        for row in sorted(rows)
    ]


@pytest.mark.parametrize("case", KINDS)
def test_the_command_and_exports_answer_as_the_library(case, tmp_path):
    folder, expected = written(case, tmp_path)
    names, of_logits = KINDS[case]
    loaded = loaded_model.load(str(CASES / case))
    sources = [CASES / case]
    for name, write in WRITERS.items():
        # As the command does.
        write(loaded.model, tmp_path / name, class_names=names_of(loaded))
        sources.append(tmp_path / name)
    for source in sources:
        found = answers(source, folder, tmp_path / f"{source.name}.csv")
        for answered, row in zip(found, of_logits(expected["logits"]), strict=True):
            best = np.argsort(-row)[:5]
            assert [name for name, _ in answered] == [names[at] for at in best]
            values = [float(value) for _, value in answered]
            assert values == pytest.approx(row[best], abs=1e-4), source


def test_features_by_the_command_are_those_of_the_library(tmp_path):
    """Mean and deviation lie in processor_config.json alone."""
    case, out = "mean_in_processor_config", tmp_path / "features.npz"
    folder, expected = written(case, tmp_path)
    predict(CASES / case, folder, f"--features={out}")
    found = np.load(out)
    assert [pathlib.Path(file).name for file in found["files"]] == ["0.png", "1.png"]
    np.testing.assert_allclose(found["features"], expected["features"], atol=2e-5)
