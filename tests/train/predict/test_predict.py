"""Predictions of a stub: files, folders, interruptions, and what is refused."""

import collections
import csv
import dataclasses
import filecmp
import os
import pathlib

import numpy as np
import pytest
from photo_folder import PROBABILITIES, by_mean, paths, prepared, text_of

from train.common.errors import RunError
from train.predict import classifiers
from train.predict.prediction import predict
from zoo.network.head import Answers
from zoo.photos import prepare


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_all_that_comes_out(folder, stub):
    stub()
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
    probabilities, means = by_mean(prepared(8, 8).astype("float64"))
    assert [answer.file for answer in answers] == paths()
    names = np.array(["red", "green", "blue"])
    for answer, row in zip(answers, probabilities, strict=True):
        order = np.argsort(-row)
        assert [name for name, _ in answer.top] == list(names[order])
        np.testing.assert_allclose([p for _, p in answer.top], row[order], rtol=1e-4)
    rows = rows_of("out.csv")
    assert [(row["file"], row["label"]) for row in rows] == [
        (answer.file, answer.top[0][0]) for answer in answers
    ]
    with np.load("x.npz") as arrays:
        np.testing.assert_allclose(arrays["features"], means, rtol=1e-5)
        assert arrays["files"].tolist() == paths()
    for row in rows:
        copy = os.path.join("sorted", row["label"], os.path.basename(row["file"]))
        assert filecmp.cmp(copy, row["file"], shallow=False)
    assert "10 photos, answered by stub" in text_of("page.html")
    assert (found.answered, found.unreadable) == (10, 1)
    assert found.counts == collections.Counter(row["label"] for row in rows)
    [reason] = found.reasons
    assert reason.startswith("photos/5bad.jpg cannot be read as an image")
    assert found.notes == ["a note"]
    written = {"out.csv", "out.csv.settings.json", "page.html", "sorted", "x.npz"}
    assert {*os.listdir(folder)} == written | {"photos"}


def test_features_alone(folder, stub):
    stub(lambda images: (None, by_mean(images)[1]), answers=Answers())
    found = predict("stub", ["photos"], features="x.npz")
    assert (found.answered, found.counts) == (10, {})
    _, means = by_mean(prepared(8, 8))
    np.testing.assert_allclose(np.load("x.npz")["features"], means, rtol=1e-5)
    with pytest.raises(RunError, match="has features, but no classes"):
        predict("stub", ["photos"], features="y.npz", out="out.csv")
    assert not os.path.exists("out.csv")


# Bits of photos.


def test_bits_reach_photos_and_settings(folder, stub, goldens):
    path = str(goldens / "photos" / "grey_12_bits_in_16.png")
    seen = []

    def compute(images):
        seen.append(images)
        return np.eye(3, dtype="float32")[[0]], None

    stub(compute)
    predict("stub", [path], out="bits.csv", bits=12)
    np.testing.assert_array_equal(seen[0][0], prepare(path, 8, bits=12))
    # Bits that a file says come before those of a model, and after those given.
    stub(compute, bits=12, answers=dataclasses.replace(PROBABILITIES, names=("a",) * 3))
    told = r"settings: bits 12 \(now '12 of the model'\), other class names\. "
    with pytest.raises(RunError, match=told):
        predict("stub", [path], out="bits.csv", resume=True)


# Interruptions.


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interruption_is_gone_on_with(after, folder, stub):
    stub()
    given = {"out": "out.jsonl", "features": "x.npz", "sort_into": "sorted"}
    predict("stub", ["photos"], out="whole.jsonl", features="whole.npz")
    calls = []

    def stopped(images):
        if len(calls) == after:
            raise KeyboardInterrupt
        calls.append(images)
        return by_mean(images)

    stub(stopped)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], **given)
    assert text_of("out.jsonl").count("\n") == 4 * after
    stub()
    found = predict("stub", ["photos"], resume=True, gallery="page.html", **given)
    assert found.answered == 10 - 4 * after
    assert text_of("out.jsonl") == text_of("whole.jsonl")
    with np.load("x.npz") as some, np.load("whole.npz") as whole:
        for name in ("features", "files"):
            np.testing.assert_array_equal(some[name], whole[name])
    assert len([*pathlib.Path("sorted").glob("*/*")]) == 10
    # The page has the photos of the first start, too.
    assert "10 photos, answered by stub" in text_of("page.html")
    again = predict("stub", ["photos"], resume=True, **given)
    assert (again.answered, again.unreadable) == (0, 1)
    # A folder of copies that is asked for later has all of them.
    predict("stub", ["photos"], resume=True, **given | {"sort_into": "later"})
    assert len([*pathlib.Path("later").glob("*/*")]) == 10


def test_new_photos_are_added_from_another_directory(folder, stub, monkeypatch):
    stub()
    predict("stub", paths(1, 2), out="out.csv", features="x.npz")
    monkeypatch.chdir("photos")
    seen = set()
    monkeypatch.setattr("train.predict.gallery._thumbnail", lambda p, bits: seen.add(p))
    files = {"out": "../out.csv", "features": "../x.npz", "gallery": "../page.html"}
    found = predict("stub", ["."], resume=True, **files)
    assert (found.answered, found.earlier) == (8, 2)
    # Photos of both starts are shown, and spelled as from the first directory.
    photos = {str(folder / path) for path in paths()}
    assert {os.path.realpath(path) for path in seen} == photos
    assert sorted(row["file"] for row in rows_of("../out.csv")) == paths()
    with np.load("../x.npz") as arrays:
        assert sorted(arrays["files"]) == paths()
        assert arrays["files"][:2].tolist() == paths(1, 2)


@pytest.mark.parametrize(("flag", "path"), [("out", "o/x.csv"), ("features", "x.npz")])
def test_two_at_a_time_do_not_mix(flag, path, folder, stub):
    given = {"resume": flag == "out", flag: path}

    def second(images):
        with pytest.raises(RunError, match=f"Another process is writing {path}: wait"):
            predict("stub", ["photos"], **given)
        raise KeyboardInterrupt

    stub(second)
    with pytest.raises(KeyboardInterrupt):
        predict("stub", ["photos"], **{flag: path})
    assert flag == "out" or os.listdir(folder) == ["photos"]
    stub()
    assert predict("stub", ["photos"], **given).answered == 10
    assert not [name for name in os.listdir((folder / path).parent) if ".lock" in name]


def test_many_unreadable_photos(folder, stub):
    stub()
    for number in range(30):
        open(f"photos/{number}.jpg", "w").close()
    found = predict("stub", ["photos"])
    assert (found.answered, found.unreadable, len(found.reasons)) == (10, 31, 10)
    # No photo can be read, so nothing is said of the classes.
    found = predict("stub", ["photos/*.jpg"], out="out.csv")
    assert (found.answered, found.unreadable) == (0, 31)


# Refusals.


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"out": "out.txt"}, "--out is a file NAME.csv or NAME.jsonl, got out.txt"),
        ({"features": "x.npy"}, "--features is a file NAME.npz"),
        ({"gallery": "page"}, "--gallery is a file NAME.html"),
        ({"resume": True}, "--resume goes on with the answers in --out"),
        ({"gallery": "there.html"}, "there.html exists: pass another --gallery"),
        ({"features": "there.npz"}, "there.npz exists: pass another --features"),
        ({"out": "there.csv"}, "there.csv exists: pass --resume"),
        ({"photos": ["empty"]}, "no photo in empty: give .*left out 1 file .*psd.*jpg"),
        ({"model": "photos", "photos": ["run"]}, "photos holds photos, no model: pass"),
    ],
)
def test_names_are_checked_before_the_model_is_loaded(given, told, folder, monkeypatch):
    monkeypatch.setattr(classifiers, "load", None)
    for name in ("empty", "run"):
        os.mkdir(name)
    for name in ("there.html", "there.npz", "there.csv", "empty/1.psd"):
        open(name, "w").close()
    open("run/model.keras", "w").close()
    with pytest.raises(RunError, match=told):
        predict(**{"model": "stub", "photos": ["photos"], **given})


SHAPE = r"stub gives outputs of shape .* \(4, 3\)"


@pytest.mark.parametrize(
    ("outputs", "features", "told"),
    [
        ([[np.nan, 1, 1]] * 4, None, "photos/0.png are not finite"),
        ([[0.2, 0.2, 0.2]] * 4, None, "every class the same probability"),
        (np.ones((4, 1)), None, SHAPE),
        (np.ones((1, 3)), None, SHAPE),
        (np.eye(4, 3), np.ones((4, 3, 2)), SHAPE),
        # A sigmoid may give a photo no class at all.
        ([[1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]], None, None),
    ],
)
def test_answers_that_mean_nothing_are_refused(outputs, features, told, folder, stub):
    stub(lambda images: (np.float32(outputs), features))
    given = {} if features is None else {"features": "x.npz"}
    if told is None:
        assert predict("stub", paths(0, 1, 2, 3)).answered == 4
        return
    with pytest.raises(RunError, match=told):
        predict("stub", ["photos"], **given)
