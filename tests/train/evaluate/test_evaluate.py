"""The evaluation of models that are named in all possible ways."""

import json
import os
import pathlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from evaluated import CONFIG, report_of, tiny
from scipy.special import log_softmax, softmax

import keras_vit
from train import recipes
from train.common.errors import RunError
from train.data import sources
from train.evaluate import evaluation
from train.models import loaded_model
from train.run import training
from train.scoring import evaluation_data, predicting
from train.scoring.metrics import calibration, classification_summary
from train.scoring.ranked import ranked

WRITTEN = {"confusion_matrix.png", "label_errors.csv", "mistakes.csv", "mistakes.png"}
WRITTEN |= {"reliability.png", "report.html", "report.json", "report.md"}


@pytest.fixture(scope="module")
def run_dir(in_short, tmp_path_factory):
    """A short run on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    recipe = recipes.for_dataset("digits").override(
        model=CONFIG, steps=4, batch_size=16, validation_fraction=0.1
    )
    training.run(recipe, run_dir=folder, command="python -m train.finetune ...")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "tiny.npz"
    keras_vit.save_released_weights(tiny(10), path)
    (path.parent / "class_names.txt").write_text("\n".join("0123456789"))
    return path


def test_a_run_on_its_own_data(run_dir, tmp_path):
    before = (run_dir / "report.json").read_bytes()
    # The suggestions call the run as it was called.
    called = os.path.relpath(run_dir)
    # In another runtime than that which tested the run.
    results = evaluation.evaluate(
        called,
        batch_size=50,
        engine="onnxruntime",
        out_dir=tmp_path,
        command="python ...",
    )
    own, found = report_of(run_dir), report_of(tmp_path)
    # 360 images in batches of 50: the last one counts too.
    assert found["test_examples"] == own["test_examples"] == 360
    assert found["test_accuracy"] == own["test_accuracy"] == results["test_accuracy"]
    assert found["test_loss"] == pytest.approx(own["test_loss"], rel=1e-5)
    assert [row["command"] for row in results["try_next"]] == [
        f"keras-vit evaluate {called} new_photos/"
    ]
    assert found["loss_function"] == own["loss_function"] == "softmax cross-entropy"
    for row in own["per_class"]:
        assert row.pop("train_examples") > 0
    assert found["per_class"] == own["per_class"]
    assert found["parameters"] == own["parameters"]
    assert found["config"]["engine"] == "onnxruntime"
    assert found["images_per_second"] > 0 < found["images_per_second_model_alone"]
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN
    page = (tmp_path / "report.md").read_text()
    assert "# digits on digits" in page and "## Calibration" in page
    assert "(95% interval " in page and "(reliability.png)" in page
    assert (run_dir / "report.json").read_bytes() == before

    out = tmp_path / "validation"
    evaluation.evaluate(str(run_dir), split="validation", batch_size=48, out_dir=out)
    found = report_of(out)
    assert found["validation_examples"] == 144
    assert "validation_top5_accuracy" in found and "test_accuracy" not in found
    assert "144 validation examples" in (out / "report.md").read_text()


def test_the_numbers_by_hand(weights, tmp_path):
    evaluation.evaluate(str(weights), dataset="digits", out_dir=tmp_path)
    split = sources.load("digits").test
    images, labels = zip(*split.records(), strict=True)
    images = tf.image.resize(np.stack([split.decode(i) for i in images]), (32, 32))
    labels = np.array(labels)
    logits = keras_vit.load_model(weights).predict(images / 127.5 - 1, verbose=0)
    found, answered = report_of(tmp_path), ranked(labels, softmax(logits, axis=1))
    expected = classification_summary(answered, "0123456789")
    assert found["test_accuracy"] == np.mean(logits.argmax(axis=1) == labels)
    assert found["test_top5_accuracy"] == expected["top5_accuracy"]
    losses = -log_softmax(logits, axis=1)[np.arange(360), labels]
    assert found["test_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    error = calibration(answered)["error"]
    assert found["test_calibration_error"] == pytest.approx(error, rel=1e-4)
    assert sum(row["examples"] for row in found["calibration"]) == 360


def test_folders_have_one_validation(photos, tmp_path, monkeypatch):
    """With a slash the validation was another part, which the run had learnt from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(photos)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "photos").symlink_to(photos)
    config = {"dataset": "photos", "validation_fraction": 0.34}
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    loaded = loaded_model.LoadedModel("run", model, None, config)

    def files(dataset, split):
        _, part = evaluation_data.load_split(loaded, dataset, split)
        return {pathlib.Path(name).resolve() for name in part.names()}

    learnt = files(None, "train")
    assert len(learnt) == 6
    for written in ("photos", "photos/", "./photos", photos, "link", "moved/photos"):
        held = files(str(written), "validation")
        assert len(held) == 3 and not held & learnt


REFUSED = {
    "nothing": ("no/such.npz", {}, r"no/such\.npz"),
    "no data set": ("WEIGHTS", {"dataset": None}, "not a run's.*--dataset"),
    "misspelt": ("WEIGHTS", {"dataset": "cifr100"}, "did you mean cifar100"),
    "odd size": ("WEIGHTS", {"image_size": 33}, "multiples of the patch size 8"),
    "a run there": ("WEIGHTS", {"out_dir": "RUN"}, "holds a run.*--out_dir"),
    "other labels": ("WEIGHTS", {"real_labels_file": "r.json"}, "1000 classes, but"),
    "names": ("3.npz", {"dataset": "PHOTOS"}, "not known.*write the names.*class_nam"),
    "held out": ("3.npz", {"dataset": "PHOTOS", "split": "validation"},
                 "held out for validation: pass --split=test"),
    "unfinished": ("unfinished", {}, "unfinished has no model.keras"),
    "softmax": ("softmax.keras", {}, "softmax.*ends in softmax"),
    "tokens": ("tokens.keras", {}, "tokens.*shape"),
    "gray": ("gray.keras", {}, r"gray.*\(32, 32, 1\)"),
    "broken": ("broken.keras", {}, "broken.keras"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "given", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_evaluated(
    model, given, told, run_dir, weights, photos, tmp_path, monkeypatch
):
    made = {
        "softmax.keras": lambda: tiny(10, classifier_activation="softmax"),
        "tokens.keras": lambda: keras_vit.VisionTransformer(CONFIG, pooling=None),
        "gray.keras": lambda: tiny(10, channels=1),
    }
    monkeypatch.chdir(tmp_path)
    if model in made:
        made[model]().save(model)
    keras_vit.save_released_weights(tiny(3), "3.npz")
    pathlib.Path("unfinished/checkpoints").mkdir(parents=True)
    pathlib.Path("broken.keras").write_text("PK")
    recipe = recipes.Recipe("x", "x", None, 32, 999, validation_fraction=0)
    if given.get("split"):
        monkeypatch.setattr(recipes, "for_dataset", lambda dataset: recipe)
    places = {"WEIGHTS": weights, "RUN": run_dir, "PHOTOS": photos}
    given = {name: places.get(value, value) for name, value in given.items()}
    given = {"dataset": "digits", "out_dir": "out", **given}
    if given["dataset"]:
        given["dataset"] = str(given["dataset"])
    with pytest.raises(RunError, match=told):
        evaluation.evaluate(str(places.get(model, model)), **given)
    assert not pathlib.Path("out/report.json").exists()


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_a_model_that_diverged_is_named(number):
    batch = np.zeros((3, 2, 2, 3), "float32"), np.array([0, 1, 1])
    batches = tf.data.Dataset.from_tensors(batch)
    split = types.SimpleNamespace(num_examples=3)
    logits = np.array([[0.0, 1.0], [number, 0.0], [1.0, 0.0]], "float32")
    with pytest.raises(RunError, match="1 of 3 images are not finite: it has diverged"):
        list(predicting.predictions(lambda images: logits, batches, split))


def test_memory_that_is_full(weights, tmp_path, monkeypatch):
    def full(self, images):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    monkeypatch.setattr(keras_vit.Predictor, "__call__", full)
    with pytest.raises(RunError, match="memory is full: lower --batch_size"):
        evaluation.evaluate(str(weights), dataset="digits", out_dir=tmp_path)


def test_another_model_of_the_same_name(weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("tiny-digits-test", "report.json")
    folder, source = evaluation_data.report_folder(weights, None, *names)
    assert source == str(weights) and folder.is_dir()
    (folder / "report.json").write_text(json.dumps({"source": source}))
    for model in (weights, os.path.relpath(weights)):
        assert evaluation_data.report_folder(model, None, *names) == (folder, source)
    with pytest.raises(RunError, match=f"another model, {source}: pass --out_dir"):
        evaluation_data.report_folder("vit-b16/sam", None, *names)
    elsewhere = tmp_path / "elsewhere"
    found = evaluation_data.report_folder("vit-b16/sam", elsewhere, *names)
    assert found == (elsewhere, "vit-b16/sam")
    # A project that was moved, but not a copy of it, is the same.
    (tmp_path / "tiny.npz").touch()
    before = tmp_path / "before" / "tiny.npz"
    (folder / "report.json").write_text(json.dumps({"source": str(before)}))
    found = evaluation_data.report_folder("tiny.npz", None, *names)
    assert found == (folder, str(tmp_path / "tiny.npz"))
    before.parent.mkdir()
    before.touch()
    with pytest.raises(RunError, match=f"another model, {before}"):
        evaluation_data.report_folder("tiny.npz", None, *names)
    # Folders of one name are not mixed either.
    earlier = json.dumps({"source": "m/x", "data": "/a/photos"})
    (folder / "report.json").write_text(earlier)
    found = evaluation_data.report_folder("m/x", None, *names, data="/a/photos")
    assert found == (folder, "m/x")
    with pytest.raises(RunError, match="another data set, /a/photos: pass --out_dir"):
        evaluation_data.report_folder("m/x", None, *names, data="/b/photos")
