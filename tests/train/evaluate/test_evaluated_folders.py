"""Folders and files that are evaluated whole or in part, and what a run has seen."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from evaluated import COLOURS, report_of, tiny
from in_process import run_command
from PIL import Image

from train.common.errors import RunError
from train.data import run_data, sources
from train.evaluate import evaluation, training_images
from train.models import loaded_model
from train.scoring import evaluation_data

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the input needs TensorFlow"
)


@pytest.fixture
def flat(tmp_path):
    """A flat folder of three classes, one of which has a single image."""
    rng = np.random.default_rng(1)
    for (name, colour), count in zip(COLOURS.items(), (6, 5, 1), strict=True):
        folder = tmp_path / "flat" / name
        folder.mkdir(parents=True)
        for index in range(count):
            noise = rng.integers(-20, 20, (20, 20, 3))
            image = Image.fromarray((noise + colour).astype("uint8"))
            image.save(folder / f"{index}.png")
    return tmp_path / "flat"


def named_model(folder, names, seed=0):
    """The path of a model in a folder of its own, with class names beside it."""
    folder.mkdir()
    tiny(len(names), seed).save(folder / "model.keras")
    (folder / "class_names.txt").write_text("".join(f"{name}\n" for name in names))
    return folder / "model.keras"


def answers(model, split):
    """The answers to the images of a split in its order, and its labels."""
    records, labels = zip(*split.records(), strict=True)
    images = [tf.image.resize(split.decode(one), (32, 32)) for one in records]
    logits = keras.models.load_model(model)(np.stack(images) / 127.5 - 1).numpy()
    return logits, np.array(labels)


def test_a_folder_behind_the_model_is_evaluated_whole(
    flat, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    model = named_model(tmp_path / "own", COLOURS)
    run_command("evaluate", model, "flat/")
    page = pathlib.Path("runs/evaluations/model-flat-all/report.md")
    out = capsys.readouterr().out
    assert f"on all 12 images of flat, report {page.with_suffix('.html')}" in out
    found = report_of(page.parent)
    assert found["all_examples"] == 12 and found["images"] == "all 12 images of flat"
    assert [row["examples"] for row in found["per_class"]] == [6, 5, 1]
    logits, labels = answers(model, sources.load("flat", validation_fraction=None).all)
    assert labels.tolist() == [0] * 1 + [1] * 6 + [2] * 5  # Red_Hot, blue, green
    guesses = logits.argmax(axis=1)
    assert found["all_accuracy"] == np.mean(guesses == np.array([2, 0, 1])[labels])
    assert "on all 12 examples" in page.read_text()
    assert "Evaluated on all 12 images of flat." in page.read_text()
    # Divided, its class with one image has none for the test.
    with pytest.raises(SystemExit, match="Red_Hot has one image"):
        run_command("evaluate", model, "--dataset=flat/")


def test_parts_and_the_whole(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, before = named_model(tmp_path / "own", COLOURS), None
    for arguments, images in (
        (["photos"], "all 24 images of photos"),
        (["photos", "--split=test"], "the test part, 15 of 24 images of photos"),
        (["--dataset=photos/"], "the test part, 15 of 24 images of photos"),
        (["photos/test"], "all 15 images of photos/test"),
        (["photos/test", "--batch_size=9"], "all 15 images of photos/test"),
        (["digits", "--split=train"], None),
    ):
        if images is None:
            with pytest.raises(SystemExit, match="10 of the data set's 10 classes"):
                run_command("evaluate", model, *arguments)
            continue
        run_command("evaluate", model, *arguments, "--out_dir=out")
        told = capsys.readouterr().out
        assert f" on {images}, report out" in told
        replaced = f"out has the report of {model} on {before}, which is replaced.\n"
        assert (replaced in told) == (before not in (None, images))
        before = images
        assert report_of(tmp_path / "out")["images"] == images


def test_a_model_of_more_classes_than_the_data_set(flat, tmp_path):
    names = ["ant", *COLOURS, "bee", "cow", "dog", "emu"]
    model = named_model(tmp_path / "own", names, seed=3)
    found = evaluation.evaluate(
        str(model), dataset=str(flat), split="all", out_dir=tmp_path / "out"
    )
    logits, labels = answers(
        model, sources.load(str(flat), validation_fraction=None).all
    )
    places = np.array([3, 1, 2])[labels]
    guesses, among = logits.argmax(axis=1), 1 + logits[:, 1:4].argmax(axis=1)
    assert found["all_accuracy"] == np.mean(guesses == places)
    assert found["all_accuracy_among_data_classes"] == np.mean(among == places)
    assert found["all_data_classes"] == 3
    outside = (guesses < 1) | (guesses > 3)
    assert outside.sum() > 0
    others = report_of(tmp_path / "out")["other_classes"]
    assert others["predictions"] == outside.sum()
    assert sum(row["predictions"] for row in others["most"]) == outside.sum()
    page = (tmp_path / "out" / "report.md").read_text()
    assert "Of the model's 8 classes the data set has 3." in page


def trained_on(folder, tmp_path, names=tuple(COLOURS), fraction=0.0):
    """A run that looks as if it was trained on a folder."""
    run = tmp_path / "run"
    named_model(run, names)
    config = {"dataset": str(folder), "validation_fraction": fraction}
    (run / "config.json").write_text(json.dumps(config))
    source = sources.load(str(folder), validation_fraction=fraction)
    (run / "data.json").write_text(json.dumps(run_data.facts_of(source)))
    return run


def test_images_of_the_training_are_named(photos, tmp_path):
    run = trained_on(photos, tmp_path)
    logits, labels = answers(
        run / "model.keras", sources.load(str(photos), validation_fraction=None).all
    )
    places = np.array([2, 0, 1])[labels]
    paths = sources.load(str(photos), validation_fraction=None).all.arrays[0]
    mask = np.array(["/train/" in path for path in paths])
    hits = logits.argmax(axis=1) == places
    found = evaluation.evaluate(
        str(run), dataset=str(photos), split="all", out_dir=tmp_path / "out"
    )
    assert found["all_examples_in_training"] == 9
    assert found["all_accuracy_in_training"] == hits[mask].mean()
    assert found["all_accuracy_not_in_training"] == hits[~mask].mean()
    assert "on 9 of these 24 images" in (tmp_path / "out" / "report.md").read_text()
    # Under another name, too; images of the test were not in the training.
    for part, note in (("train", "on all of these images"), ("test", None)):
        found = evaluation.evaluate(
            str(run), dataset=str(photos / part), split="all", out_dir=tmp_path / part
        )
        told = [text for text in found["notes"] if "trained on" in text]
        assert bool(told) == (note is not None) and (not told or note in told[0])


def test_a_folder_that_changed_since_the_training(photos, tmp_path):
    run = trained_on(photos, tmp_path)

    def warnings():
        found = evaluation.evaluate(str(run), out_dir=tmp_path / "out")
        return [note for note in found["notes"] if note.startswith("Warning")]

    assert warnings() == []
    shutil.copy(photos / "train/blue/0.png", photos / "train/blue/new.png")
    [warning] = warnings()
    assert "training images 9 (now 10), the names of the files" in warning
    (photos / "train/blue/new.png").unlink()
    (photos / "test/blue/0.png").rename(photos / "test/blue/renamed.png")
    [warning] = warnings()
    assert "(the names of the files)" in warning


def test_training_data_that_are_gone(photos, flat, tmp_path):
    run = trained_on(photos, tmp_path)
    shutil.rmtree(photos)
    config = {"dataset": f"{photos}/", "validation_fraction": 0.0}
    (run / "config.json").write_text(json.dumps(config))
    found = evaluation.evaluate(
        str(run), dataset=str(flat), split="all", out_dir=tmp_path / "out"
    )
    assert "the model was trained on is not known: there is no" in found["notes"][-1]
    assert not (tmp_path / "out" / "label_errors.csv").exists()


def test_a_folder_of_the_same_name_is_not_that_of_the_training(
    photos, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = trained_on("photos", tmp_path)
    here, other = run.resolve(), tmp_path / "other"
    shutil.copytree(photos, other / "photos")
    for folder in (tmp_path, other):
        monkeypatch.chdir(folder)
        loaded = loaded_model.load(str(here))
        for dataset, is_same in ((photos, True), (other / "photos", False)):
            assert evaluation_data.is_of_run(loaded, str(dataset)) == is_same
        is_same = folder == tmp_path
        assert evaluation_data.is_of_run(loaded, "photos") == is_same
        source, part = evaluation_data.load_split(loaded, "photos", None, False, "all")
        mask, warnings = training_images.in_training(
            loaded, source, part, "all", None, False
        )
        assert np.sum(mask) == 9 * is_same and warnings == []
    # A run that was moved with its photos has them where they were from it.
    photos.rename(tmp_path / "gone")
    assert evaluation_data.is_of_run(loaded_model.load(str(here)), "photos")


def test_reports_of_folders_with_one_name_are_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("tiny-photos-all", "report.json")
    folder, source = evaluation_data.report_folder(
        "m/x", None, *names, data="/a/photos"
    )
    written = {"source": source, "data": "/a/photos"}
    (folder / "report.json").write_text(json.dumps(written))
    evaluation_data.report_folder("m/x", None, *names, data="/a/photos")
    with pytest.raises(RunError, match="another data set, /a/photos: pass --out_dir"):
        evaluation_data.report_folder("m/x", None, *names, data="/b/photos")
