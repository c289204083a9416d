"""Predictions of a stub and of small models."""

import collections
import csv
import dataclasses
import filecmp
import os
import pathlib
import warnings

import keras
import numpy as np
import pytest
from harness import randomize
from in_process import run_command
from photo_folder import NAMES, paths
from scipy.special import softmax
from small_models import SIZE, made, shared

import keras_vit
from train.common import predictors
from train.common.errors import RunError
from train.models import finding, loaded_model
from train.predict import classifiers, prediction
from train.predict.classifiers import Classifier
from train.predict.prediction import predict
from train.scoring.evaluation_data import num_logits
from zoo.head import Answers
from zoo.photos import prepare

PROBABILITIES = Answers(("red", "green", "blue"), are_logits=False)


def stub(monkeypatch, compute=None, **changes):
    """A model of three classes that answers by the mean of a photo."""

    def by_mean(images):
        means = images.mean(axis=(1, 2))
        return softmax(20 * means, axis=1), means

    settings = {
        "name": "stub",
        "image_shape": (8, 8, 3),
        "preparation": "squash",
        "batch_size": 4,
        "compute": compute or by_mean,
        "answers": PROBABILITIES,
        "num_features": 3,
        "notes": ("a note",),
        "digest": lambda: "1f",
    }
    classifier = Classifier(**{**settings, **changes})
    monkeypatch.setattr(classifiers, "load", lambda *_, **__: classifier)


def expected():
    images = np.stack([prepare(path, 8) for path in paths()])
    means = images.mean(axis=(1, 2))
    return means, softmax(20 * means.astype("float64"), axis=1)


def test_bits_reach_photos_and_settings(folder, monkeypatch, goldens):
    path = str(goldens / "photos" / "grey_12_bits_in_16.png")
    seen = []

    def compute(images):
        seen.append(images)
        return np.eye(3, dtype="float32")[[0]], None

    stub(monkeypatch, compute)
    predict("stub", [path], out="bits.csv", bits=12)
    np.testing.assert_array_equal(seen[0][0], prepare(path, 8, bits=12))
    with pytest.raises(RunError, match=r"other settings: bits 12 \(now None\)"):
        predict("stub", [path], out="bits.csv", resume=True)


def test_bits_that_are_given_do_not_go_on_with_those_of_a_model(folder, monkeypatch):
    """Bits that a file says come before the model's, and after those given."""
    stub(monkeypatch, bits=12)
    predict("stub", paths()[:1], out="bits.csv")
    assert predict("stub", paths(), out="bits.csv", resume=True).earlier == 1
    with pytest.raises(RunError, match=r"bits '12 of the model' .now 12"):
        predict("stub", paths(), out="bits.csv", resume=True, bits=12)


def test_a_warning_names_each_dark_photo(folder, monkeypatch, goldens, tmp_path):
    dark = (goldens / "photos" / "grey_12_bits_in_16.png").read_bytes()
    for name in ("1.png", "2.png"):
        (tmp_path / name).write_bytes(dark)
    answer = np.eye(3, dtype="float32")[[0, 0]]
    stub(monkeypatch, lambda images: (answer, None))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        predict("stub", [str(tmp_path / "1.png"), str(tmp_path / "2.png")])
    told = [
        str(one.message).partition(" has values of 12 bits in 16")[0] for one in shown
    ]
    assert sorted(told) == [str(tmp_path / "1.png"), str(tmp_path / "2.png")]


def test_a_folder_of_unread_files_alone_says_what_is_read(tmp_path, monkeypatch):
    stub(monkeypatch)
    (tmp_path / "1.psd").write_bytes(b"8BPS")
    with pytest.raises(
        RunError, match=r"left out 1 file .*\.psd.*; read are \.jpg, .*"
    ):
        predict("stub", [str(tmp_path)])


def test_all_that_comes_out(folder, monkeypatch):
    stub(monkeypatch)
    answers = []
    found = predict(
        "stub",
        ["photos"],
        out="out.csv",
        features="x.npz",
        sort_into="sorted",
        gallery="page.html",
        answer=answers.append,
    )
    means, probabilities = expected()
    assert [answer.file for answer in answers] == paths()
    names = np.array(["red", "green", "blue"])
    for answer, row in zip(answers, probabilities, strict=True):
        order = np.argsort(-row)
        assert [name for name, _ in answer.top] == list(names[order])
        np.testing.assert_allclose([p for _, p in answer.top], row[order], rtol=1e-4)
    with open("out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], row["label"]) for row in rows] == [
        (answer.file, answer.top[0][0]) for answer in answers
    ]
    with np.load("x.npz") as arrays:
        np.testing.assert_allclose(arrays["features"], means, rtol=1e-5)
        assert arrays["files"].tolist() == paths()
    for row in rows:
        copy = os.path.join("sorted", row["label"], os.path.basename(row["file"]))
        assert filecmp.cmp(copy, row["file"], shallow=False)
    assert "10 photos, answered by stub" in pathlib.Path("page.html").read_text("utf-8")
    assert (found.answered, found.unreadable) == (10, 1)
    assert found.counts == collections.Counter(row["label"] for row in rows)
    [reason] = found.reasons
    assert reason.startswith("photos/5bad.jpg cannot be read as an image")
    assert found.notes == ["a note"]
    assert sorted(os.listdir(folder)) == [
        "out.csv",
        "out.csv.settings.json",
        "page.html",
        "photos",
        "sorted",
        "x.npz",
    ]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interruption_is_gone_on_with(after, folder, monkeypatch):
    stub(monkeypatch)
    given = {"out": "out.jsonl", "features": "x.npz", "sort_into": "sorted"}
    predict("stub", ["photos"], out="whole.jsonl", features="whole.npz")
    calls = []

    def interrupted(images):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(images)
        means = images.mean(axis=(1, 2))
        return softmax(20 * means, axis=1), means

    stub(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], **given)
    with open("out.jsonl") as file:
        assert file.read().count("\n") == 4 * after
    stub(monkeypatch)
    found = predict("stub", ["photos"], resume=True, gallery="page.html", **given)
    assert found.answered == 10 - 4 * after
    assert pathlib.Path("out.jsonl").read_text("utf-8") == pathlib.Path(
        "whole.jsonl"
    ).read_text("utf-8")
    with np.load("x.npz") as some, np.load("whole.npz") as whole:
        np.testing.assert_array_equal(some["features"], whole["features"])
        np.testing.assert_array_equal(some["files"], whole["files"])
    assert len([*pathlib.Path("sorted").glob("*/*")]) == 10
    # Those of the first start, too.
    assert "10 photos, answered by stub" in pathlib.Path("page.html").read_text("utf-8")
    again = predict("stub", ["photos"], resume=True, **given)
    assert (again.answered, again.unreadable) == (0, 1)
    # A folder of copies that is asked for later has all of them.
    given["sort_into"] = "later"
    predict("stub", ["photos"], resume=True, **given)
    assert len([*pathlib.Path("later").glob("*/*")]) == 10


def test_new_photos_are_added(folder, monkeypatch):
    stub(monkeypatch)
    given = {"out": "out.csv", "features": "x.npz"}
    predict("stub", paths(1, 2), **given)
    found = predict("stub", ["photos/*.png"], resume=True, **given)
    assert found.answered == 8
    with np.load("x.npz") as arrays:
        assert sorted(arrays["files"]) == paths()
        assert arrays["files"][:2].tolist() == paths(1, 2)


def test_another_directory_is_gone_on_with(folder, monkeypatch):
    stub(monkeypatch)
    given = {"out": "out.csv", "features": "x.npz"}
    predict("stub", paths(1, 2), **given)
    monkeypatch.chdir("photos")
    given = {flag: f"../{name}" for flag, name in given.items()}
    given["gallery"] = "../page.html"
    # Photos of both starts are found.
    seen = set()
    monkeypatch.setattr("train.predict.gallery._thumbnail", lambda p, bits: seen.add(p))
    found = predict("stub", ["."], resume=True, **given)
    assert (found.answered, found.earlier) == (8, 2)
    assert {os.path.realpath(path) for path in seen} == {
        str(folder / path) for path in paths()
    }
    with open("../out.csv", newline="") as file:
        assert sorted(row["file"] for row in csv.DictReader(file)) == paths()
    with np.load("../x.npz") as arrays:
        assert sorted(arrays["files"]) == paths()


def test_other_class_names_are_refused(folder, monkeypatch):
    stub(monkeypatch)
    predict("stub", paths(1), out="out.csv")
    others = dataclasses.replace(PROBABILITIES, names=("red", "green", "violet"))
    stub(monkeypatch, answers=others)
    with pytest.raises(RunError, match="answers of other settings: other class names"):
        predict("stub", ["photos"], out="out.csv", resume=True)


def test_a_file_with_its_header_alone_is_gone_on_with(folder, monkeypatch):
    def interrupted(images):
        raise KeyboardInterrupt

    stub(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], out="out.csv")
    assert pathlib.Path("out.csv").read_text().count("\n") == 1
    stub(monkeypatch)
    found = predict("stub", ["photos"], out="out.csv", resume=True)
    assert (found.answered, found.earlier) == (10, 0)


@pytest.mark.parametrize(("flag", "path"), [("out", "o/x.csv"), ("features", "x.npz")])
def test_two_at_a_time_do_not_mix(flag, path, folder, monkeypatch):
    def second(images):
        with pytest.raises(RunError, match=f"Another process is writing {path}: wait"):
            predict("stub", ["photos"], resume=flag == "out", **{flag: path})
        raise KeyboardInterrupt

    stub(monkeypatch, second)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], **{flag: path})
    stub(monkeypatch)
    found = predict("stub", ["photos"], resume=flag == "out", **{flag: path})
    assert found.answered == 10
    assert not [name for name in os.listdir((folder / path).parent) if ".lock" in name]


def test_nothing_is_left_of_features_without_out(folder, monkeypatch):
    def interrupted(images):
        raise KeyboardInterrupt

    stub(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], features="x.npz")
    assert os.listdir(folder) == ["photos"]


def test_memory_does_not_grow_with_the_photos(folder, monkeypatch):
    """At most a batch and one photo per thread are read ahead."""
    read, answered = [], []

    def counted(*arguments):
        read.append(arguments[0])
        return prepare(*arguments)

    def compute(images):
        answered.extend(images)
        assert len(read) - len(answered) <= 4 + 2 + 1
        return np.eye(3, dtype="float32")[[0] * len(images)], None

    monkeypatch.setattr(prediction, "prepare", counted)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    stub(monkeypatch, compute)
    found = predict("stub", paths() * 20)
    assert found.answered == 200


def test_many_unreadable_photos(folder, monkeypatch):
    stub(monkeypatch)
    for number in range(30):
        open(f"photos/{number}.jpg", "w").close()
    found = predict("stub", ["photos", "-"][:1])
    assert (found.answered, found.unreadable, len(found.reasons)) == (10, 31, 10)
    # None of them can be read: there is nothing to say of the classes.
    found = predict("stub", ["photos/*.jpg"], out="out.csv")
    assert (found.answered, found.unreadable) == (0, 31)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": "out.txt"}, "--out is a file NAME.csv or NAME.jsonl, got out.txt"),
        ({"features": "x.npy"}, "--features is a file NAME.npz"),
        ({"gallery": "page"}, "--gallery is a file NAME.html"),
        ({"resume": True}, "--resume goes on with the answers in --out"),
        ({"gallery": "there.html"}, "there.html exists: pass another --gallery"),
        ({"features": "there.npz"}, "there.npz exists: pass another --features"),
        ({"out": "there.csv"}, "there.csv exists: pass --resume"),
    ],
)
def test_names_are_checked_before_the_model_is_loaded(
    given, message, folder, monkeypatch
):
    monkeypatch.setattr(classifiers, "load", None)
    for name in ("there.html", "there.npz", "there.csv"):
        open(name, "w").close()
    with pytest.raises(RunError, match=message):
        predict("stub", ["photos"], **given)


def test_no_photo_at_all(folder, monkeypatch):
    monkeypatch.setattr(classifiers, "load", None)
    os.mkdir("empty")
    open("empty/1.txt", "w").close()
    with pytest.raises(RunError, match=r"no photo in empty: give .* left out 1 file"):
        predict("stub", ["empty"])


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([np.nan, 1, 1], "photos/0.png are not finite"),
        ([0.2, 0.2, 0.2], "every class the same probability"),
    ],
)
def test_answers_that_mean_nothing(outputs, message, folder, monkeypatch):
    stub(monkeypatch, lambda images: (np.float32([outputs] * len(images)), None))
    with pytest.raises(RunError, match=message):
        predict("stub", ["photos"])


@pytest.mark.parametrize("shape", [(4, 1), (4,), (4, 3, 2), (1, 3), (4, 4)])
def test_outputs_of_another_shape(shape, folder, monkeypatch):
    random = np.random.default_rng(0)
    stub(monkeypatch, lambda _: (random.random(shape), random.random((4, 3))))
    with pytest.raises(
        RunError, match=r"model stub gives outputs of shape .* \(4, 3\)"
    ):
        predict("stub", ["photos"])
    stub(monkeypatch, lambda _: (random.random((4, 3)), random.random(shape)))
    with pytest.raises(
        RunError, match=r"model stub gives outputs of shape .* \(4, 3\)"
    ):
        predict("stub", ["photos"], features="x.npz")


def test_one_flat_answer_of_many(folder, monkeypatch):
    """A sigmoid may give a photo no class at all."""

    def compute(images):
        probabilities = images.mean(axis=(1, 2)) + 1
        probabilities[1] = 0
        return probabilities, None

    stub(monkeypatch, compute)
    assert predict("stub", ["photos"]).answered == 10


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_a_model_of_one_class(activation, folder, tmp_path):
    export = pytest.importorskip("train.export.onnx")
    model = made(classes=1, classifier_activation=activation)
    model.save("model.keras")
    export.write_onnx(model, tmp_path / "model.onnx", class_names=["cat"])
    pathlib.Path("class_names.txt").write_text("cat\n")
    for name in ("model.keras", "model.onnx"):
        answers = []
        if activation is None:
            with pytest.raises(RunError, match="has one class, cat, which every photo"):
                predict(name, paths())
            continue
        predict(name, paths(), answer=answers.append)
        images = np.stack([prepare(path, SIZE) for path in paths()])
        [labels] = {tuple(label for label, _ in answer.top) for answer in answers}
        assert labels == ("cat",)
        found = [answer.top[0][1] for answer in answers]
        expected = keras.ops.convert_to_numpy(model(images))[:, 0]
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_features_alone(folder, monkeypatch):
    means = expected()[0]
    stub(
        monkeypatch,
        lambda images: (None, images.mean(axis=(1, 2))),
        answers=Answers(),
    )
    found = predict("stub", ["photos"], features="x.npz")
    assert (found.answered, found.counts) == (10, {})
    np.testing.assert_allclose(np.load("x.npz")["features"], means, rtol=1e-5)
    with pytest.raises(RunError, match="has features, but no classes"):
        predict("stub", ["photos"], features="y.npz", out="out.csv")
    assert not os.path.exists("out.csv")


@pytest.mark.parametrize("central_crop", [None, True, False])
def test_keras_models_and_exports_answer_alike(central_crop, folder, files):
    pytest.importorskip("onnxruntime")
    preparation = "central crop" if central_crop else "squash"
    images = np.stack([prepare(path, SIZE, preparation) for path in paths()])
    outputs = keras.ops.convert_to_numpy(shared()(images))
    for name, batch_size in (("model.keras", 3), ("model.onnx", None)):
        answers = []
        predict(
            str(files / name),
            paths(),
            central_crop=central_crop,
            batch_size=batch_size,
            answer=answers.append,
        )
        probabilities = softmax(outputs, axis=1)
        for answer, row in zip(answers, probabilities, strict=True):
            order = np.argsort(-row)
            assert [label for label, _ in answer.top] == [NAMES[at] for at in order]
            np.testing.assert_allclose(
                [p for _, p in answer.top], row[order], rtol=1e-3, atol=1e-6
            )


def test_features_of_a_keras_model_beside_its_answers(folder, files):
    answers, plain = [], []
    model = str(files / "model.keras")
    predict(model, paths(), features="x.npz", answer=answers.append)
    predict(model, paths(), answer=plain.append)
    body = keras.Model(shared().input, shared().layers[-1].input)
    images = np.stack([prepare(path, SIZE) for path in paths()])
    np.testing.assert_allclose(
        np.load("x.npz")["features"],
        keras.ops.convert_to_numpy(body(images)),
        rtol=1e-4,
        atol=1e-4,
    )
    for one, other in zip(answers, plain, strict=True):
        np.testing.assert_allclose(
            [p for _, p in one.top], [p for _, p in other.top], rtol=1e-3
        )


@pytest.mark.parametrize("kind", ["sigmoid", "without head", "gray, softmax"])
def test_other_heads(kind, folder, tmp_path):
    model = made(classifier_activation="sigmoid") if kind == "sigmoid" else shared(kind)
    model.save("model.keras")
    answers = []
    if kind == "without head":
        with pytest.raises(RunError, match="no head for classes.* Pass --features"):
            predict("model.keras", paths())
        found = predict("model.keras", paths(), features="x.npz")
        assert (found.answered, np.load("x.npz")["features"].shape) == (10, (10, 24))
        return
    found = predict("model.keras", paths(), answer=answers.append)
    channels = model.input_shape[-1]
    images = np.stack([prepare(path, SIZE, channels=channels) for path in paths()])
    largest = keras.ops.convert_to_numpy(model(images)).max(axis=1)
    top = [answer.top[0][1] for answer in answers]
    np.testing.assert_allclose(top, largest, rtol=1e-3)
    is_said = any("a probability of its own" in note for note in found.notes)
    assert is_said == (kind == "sigmoid")
    # They have no names.
    assert answers[0].top[0][0].startswith("class ")


@pytest.mark.parametrize("kind", ["softmax layer", "inside", "another name"])
def test_heads_that_are_not_the_last_layer(kind, folder):
    """What `keras_vit.classify` answers is answered alike."""
    model = made(class_names=NAMES, preparation="central crop")
    if kind == "softmax layer":
        model = keras.Model(model.input, keras.layers.Softmax()(model.output))
    elif kind == "inside":
        model = keras.Sequential([keras.Input((*SIZE, 3)), model])
    else:
        body = made(include_top=False)
        head = keras_vit.layers.ClassificationHead(5, class_names=NAMES, name="answers")
        model = keras.Model(body.input, head(body.output))
        randomize(head)
    model.save("model.keras")
    answers = []
    predict("model.keras", paths(), answer=answers.append)
    expected = keras_vit.classify(model, paths())
    for answer, rows in zip(answers, expected, strict=True):
        assert [name for name, _ in answer.top] == [name for _, name, _ in rows]
        found = [probability for _, probability in answer.top]
        np.testing.assert_allclose(found, [p for *_, p in rows], rtol=1e-3)
    with pytest.raises(RunError, match="Features are what the layer called head"):
        predict("model.keras", paths(), features="x.npz")
    loaded = loaded_model.load("model.keras")
    if kind == "softmax layer":
        with pytest.raises(RunError, match="ends in softmax, where logits"):
            num_logits(loaded)
    else:
        assert num_logits(loaded) == 5


def test_what_exports_cannot_do(folder, files):
    model = str(files / "model.onnx")
    with pytest.raises(RunError, match="exported for images of one size"):
        predict(model, paths(), image_size=64)
    of_any_size = keras_vit.at_image_size(
        keras.saving.load_model(files / "model.keras"), (None, None)
    )
    export = pytest.importorskip("train.export.onnx")
    export.write_onnx(of_any_size, "any.onnx")
    with pytest.raises(RunError, match="multiples of .*, got --image_size=61: pass"):
        predict("any.onnx", paths(), image_size=61)
    # At a size of its own, and as the model resized to that does.
    found = {}
    for name in ("any.onnx", str(files / "model.keras")):
        answers = []
        predict(name, paths(), image_size=48, answer=answers.append)
        found[name] = [[one for _, one in answer.top] for answer in answers]
    one, other = found.values()
    np.testing.assert_allclose(one, other, rtol=1e-3)
    os.remove("any.onnx")
    with pytest.raises(RunError, match="gives classes, not features"):
        predict(model, paths(), features="x.npz")
    assert os.listdir(folder) == ["photos"]


def test_engines_and_precisions(folder, files):
    model = str(files / "model.keras")
    [expected, found] = (
        classifiers.load(model, engine=engine) for engine in ("keras", "onnxruntime")
    )
    images = np.stack([prepare(path, SIZE) for path in paths()])
    np.testing.assert_allclose(
        found.compute(images)[0], expected.compute(images)[0], atol=1e-6
    )
    assert found.digest() == expected.digest()
    int8 = classifiers.load(model, engine="litert", precision="int8")
    assert int8.digest() == f"{expected.digest()} in int8"
    with pytest.raises(RunError, match="leave --engine and --precision out"):
        classifiers.load(str(files / "model.onnx"), engine="onnxruntime")
    with pytest.raises(
        RunError, match="onnx is an exported file.* pass the model that"
    ):
        finding.find(str(files / "model.onnx"))
    with pytest.raises(RunError, match="--engine=keras --precision=int8: "):
        classifiers.load(model, engine="keras", precision="int8")


def test_flags_know_which_engine_computes_in_which_precision():
    words = "keras computes in .*, not in int8: choose one of these, or engine='openv"
    with pytest.raises(SystemExit, match=words):
        run_command("predict", "m", "x.png", "--engine=keras", "--precision=int8")


def test_commands_say_that_a_model_is_converted(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "keras_vit.runtimes.automatic.conversion_seconds", lambda _: 0.0
    )
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    predictor = predictors.predictor(made(), 2, "auto", "float32")
    predictor(np.zeros((6, *SIZE, 3), "float32"))
    assert capsys.readouterr().err.startswith("converting the model for onnxruntime")
