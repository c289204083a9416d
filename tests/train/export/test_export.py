"""The export of models, compared with them, and what is refused."""

import hashlib
import json
import pathlib
import re
import shutil

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

import keras_vit
from train.common.errors import RunError
from train.data import sources
from train.data.transforms import served_files
from train.export import formats, parity, program, report, run, sample_images, tflite
from train.models import loaded_model
from train.models.exports import exported_model
from train.scoring.metrics import interval

pytestmark = pytest.mark.usefixtures("in_this_process")

CONFIG = keras_vit.ViTConfig(16, 1, 2, 32, 8)
ROOT = pathlib.Path(__file__).parents[3]


def test_images_of_any_size(model_file, tmp_path):
    fixed = keras.saving.load_model(model_file)
    of_any_size = str(tmp_path / "any.keras")
    keras_vit.at_image_size(fixed, (None, None)).save(of_any_size)
    names, out = ["saved_model", "tflite", "onnx"], tmp_path / "out"
    results = run.export(of_any_size, names, out, any_size=True, compared=8)
    rows = {row["name"]: row for row in results["exports"]}
    # No class stands out in generated images.
    assert results["head"] and results["agreement_of"] == "cosine"
    assert [name for name in names if "other_size" in rows[name]] == names[::2]
    for name in names[::2]:
        other = rows[name]["other_size"]
        assert other["image_size"] == [48, 24]
        assert max(rows[name]["largest_error"], other["largest_error"]) < 1e-5
    assert "16 generated images of 48x24" in (out / "export.md").read_text()

    photo = np.random.default_rng(0).uniform(-1, 1, (2, 24, 64, 3)).astype("float32")
    expected = keras_vit.at_image_size(fixed, (24, 64))(photo).numpy()
    for path in (out / "saved_model" / "1", out / "model.onnx"):
        found = exported_model.load(path)
        assert (found.image_shape, found.size_step) == ((32, 32, 3), (8, 8))
        np.testing.assert_allclose(found.run(photo), expected, atol=1e-5)
    # Images of the other signatures come to the size of the positions.
    served, pixels = tf.saved_model.load(str(out / "saved_model/1")), photo / 2 + 0.5
    squashed = 2 * tf.image.resize(pixels, (32, 32)) - 1
    np.testing.assert_allclose(served(pixels), fixed(squashed), atol=1e-4)


def test_all_formats_beside_the_model(
    all_formats, model_file, tmp_path, monkeypatch, capsys
):
    results, out = all_formats
    assert results == json.loads((out / "export.json").read_text())
    rows = {row["name"]: row for row in results["exports"]}
    assert list(rows) == ["keras", *formats.FORMATS]
    keras_row = rows.pop("keras")
    # In a folder of a version, as TensorFlow Serving has it.
    assert (out / "saved_model/1/saved_model.pb").is_file()
    for name, row in rows.items():
        exact = name in ("saved_model", "tflite", "onnx")
        assert row["agreement"] >= (1 if exact else 0.5), name
        assert (row["largest_error"] < 1e-3) == exact, name
        assert row["one_by_one"] == name.startswith("tflite")
        for file in row["files"]:
            content = (out / file["path"]).read_bytes()
            assert len(content) == file["bytes"]
            assert hashlib.sha256(content).hexdigest() == file["sha256"]
    half = rows["tflite-float16"]
    # The patches, six of the block, and the head.
    assert half["matrices"] == {"float16": 8}
    assert 0 < half["largest_error"] < 5e-3 * results["largest_answer"]
    assert results["images"]["count"] == 40
    assert results["images"]["calibration"] == {"split": "digits train", "count": 16}

    # The accuracy, with scikit-learn's labels and Keras's own predict.
    split = sources.load("digits").test
    images, labels = zip(*split.records(), strict=True)
    images = np.stack([split.decode(image) for image in images])
    places = np.unique(np.linspace(0, len(labels) - 1, 40).astype(int))
    images = tf.image.resize(images[places], (32, 32)) / 127.5 - 1
    logits = keras.saving.load_model(model_file)(images).numpy()
    assert keras_row["accuracy"] == np.mean(
        logits.argmax(axis=1) == np.array(labels)[places]
    )
    assert results["largest_answer"] == pytest.approx(np.abs(logits).max(), rel=1e-4)

    # They load as the page says.
    monkeypatch.chdir(shutil.copytree(out, tmp_path / "moved"))
    text = (out / "export.md").read_text()
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert served_files() in " ".join(text.split())
    assert len(found) == 5 and report.table(results) in text
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), "uint8")
    PIL.Image.fromarray(pixels).save("photo.jpg", format="png")
    expected = keras.saving.load_model(model_file)(pixels[None] / 127.5 - 1)
    names = {}
    exec(found[0], names)
    for snippet in found[1:-1]:
        exec(snippet, names)
        np.testing.assert_allclose(names["answers"], expected, atol=1e-3)
    capsys.readouterr()
    exec(found[-1], names)
    assert capsys.readouterr().out == f"{np.argmax(expected)}\n"
    assert (out / "class_names.txt").read_text().split() == list("0123456789")


def test_features_without_a_data_set(model_file, tmp_path):
    """Of a run whose classes have names."""
    results = run.export(
        model_file, ["onnx"], tmp_path / "out", features=True, image_size=48
    )
    [_, row] = results["exports"]
    assert results["input_shape"] == [48, 48, 3] and results["output_shape"] == [16]
    assert results["agreement_of"] == "cosine" and row["agreement"] > 0.99999
    assert "accuracy" not in row and results["images"]["count"] == 64
    text = (tmp_path / "out/export.md").read_text()
    assert "64 generated images" in text and "Mean cosine" in text
    assert not (tmp_path / "out/class_names.txt").exists()


def test_classes_that_are_not_the_models_agree_without_an_accuracy(tmp_path):
    model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=7)
    model.save(tmp_path / "seven.keras")
    seven, out = str(tmp_path / "seven.keras"), tmp_path / "out"
    results = run.export(seven, ["onnx"], out, dataset="digits", compared=8)
    assert "accuracy" not in results["exports"][1]
    text = (out / "export.md").read_text()
    assert "The accuracy is not known: The model" in text and "7 classes" in text
    # Its head is zero: nothing could disagree.
    assert results["all_alike"] and "answers the same to every image" in text


def test_images_that_calibrate_are_not_compared(model_file, tmp_path):
    given = loaded_model.load(model_file)
    data = {"dataset": "digits", "central_crop": False, "split": "train"}
    path = tmp_path / "images"
    samples = sample_images.read(given, path, 700, calibration=2000, **data)
    compared = np.concatenate([*program.read_images(path)])
    rows = [image.tobytes() for image in compared]
    others = [image.tobytes() for image in samples.calibration]
    assert len(rows) == len(samples.labels) == 700 and len(others) == 1293 - 700
    assert not set(rows) & set(others)
    with pytest.raises(RunError, match="All 1293 images of .* none is left"):
        sample_images.read(given, path, 2000, calibration=8, **data)


@pytest.mark.parametrize(
    ("options", "aim"),
    [({}, None), ({"min_agreement": 0.25}, 0.25), ({"min_agreement": 0.0}, None)],
)
def test_what_quantized_exports_aim_at(options, aim, model_file, tmp_path, monkeypatch):
    aims = {}

    def write(model, path, *, precision, calibration, min_agreement, **arguments):
        aims[precision] = min_agreement
        assert len(calibration) == 8 and arguments["dynamic_batch"]
        assert arguments.get("uint8") == (True if precision == "int8" else None)
        raise RunError("enough is known")

    monkeypatch.setattr(tflite, "write_tflite", write)
    facts = {"version": "", "one_by_one": False, "latency": {}, "peak_bytes": 1}
    monkeypatch.setattr(parity, "run", lambda *_, **__: (np.eye(8, 10), facts))
    formats, few = ["tflite-dynamic", "tflite-int8"], {"compared": 8, "calibration": 8}
    options |= {"dataset": "digits", "dynamic_batch": True, "uint8": True}
    with pytest.raises(RunError, match="enough is known"):
        run.export(model_file, formats, tmp_path, **few, **options)
    assert aims == {"dynamic": aim, "int8": aim}


def test_more_agreement_keeps_matrices_in_float16(
    all_formats, model_file, convert_once, tmp_path, capsys, monkeypatch
):
    convert_once(monkeypatch)
    few = {"dataset": "digits", "compared": 40, "calibration": 16, "min_agreement": 1.0}
    results = run.export(model_file, ["tflite-dynamic"], tmp_path / "out", **few)
    [_, row] = results["exports"]
    assert row["matrices"]["float16"] > 0 and row["aim"] == 1
    text = (tmp_path / "out/export.md").read_text()
    low, high = interval(round(40 * row["agreement"]), 40)
    assert f"{row['agreement']:.2%} ({low:.2%} to {high:.2%})" in text
    sentence = report.matrices(row)
    assert "of 8 stay in float16 for --min_agreement=1" in sentence
    assert sentence in capsys.readouterr().out and sentence in text
    assert "takes one image at a time" in text
    page = report.page(results | {"uint8": True, "dynamic_batch": True}, None)
    assert "takes the pixels themselves" in page and "one image at a time" not in page
    [small] = [one for one in all_formats[0]["exports"] if one["name"] == row["name"]]
    assert "float16" not in small["matrices"] and small["aim"] is None


def test_docs_have_every_format():
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert served_files() in " ".join(page.split())
    for row in formats.FORMATS.values():
        share = f"{row.min_agreement:.1%}".replace(".0%", "%")
        assert f"| `{row.name}` | {row.help} | {share} |\n" in page
