"""Folders and files that are evaluated whole or in part, and what a run has seen."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from copied_photos import COPIES, encoded, photo
from evaluated import COLOURS, report_of, tiny
from in_process import run_command
from PIL import Image

from train.data import copies, run_data, sources
from train.data.options import DEFAULTS
from train.data.photo_names import relative
from train.evaluate import evaluation, training_images
from train.models import loaded_model
from train.scoring import evaluation_data

# The places of Red_Hot, blue and green, as folders are sorted, among COLOURS.
PLACES = np.array([2, 0, 1])


@pytest.fixture
def flat(photos):
    """A flat folder of three classes, one of which has a single image."""
    for number in range(1, 5):
        (photos / "test" / "Red_Hot" / f"{number}.png").unlink()
    return (photos / "test").rename(photos.parent / "flat")


def named(folder, names=tuple(COLOURS), seed=0):
    """Makes a model in a folder with class names; returns it and its file."""
    folder.mkdir()
    model, file = tiny(len(names), seed), folder / "model.keras"
    model.save(file)
    (folder / "class_names.txt").write_text("".join(f"{name}\n" for name in names))
    return model, file


def trained_on(data, bits=None):
    """Makes a run that looks as if it was trained on a folder, beside it."""
    model, file = named(pathlib.Path(data).parent / "run")
    settings = {"dataset": str(data), "validation_fraction": 0.0, "bits": bits}
    file.with_name("config.json").write_text(json.dumps(settings))
    source = sources.load(str(data), validation_fraction=0.0, bits=bits)
    file.with_name("data.json").write_text(json.dumps(run_data.facts_of(source)))
    return model, file.parent


def evaluated(model, folder, **options):
    """Evaluates all images of a folder; returns the results and those of a report."""
    out = folder.parent / "out"
    options = {"dataset": str(folder), "split": "all", "out_dir": out} | options
    return evaluation.evaluate(str(model), **options), report_of(options["out_dir"])


def answers(model, folder):
    """The logits, labels and paths of all images of a folder, in their order."""
    split = sources.load(str(folder), validation_fraction=None).all
    records, labels = zip(*split.records(), strict=True)
    images = [tf.image.resize(split.decode(one), (32, 32)) for one in records]
    logits = model(np.stack(images) / 127.5 - 1).numpy()
    return logits, np.array(labels), split.arrays[0]


def test_a_folder_is_evaluated_whole(flat, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model, file = named(tmp_path / "own")
    run_command("evaluate", file, "flat/")
    page = pathlib.Path("runs/evaluations/model-flat-all/report.md")
    told = capsys.readouterr().out
    assert "on all 11 images of flat\n" in told
    assert f"\nreport {page.with_suffix('.html')}\n" in told
    found = report_of(page.parent)
    assert found["all_examples"] == 11 and found["images"] == "all 11 images of flat"
    assert [row["examples"] for row in found["per_class"]] == [5, 5, 1]
    logits, labels, _ = answers(model, "flat")
    assert labels.tolist() == [0] * 1 + [1] * 5 + [2] * 5
    assert found["all_accuracy"] == np.mean(logits.argmax(axis=1) == PLACES[labels])
    text = page.read_text()
    assert "on all 11 examples" in text and "Evaluated on all 11 images of flat" in text
    # Divided, its class with one image has none for the test.
    with pytest.raises(SystemExit, match="'Red_Hot' has one image"):
        run_command("evaluate", file, "--dataset=flat/")


def test_parts_and_the_whole(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, before = named(tmp_path / "own")[1], None
    for arguments, images in (
        (["photos", "--split=test"], "the test part, 15 of 24 images of photos"),
        (["--dataset=photos/"], "the test part, 15 of 24 images of photos"),
        (["photos/test"], "all 15 images of photos/test"),
    ):
        run_command("evaluate", file, *arguments, "--out_dir=out")
        told = capsys.readouterr().out
        assert f" on {images}\n" in told and "\nreport out" in told
        replaced = f"out has the report of {file} on {before}, which is replaced.\n"
        assert (replaced in told) == (before not in (None, images))
        before = images
        assert report_of(tmp_path / "out")["images"] == images


def test_a_model_of_more_classes_than_the_data_set(flat, tmp_path):
    """They are matched by name, however it is written."""
    names = ["ant", "Blue", "green", "red-hot", "bee", "cow", "dog", "emu"]
    model, file = named(tmp_path / "own", names, seed=3)
    results, report = evaluated(file, flat)
    logits, labels, _ = answers(model, flat)
    places = 1 + PLACES[labels]
    guesses, among = logits.argmax(axis=1), 1 + logits[:, 1:4].argmax(axis=1)
    assert results["all_accuracy"] == np.mean(guesses == places)
    assert results["all_accuracy_among_data_classes"] == np.mean(among == places)
    assert results["all_data_classes"] == 3
    rows = [(row["name"], row["examples"]) for row in report["per_class"]]
    assert rows == list(zip(names, (0, 5, 5, 1, 0, 0, 0, 0), strict=True))
    assert report["absent_classes"] == ["ant", *names[4:]]
    outside = (guesses < 1) | (guesses > 3)
    others = report["other_classes"]
    assert others["predictions"] == outside.sum() > 0
    assert sum(row["predictions"] for row in others["most"]) == outside.sum()
    page = pathlib.Path(results["report"]).read_text()
    assert "Of the model's 8 classes the data set has 3." in page


def test_images_of_the_training_are_named(photos, tmp_path):
    model, run = trained_on(photos)
    logits, labels, paths = answers(model, photos)
    hits = logits.argmax(axis=1) == PLACES[labels]
    mask = np.array(["/train/" in path for path in paths])
    found, _ = evaluated(run, photos)
    assert found["all_examples_in_training"] == 9
    assert found["all_accuracy_in_training"] == hits[mask].mean()
    assert found["all_accuracy_not_in_training"] == hits[~mask].mean()
    assert "on 9 of these 24 images" in pathlib.Path(found["report"]).read_text()
    # Under another name, too; images of the test were not in the training.
    for part, note in (("train", ["The model was trained on all"]), ("test", [])):
        found, _ = evaluated(run, photos / part, out_dir=tmp_path / part)
        told = [text for text in found["notes"] if "trained on" in text]
        assert [text[:28] for text in told] == note


def seen(run, dataset, split="all"):
    """Which images of a data set a run has been trained on, and warnings."""
    loaded = loaded_model.load(str(run))
    source, part = evaluation_data.load_split(loaded, dataset, split)
    return training_images.in_training(loaded, source, part, split, DEFAULTS)


def test_photos_of_the_training_that_were_saved_otherwise_are_known(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path / "cache"))
    seeds = iter(range(100))
    for place, count in (("own/train", 4), ("own/test", 1), ("other", 2)):
        for name in COLOURS:
            (tmp_path / place / name).mkdir(parents=True)
            for number in range(count):
                path = tmp_path / place / name / f"{number}.jpg"
                path.write_bytes(encoded(photo(next(seeds))))
    _, run = trained_on(tmp_path / "own")
    expected = set()
    for number, (kind, copy) in enumerate(COPIES.items()):
        path = tmp_path / "other/green" / f"{kind}.jpg"
        path.write_bytes(copy(photo(number)))
        expected.add(f"green/{kind}.jpg")
    same = (tmp_path / "own/train/blue/0.jpg").read_bytes()
    (tmp_path / "other/green/same.jpg").write_bytes(same)
    # It has learned nothing of photos of the run's test.
    tested = (tmp_path / "own/test/blue/0.jpg").read_bytes()
    (tmp_path / "other/blue/tested.jpg").write_bytes(tested)

    def known():
        mask, [told] = seen(run, str(tmp_path / "other"))
        split = sources.load(str(tmp_path / "other"), validation_fraction=None).all
        names = relative(np.array(split.names())[mask], str(tmp_path / "other"))
        assert "training image" in told and min(names) in told
        return {*names}

    assert known() == expected | {"green/same.jpg"} and len(expected) == 8
    monkeypatch.setattr(copies, "MOST_DECODED", 20)
    assert known() == {"green/same.jpg"}


def test_a_folder_that_changed_since_the_training(photos):
    _, run = trained_on(photos)
    assert seen(run, None, "test")[1] == []
    shutil.copy(photos / "train/blue/0.png", photos / "train/blue/new.png")
    [warning] = evaluated(run, photos, dataset=None, split="test")[0]["notes"][1:]
    assert warning.startswith("Warning")
    assert "training images 9 (now 10), the names of the files" in warning
    (photos / "train/blue/new.png").unlink()
    (photos / "test/blue/0.png").rename(photos / "test/blue/renamed.png")
    [warning] = seen(run, None, "test")[1]
    assert "(the names of the files)" in warning


def test_photos_of_few_bits_are_divided_as_in_the_training(tmp_path):
    folder = tmp_path / "dark"
    for name in COLOURS:
        (folder / name).mkdir(parents=True)
        for seed in range(6):
            image = photo(seed + 9 * list(COLOURS).index(name), (64, 64)).convert("L")
            for copy in (0, 1):
                values = np.asarray(image).astype("uint16") * 16 + 8 * copy
                Image.fromarray(values).save(folder / name / f"{seed}-{copy}.png")
    _, run = trained_on(folder, bits=12)
    source = sources.load(str(folder), bits=12)
    mask, warnings = seen(run, None)
    names = np.array(sources.load(str(folder), validation_fraction=None).all.names())
    assert {*names[mask]} == {*source.train.names()} and warnings == []


def test_training_data_that_are_gone(photos):
    _, run = trained_on(photos)
    flat = (photos / "test").rename(photos.parent / "flat")
    shutil.rmtree(photos)
    settings = {"dataset": f"{photos}/", "validation_fraction": 0.0}
    (run / "config.json").write_text(json.dumps(settings))
    found, _ = evaluated(run, flat)
    assert "the model was trained on is not known: there is no" in found["notes"][-1]
    assert not pathlib.Path(found["report"]).with_name("label_errors.csv").exists()


def test_a_folder_of_the_same_name_is_another(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, run = trained_on("photos")
    run = run.resolve()
    other = tmp_path / "other"
    shutil.copytree(photos, other / "photos")
    for folder in (tmp_path, other):
        monkeypatch.chdir(folder)
        loaded, is_same = loaded_model.load(str(run)), folder == tmp_path
        assert evaluation_data.is_of_run(loaded, str(photos))
        assert not evaluation_data.is_of_run(loaded, str(other / "photos"))
        assert evaluation_data.is_of_run(loaded, "photos") == is_same
        mask, told = seen(run, "photos")
        # Copies of the photos are known by their content.
        start = "9 of these files are copies of training images: train/Red_Hot/0.png,"
        assert np.sum(mask) == 9 and [text[: len(start)] for text in told] == (
            [] if is_same else [start]
        )
    (other / "photos/train/blue/0.png").write_bytes(b"another of the same name")
    assert np.sum(seen(run, "photos")[0]) == 8
    # A run that was moved with its photos has them where they were from it.
    photos.rename(tmp_path / "gone")
    assert evaluation_data.is_of_run(loaded_model.load(str(run)), "photos")
