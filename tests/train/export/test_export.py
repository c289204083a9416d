"""The export of models, compared with them, and what is refused."""

import hashlib
import json
import os
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys

import in_process
import keras
import numpy as np
import PIL.Image
import pytest

import keras_vit
from train.common.errors import RunError
from train.data import sources
from train.data.transforms import served_files
from train.export import (
    formats,
    onnx,
    parity,
    program,
    report,
    run,
    sample_images,
    tflite,
)
from train.export.run import ExportError
from train.models import loaded_model
from train.models.exports import exported_model, saved_model, tensorflow
from train.reports import markdown
from train.reports.classification import interval

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="an export needs TensorFlow"
)

ROOT = pathlib.Path(__file__).parents[3]
CONFIG = keras_vit.ViTConfig(
    hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
)


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    """A small model whose answers differ from image to image."""
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=10)
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


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    run_here(monkeypatch)
    monkeypatch.setattr(program, "_keras", eager)


def convert_once(monkeypatch, known={}):  # noqa: B006 - a cache
    """Converts the model of `model_file`, and no other, once to each precision."""
    convert = tflite._converted

    def converted(model, *arguments):
        if arguments not in known:
            known[arguments] = convert(model, *arguments)
        return known[arguments]

    monkeypatch.setattr(tflite, "_converted", converted)


@pytest.mark.parametrize("of_any_size", [False, True])
def test_images_of_any_size(of_any_size, model_file, tmp_path, monkeypatch):
    convert_once(monkeypatch)
    fixed = keras.saving.load_model(model_file)
    if of_any_size:
        model_file = str(tmp_path / "any.keras")
        keras_vit.at_image_size(fixed, (None, None)).save(model_file)
    names, out = ["saved_model", "tflite", "onnx"], tmp_path / "out"
    results = run.export(model_file, names, out, any_size=True, compared=8)
    rows = {row["name"]: row for row in results["exports"]}
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
    served = tf.saved_model.load(str(out / "saved_model" / "1"))
    squashed = tf.image.resize(photo / 2 + 0.5, (32, 32))
    np.testing.assert_allclose(
        served(photo / 2 + 0.5), fixed(2 * squashed - 1), atol=1e-4
    )
    with pytest.raises(ValueError, match="any_size is an option of saved_model, onnx"):
        run.export(model_file, ["tflite"], out, any_size=True)


@pytest.mark.parametrize("positions", ["relative", "none"])
def test_models_without_positions_of_a_grid_have_one_size(positions, tmp_path):
    config = keras_vit.ViTConfig(8, 1, 2, 16, 8, position_embedding=positions)
    model = keras_vit.VisionTransformer(config, image_size=16, classes=3)
    model.save(tmp_path / "model.keras")
    with pytest.raises(RunError, match="leave --any_size out"):
        path, out = str(tmp_path / "model.keras"), tmp_path / "out"
        run.export(path, ["onnx"], out, any_size=True, compared=2)


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


@pytest.fixture
def damaged(monkeypatch):
    """A writer of float32 ONNX that moves the classes by one."""
    write = onnx.write_onnx

    def write_damaged(model, path, *, precision, **options):
        if precision == "float16":
            return write(model, path, precision=precision, **options)
        other = keras.models.clone_model(model)
        other.set_weights(model.get_weights())
        head = other.get_layer("head")
        head.kernel.assign(np.roll(head.kernel, 1, axis=1))
        return write(other, path, precision=precision, **options)

    monkeypatch.setattr(onnx, "write_onnx", write_damaged)


def snippets(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*"))


@pytest.fixture(scope="module")
def all_formats(model_file, tmp_path_factory):
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

    # What the page says is how they are loaded.
    monkeypatch.chdir(shutil.copytree(out, tmp_path / "moved"))
    text = (out / "export.md").read_text()
    found = snippets(text)
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


@pytest.mark.parametrize(
    ("options", "aims"),
    [
        ({}, {"dynamic": None, "int8": None}),
        ({"min_agreement": 0.25}, {"dynamic": 0.25, "int8": 0.25}),
        ({"min_agreement": 0.0}, {"dynamic": None, "int8": None}),
        ({"features": True}, {"dynamic": None, "int8": None}),
    ],
)
def test_what_quantized_exports_aim_at(
    options, aims, model_file, tmp_path, monkeypatch
):
    written = {}

    def write_quickly(model, path, *, precision, calibration, **arguments):
        written[precision] = arguments["min_agreement"]
        needed = precision == "int8" or written[precision] is not None
        assert (calibration is not None) >= needed
        raise RunError("enough is known")

    monkeypatch.setattr(tflite, "write_tflite", write_quickly)
    facts = {"version": "", "one_by_one": False, "latency": {}, "peak_bytes": 1}
    monkeypatch.setattr(parity, "run", lambda *_, **__: (np.eye(8, 10), facts))
    with pytest.raises(RunError, match="enough is known"):
        run.export(
            model_file,
            ["tflite-dynamic", "tflite-int8"],
            tmp_path / "out",
            dataset="digits",
            compared=8,
            calibration=8,
            **options,
        )
    assert written == aims


def test_each_format_stands_for_itself(
    damaged, model_file, tmp_path, monkeypatch, capsys
):
    def fail(model, path, **options):
        path.mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"half of it")
        raise MemoryError

    monkeypatch.setattr(saved_model, "write_saved_model", fail)
    out = tmp_path / "out"
    arguments = {"dataset": "digits", "compared": 20}
    with pytest.raises(
        ExportError,
        match=r"2 of 3 exports failed\. Written to .*out: onnx-float16\.\n"
        r"saved_model: MemoryError: .*\n"
        r"onnx: its agreement with the model is [\d.]+% \([\d.]+% to [\d.]+%\) on 20 "
        r"images, less than the 99.50% required: leave it out, or lower --min_agr",
    ) as refused:
        run.export(
            model_file, ["saved_model", "onnx", "onnx-float16"], out, **arguments
        )
    assert "saved_model is refused: MemoryError" in capsys.readouterr().out
    # What agrees is whole, and nothing is left of what does not.
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert sorted(path.name for path in out.iterdir()) == [
        "class_names.txt",
        "export.json",
        "export.md",
        "model-float16.onnx",
    ]
    results = json.loads((out / "export.json").read_text())
    assert results == refused.value.results
    assert [row["name"] for row in results["exports"]] == ["keras", "onnx-float16"]
    assert results["exports"][1]["agreement"] == 1
    failed = {row["name"]: row for row in results["refused"]}
    assert list(failed) == ["saved_model", "onnx"]
    assert failed["onnx"]["agreement"] < 0.995
    text = (out / "export.md").read_text()
    assert "**onnx is not here:** its agreement" in text and "model.onnx" not in text
    assert "| onnx (refused) | " in text and "| saved" not in text
    # An earlier export stays where nothing is to take its place.
    before = {path: (out / path).read_bytes() for path in files(out)}
    with pytest.raises(ExportError, match="1 of 1 .*Nothing was written to"):
        run.export(model_file, ["onnx"], out, **arguments)
    assert {path: (out / path).read_bytes() for path in files(out)} == before
    # Unless somebody wants it.
    run.export(model_file, ["onnx"], out, min_agreement=0.0, **arguments)
    assert "model.onnx" in files(out) and "model-float16.onnx" not in files(out)


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
    row = {
        "name": name,
        "aim": None,
        "min_agreement": formats.FORMATS[name].min_agreement,
    }
    row |= parity.compare(found, expected, top_1=True)
    results = {"agreement_of": "top-1", "images": {"count": count}}
    why = run._shortfall(results, row, formats.FORMATS[name], exact=exact)
    assert (why is None) == is_enough, why


def test_cosines_have_no_interval():
    row = {"name": "onnx", "agreement": 0.99, "min_agreement": 0.995}
    results = {"agreement_of": "cosine", "images": {"count": 64}}
    assert "is 0.990000 on 64" in run._shortfall(
        results, row, formats.FORMATS["onnx"], exact=False
    )


def test_a_runtime_that_fails_loses_no_other_format(model_file, tmp_path, monkeypatch):
    run_one = parity.run

    def run_others(name, *arguments, **options):
        if name == "onnx":
            raise RunError("onnx does not run in its runtime: signal 9")
        return run_one(name, *arguments, **options)

    monkeypatch.setattr(parity, "run", run_others)
    with pytest.raises(ExportError, match="onnx: does not run .*signal 9"):
        run.export(model_file, ["onnx", "onnx-float16"], tmp_path / "out", compared=8)
    found = {path.name for path in (tmp_path / "out").iterdir()}
    assert "model-float16.onnx" in found and "model.onnx" not in found


def test_dynamic_is_small_unless_more_agreement_is_required(
    all_formats, model_file, tmp_path, capsys, monkeypatch
):
    convert_once(monkeypatch)
    out = tmp_path / "out"
    results = run.export(
        model_file,
        ["tflite-dynamic"],
        out,
        dataset="digits",
        compared=40,
        calibration=16,
        min_agreement=1.0,
    )
    [_, agreeing] = results["exports"]
    before, folder = all_formats
    [small] = [row for row in before["exports"] if row["name"] == "tflite-dynamic"]
    for row, of, where in (agreeing, results, out), (small, before, folder):
        low, high = interval(round(40 * row["agreement"]), 40)
        assert (row["agreement_low"], row["agreement_high"]) == (low, high)
        text = f"{row['agreement']:.2%} ({low:.2%} to {high:.2%})"
        assert text in report.table(of) and text in (where / "export.md").read_text()
    assert "float16" not in small["matrices"] and small["aim"] is None
    assert agreeing["matrices"]["float16"] > 0 and agreeing["aim"] == 1
    sentence = report.matrices(agreeing)
    assert "of 8 stay in float16 for --min_agreement=1" in sentence
    assert sentence in capsys.readouterr().out
    assert sentence in (out / "export.md").read_text()


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


def test_pages_and_the_error_say_alike_which_files_serve_bytes_reads():
    """They said JPEG and PNG, of which CMYK, WebP and others ended in a refusal."""
    templates = pathlib.Path(report.__file__).with_name("templates")
    page = markdown.render(
        templates / "saved_model.md.jinja",
        paths=["saved_model"],
        head=True,
        served_files=served_files(),
    )
    from train.data.transforms.decoding import decode_in_graph

    with pytest.raises(tf.errors.InvalidArgumentError) as refused:
        decode_in_graph(tf.constant(b"RIFF....WEBP"))
    for text in (page, (ROOT / "docs" / "export.md").read_text(), str(refused.value)):
        assert served_files() in " ".join(text.split())


def test_options_of_tflite(model_file, tmp_path):
    results = run.export(
        model_file,
        ["tflite-int8"],
        tmp_path / "out",
        dataset="digits",
        compared=20,
        calibration=16,
        min_agreement=0.0,
        dynamic_batch=True,
        uint8=True,
    )
    assert not any(row["one_by_one"] for row in results["exports"])
    assert sum(results["exports"][1]["matrices"].values()) > 1
    text = (tmp_path / "out/export.md").read_text()
    assert "takes the pixels themselves" in text and "one image at a time" not in text


def test_low_precision_is_compared_in_float32(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=3)
    finally:
        keras.config.set_dtype_policy("float32")
    model.get_layer("head").kernel.assign(np.eye(16, 3))
    model.save(tmp_path / "low.keras")
    results = run.export(
        str(tmp_path / "low.keras"), ["onnx"], tmp_path / "out", compared=8
    )
    assert results["exports"][1]["largest_error"] < 1e-4
    # Of generated images no class stands out.
    assert results["head"] and results["agreement_of"] == "cosine"


def test_classes_that_are_not_the_models(tmp_path):
    """They agree all the same, but nobody knows how often they are right."""
    model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=7)
    model.save(tmp_path / "seven.keras")
    results = run.export(
        str(tmp_path / "seven.keras"),
        ["onnx"],
        tmp_path / "out",
        dataset="digits",
        compared=8,
    )
    assert "accuracy" not in results["exports"][1]
    text = (tmp_path / "out/export.md").read_text()
    assert "The accuracy is not known: The model" in text and "7 classes" in text
    # Its head is zero: nothing could disagree.
    assert results["all_alike"] and "answers the same to every image" in text


def test_images_that_calibrate_are_not_compared(model_file, tmp_path):
    given = loaded_model.load(model_file)
    data = {"dataset": "digits", "data_dir": None, "skip_corrupt": False}
    data |= {"central_crop": False, "split": "train"}
    path = tmp_path / "images"
    samples = sample_images.read(given, path, 700, calibration=2000, **data)
    compared = np.concatenate([*program.read_images(path)])
    rows = [image.tobytes() for image in compared]
    others = [image.tobytes() for image in samples.calibration]
    assert len(rows) == len(samples.labels) == 700 and len(others) == 1293 - 700
    assert not set(rows) & set(others)
    with pytest.raises(RunError, match="All 1293 images of .* none is left"):
        sample_images.read(given, path, 2000, calibration=8, **data)


def test_what_cannot_be_exported(model_file, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="'coreml' is not a format: choose from"):
        run.export(model_file, ["onnx", "coreml"], out)
    with pytest.raises(ValueError, match="uint8 is an option of tflite-int8, which"):
        run.export(model_file, ["tflite"], out, uint8=True)
    with pytest.raises(ValueError, match="dynamic_batch .* of tflite, tflite-float16"):
        run.export(model_file, ["onnx"], out, dynamic_batch=True)
    with pytest.raises(RunError, match="tflite-int8 needs calibration images: pass --"):
        run.export(model_file, ["tflite-int8"], out)
    with pytest.raises(RunError, match="nothing.keras cannot be used"):
        run.export(str(tmp_path / "nothing.keras"), ["tflite"], out)
    assert not out.exists()


def test_nothing_else_is_lost(model_file, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="exists and is not an earlier export"):
        run.export(model_file, ["tflite"], tmp_path)
    earlier = {"exports": [{"name": "onnx", "files": [{"path": "model.onnx"}]}]}
    for numbers in ({"exports": []}, earlier, [1]):
        (tmp_path / "export.json").write_text(json.dumps(numbers))
        with pytest.raises(RunError, match="notes.txt besides|not an earlier export"):
            run.export(model_file, ["tflite"], tmp_path)
    with pytest.raises(RunError, match="not an earlier export"):
        run.export(model_file, ["tflite"], tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_packages_that_are_missing(model_file, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        RunError, match=r"tflite needs ai-edge-litert and .*'\.\[export\]'"
    ):
        run.export(model_file, ["tflite"], tmp_path / "out")


def test_a_model_that_a_writer_refuses(model_file, tmp_path, monkeypatch):
    def refuse(model, path, **options):
        raise ValueError("no operation Erf")

    monkeypatch.setattr(tflite, "write_tflite", refuse)
    with pytest.raises(RunError, match="tflite: the model cannot be written: no op"):
        run.export(model_file, ["tflite"], tmp_path / "out", compared=8)
    assert not (tmp_path / "out").exists()


def command(*arguments, cwd):
    """Runs the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "train.export", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
def run_dir(model_file, tmp_path):
    """What a run on the digits leaves, without the run."""
    folder = tmp_path / "runs" / "digits"
    folder.mkdir(parents=True)
    shutil.copyfile(model_file, folder / "model.keras")
    (folder / "class_names.txt").write_text("".join(f"{n}\n" for n in range(10)))
    config = {"dataset": "digits", "validation_fraction": 0.1}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_folders_that_are_named_by_numbers(tmp_path):
    for name in ("7", "2"):
        for part in ("train", "test"):
            (tmp_path / part / name).mkdir(parents=True)
            PIL.Image.new("RGB", (9, 9)).save(tmp_path / part / name / "0.png")
    images = keras.Input((9, 9, 3))
    flat = keras.layers.Flatten()(images)
    model = keras.Model(images, keras.layers.Dense(8, name="head")(flat))
    names = tuple("abcdefgh")
    found = sample_images.read(
        loaded_model.LoadedModel("own", model, names),
        tmp_path / "images",
        None,
        calibration=None,
        central_crop=False,
        dataset=str(tmp_path),
        data_dir=None,
        skip_corrupt=False,
        split="test",
    )
    assert found.labels.tolist() == [2, 7] and "no_accuracy" not in found.about


@pytest.mark.soak
def test_the_command(run_dir, tmp_path):
    done = command(
        "--model=runs/digits",
        "--format=onnx",
        "--out=out",
        "--split=validation",
        "--threads=1",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    check_command(done.stdout, tmp_path)
    results = json.loads((tmp_path / "out/export.json").read_text())
    for row in results["exports"]:
        # TensorFlow's process holds more than ONNX Runtime's.
        assert (row["peak_bytes"] > 300e6) == (row["name"] == "keras")


def check_command(printed, tmp_path):
    rows = re.findall(r"^\| (\S+) \| ", printed, re.MULTILINE)
    assert rows == ["Export", "---", "keras", "onnx"]
    assert printed.endswith("report   out/export.md\n")
    results = json.loads((tmp_path / "out/export.json").read_text())
    assert results["command"] in (tmp_path / "out/export.md").read_text()
    assert results["images"]["count"] == 144 and results["threads"] == 1
    for row in results["exports"]:
        assert row["agreement"] > 0.98 and row["accuracy"] > 0


def test_the_command_and_its_errors(run_dir, model_file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="tflite-int8 needs calibration images"):
        in_process.run_command(
            "export", "--format=tflite-int8", "--out=refused", model_file
        )
    assert not (tmp_path / "refused").exists()
    capsys.readouterr()
    arguments = ["--format=onnx", "--out=out", "--split=validation", "--threads=1"]
    in_process.run_command("export", "--model=runs/digits", *arguments)
    check_command(capsys.readouterr().out, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--format=onnx,tensorrt", "MODEL"],
            "'tensorrt' is not a format: choose from",
        ),
        (["--format=onnx", "--uint8", "MODEL"], "uint8 is an option of tflite-int8"),
        (["MODEL"], "No format is given: choose from saved_model"),
        (
            ["--format=onnx", "--min_agreement=1.5", "MODEL"],
            r"min_agreement=1.5: .* \[0.0, 1.0\]",
        ),
    ],
)
def test_wrong_flags(arguments, message):
    with pytest.raises(SystemExit, match=message):
        in_process.run_command("export", "--out=out", *arguments)


def test_no_model(tmp_path):
    done = command("--out=out", "--format=onnx", cwd=tmp_path)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    message = "Give one model and a folder: python -m train.export MODEL"
    assert message in done.stdout + done.stderr


def test_help_and_docs_have_every_format():
    shown = command("--help", cwd=ROOT).stdout
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    for row in formats.FORMATS.values():
        assert f"  {row.name:16} {row.help}\n" in shown
        share = f"{row.min_agreement:.1%}".replace(".0%", "%")
        assert f"| `{row.name}` | {row.help} | {share} |\n" in page
        assert callable(pkgutil.resolve_name(row.runtime.writer))


def test_paths_below_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RunError, match="There is no file|cannot be used"):
        run.export("~/none.npz", ["tflite"], "~/out")
