"""Exports that are refused: each for itself, all of them, or a wrong argument."""

import json
import os
import pathlib

import numpy as np
import pytest

import keras_vit
from train.common.errors import RunError
from train.export import formats, onnx, parity, run, tflite
from train.export.run import ExportError
from train.models.exports import saved_model

pytestmark = pytest.mark.usefixtures("in_this_process")


def test_exports_that_are_wrong_at_another_size_are_refused(
    model_file, tmp_path, monkeypatch
):
    right, calls = parity.compare, []

    def compare(outputs, expected, **options):
        calls.append(outputs.shape)
        # First the model at both sizes, then the export at its own size and at another.
        wrong = len(calls) == 4
        return right(-outputs if wrong else outputs, expected, **options)

    monkeypatch.setattr(parity, "compare", compare)
    with pytest.raises(ExportError, match="on images of 48x24, .* leave --any_size"):
        run.export(model_file, ["onnx"], tmp_path / "out", any_size=True)


def test_each_format_stands_for_itself(model_file, tmp_path, monkeypatch, capsys):
    outputs = np.random.default_rng(0).normal(size=(20, 10))
    facts = {"version": "1", "one_by_one": False, "latency": {"1": 1.0, "8": 1.0}}
    stopped = []

    def without_memory(model, path, **options):
        path.mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"half of it")
        raise MemoryError

    def refuse(model, path, **options):
        raise ValueError("no operation Erf")

    def write(model, path, **options):
        path.write_bytes(b"whole")

    def answer(name, *arguments, **options):
        if name in stopped:
            raise RunError(f"{name} does not run in its runtime: signal 9")
        return np.roll(outputs, name == "onnx", axis=1), facts | {"peak_bytes": 1}

    monkeypatch.setattr(saved_model, "write_saved_model", without_memory)
    monkeypatch.setattr(tflite, "write_tflite", refuse)
    monkeypatch.setattr(onnx, "write_onnx", write)
    monkeypatch.setattr(parity, "run", answer)
    out, few = tmp_path / "out", {"dataset": "digits", "compared": 20}
    names = ["saved_model", "tflite", "onnx", "onnx-float16"]
    with pytest.raises(
        ExportError,
        match=r"3 of 4 exports failed\. Written to .*out: onnx-float16\.\n"
        r"saved_model: MemoryError: .*\n"
        r"tflite: the model cannot be written: no operation Erf\n"
        r"onnx: its agreement with the model is [\d.]+% \([\d.]+% to [\d.]+%\) on 20 "
        r"images, less than the 99.50% required: .*--min_agr",
    ) as refused:
        run.export(model_file, names, out, **few)
    assert "saved_model is refused: MemoryError" in capsys.readouterr().out
    # Exports that agree are whole, and nothing is left of the others.
    assert os.listdir(tmp_path) == ["out"]
    written = ["class_names.txt", "export.json", "export.md", "model-float16.onnx"]
    assert sorted(os.listdir(out)) == written
    results = json.loads((out / "export.json").read_text())
    assert results == refused.value.results
    assert [row["name"] for row in results["exports"]] == ["keras", "onnx-float16"]
    assert results["exports"][1]["agreement"] == 1
    assert [row["name"] for row in results["refused"]] == names[:3]
    assert results["refused"][2]["agreement"] < 0.995
    text = (out / "export.md").read_text()
    assert "**onnx is not here:** its agreement" in text and "model.onnx" not in text
    assert "| onnx (refused) | " in text and "| saved" not in text
    # An earlier export stays where nothing is to take its place.
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(ExportError, match="1 of 1 .*Nothing was written to"):
        run.export(model_file, ["onnx"], out, **few)
    stopped.append("onnx-float16")
    with pytest.raises(ExportError, match="onnx-float16: does not run .*signal 9"):
        run.export(model_file, ["onnx-float16"], out, **few)
    assert {path: path.read_bytes() for path in out.iterdir()} == before
    # Unless somebody wants it.
    run.export(model_file, ["onnx"], out, min_agreement=0.0, **few)
    written[-1] = "model.onnx"
    assert sorted(os.listdir(out)) == written


@pytest.mark.parametrize(
    ("name", "agreeing", "count", "exact", "is_enough"),
    [
        ("tflite-dynamic", 14, 15, False, True),  # 93.3%, to 98.8%
        ("tflite-dynamic", 14, 15, True, False),
        ("tflite-dynamic", 468, 500, False, True),  # 93.6%, to 95.4%
        ("tflite-dynamic", 450, 500, False, False),  # 90.0%, to 92.3%
        ("tflite-int8", 10, 15, False, False),  # 66.7%, to 84.8%
        ("onnx", 496, 500, False, True),  # 99.2%, to 99.7%
        ("onnx", 490, 500, False, False),  # 98.0%, to 98.9%
    ],
)
def test_few_images_do_not_tell_rounded_from_broken(
    name, agreeing, count, exact, is_enough
):
    expected = np.eye(2)[np.zeros(count, int)]
    found = np.eye(2)[np.where(np.arange(count) < agreeing, 0, 1)]
    format = formats.FORMATS[name]
    row = {"name": name, "aim": None, "min_agreement": format.min_agreement}
    row |= parity.compare(found, expected, top_1=True)
    results = {"agreement_of": "top-1", "images": {"count": count}}
    why = run._shortfall(results, row, format, exact=exact)
    assert (why is None) == is_enough, why


def test_cosines_have_no_interval():
    row = {"name": "onnx", "agreement": 0.99, "min_agreement": 0.995}
    results = {"agreement_of": "cosine", "images": {"count": 64}}
    assert "is 0.990000 on 64" in run._shortfall(
        results, row, formats.FORMATS["onnx"], exact=False
    )


@pytest.mark.parametrize(
    ("formats", "options", "error", "told"),
    [
        (["onnx"], {"dynamic_batch": True}, ValueError, "dynamic_batch .* of tflite, "),
        (["tflite"], {"any_size": True}, ValueError, "any_size .*of saved_model, onnx"),
        (["tflite-int8"], {}, RunError, "needs calibration images: pass --dataset"),
        (["tflite"], {"model": "nothing.keras"}, RunError, "nothing.keras cannot be"),
        (["tflite"], {"model": "~/none.npz"}, RunError, "no file|cannot be used"),
        (["onnx"], {"model": "relative", "any_size": True}, RunError, "--any_size"),
        (["onnx"], {"model": "none", "any_size": True}, RunError, "leave --any_size"),
        (["tflite"], {"out": "mine"}, RunError, "exists and is not an earlier export"),
        (["tflite"], {"out": "mine/notes.txt"}, RunError, "not an earlier export"),
        (["tflite"], {"record": '{"exports": []}'}, RunError, "notes.txt besides"),
        (["tflite"], {"record": "[1]"}, RunError, "not an earlier export"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported(
    formats, options, error, told, model_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    pathlib.Path("mine").mkdir()
    pathlib.Path("mine/notes.txt").write_text("mine")
    given = {"model": model_file, "out": "out", "compared": 2, **options}
    if "record" in given:
        given["out"] = "mine"
        pathlib.Path("mine/export.json").write_text(given.pop("record"))
    # Models without positions of a grid have one size.
    if given["model"] in ("relative", "none"):
        config = keras_vit.ViTConfig(8, 1, 2, 16, 8, position_embedding=given["model"])
        keras_vit.VisionTransformer(config, image_size=32, classes=3).save("1.keras")
        given["model"] = "1.keras"
    with pytest.raises(error, match=told):
        run.export(formats=formats, **given)
    assert not pathlib.Path("out").exists()
    assert pathlib.Path("mine/notes.txt").read_text() == "mine"


def test_packages_that_are_missing_are_named(model_file, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    needs = r"tflite needs ai-edge-litert and .*'\.\[export\]'"
    with pytest.raises(RunError, match=needs):
        run.export(model_file, ["tflite"], tmp_path / "out")
