"""Answers of models of several labels and of a number: all labels that are given."""

import collections
import csv
import itertools
import json
import pathlib
import pkgutil
import re

import keras
import numpy as np
import pytest
from in_process import run_command
from photo_folder import paths, prepared, rows_of, text_of
from scipy.special import expit
from small_models import made

from keras_vit.layers import ClassificationHead
from train.common.errors import RunError
from train.models.exports import exported_model
from train.predict import in_parts, part_work
from train.predict.photo_predictor import PhotoPredictor
from train.predict.prediction import predict

NAMES = ("=sum", "été", "white, shark", "4", "5")
SEVERAL = "multi_label_classification"


@pytest.fixture
def model(folder):
    """A model of five labels, which some of the photos have, and none has the last."""
    model = made()
    head = model.layers[-1]
    head.class_names, head.problem_type = NAMES, SEVERAL
    head.kernel.assign(20 * head.kernel)
    outputs = keras.ops.convert_to_numpy(model(prepared(32, 48)))
    # Photos of noise are much alike.
    head.bias.assign(head.bias - outputs.mean(axis=0))
    chances = np.sort(expit(outputs - outputs.mean(axis=0)), axis=0)
    places = [1, 3, 5, 7]
    halves = [chances[at - 1 : at + 1, n].mean() for n, at in enumerate(places)]
    head.thresholds = (*halves, 1.0)
    return model


@pytest.fixture
def several(model, folder):
    """Its file."""
    model.save(folder / "model.keras")
    return "model.keras"


@pytest.fixture
def given(model, folder):
    """The labels of each photo that reach their thresholds, the most probable first."""
    thresholds = model.layers[-1].thresholds
    outputs = keras.ops.convert_to_numpy(model(prepared(32, 48)))
    found = {}
    for photo, chances in zip(paths(), expit(outputs), strict=True):
        pairs = sorted(zip(-chances, NAMES, thresholds, strict=True))
        found[photo] = [name for minus, name, least in pairs if -minus >= least]
    assert len({*map(len, found.values())}) > 1
    return found


def rows_of_csv(*files):
    rows = []
    for file in files:
        with open(file, newline="", encoding="utf-8") as text:
            rows += csv.DictReader(text)
    return rows


def texts(given):
    """Returns the labels as tables have them: a quote keeps = from being computed."""
    joined = {photo: "|".join(labels) for photo, labels in given.items()}
    return {key: "'" * own.startswith("=") + own for key, own in joined.items()}


def test_files_have_all_labels_that_reach_their_thresholds(several, folder, given):
    for out in ("a.csv", "a.jsonl"):
        found = predict(several, ["photos"], out=out)
    rows = rows_of_csv("a.csv")
    assert list(rows[0])[:4] == ["file", "labels", "label", "probability"]
    assert {row["file"]: row["labels"] for row in rows} == texts(given)
    objects = map(json.loads, pathlib.Path("a.jsonl").read_text("utf-8").splitlines())
    assert {one["file"]: one["labels"] for one in objects} == given
    counts = collections.Counter(itertools.chain.from_iterable(given.values()))
    assert found.counts == counts


def test_parts_have_the_same_labels(several, folder, given, monkeypatch):
    for module in (in_parts, part_work):
        monkeypatch.setattr(module, "_PHOTOS", 4)
    for kind in ("csv", "parquet"):
        found = in_parts.predict(
            several, ["photos"], kind, parts=kind, show_progress=False
        )
        assert found.answered == 10
    rows = rows_of_csv(*pathlib.Path("csv").glob("part-*.csv"))
    assert {row["file"]: row["labels"] for row in rows} == texts(given)
    joined = {photo: "|".join(labels) for photo, labels in given.items()}
    assert {row["file"]: row["labels"] for row in rows_of("parquet")} == joined
    predictor = PhotoPredictor(several)
    assert [row["labels"] for row in predictor(paths())] == [*joined.values()]


@pytest.mark.parametrize("out", ["a.csv", "a.jsonl"])
def test_files_of_labels_are_gone_on_with_and_shown_whole(out, several, folder, given):
    predict(several, paths(0, 1, 2), out=out)
    before = text_of(out)
    found = predict(several, ["photos"], out=out, resume=True, gallery="page.html")
    assert (found.earlier, found.answered) == (3, 7)
    assert text_of(out).startswith(before)
    if out.endswith(".csv"):
        assert {row["file"]: row["labels"] for row in rows_of_csv(out)} == texts(given)
        return
    objects = map(json.loads, text_of(out).splitlines())
    assert {one["file"]: one["labels"] for one in objects} == given


def test_other_thresholds_are_not_gone_on_with(several, model, folder):
    predict(several, paths(0), out="a.csv")
    head = model.layers[-1]
    head.thresholds = head.thresholds[::-1]
    model.save("other.keras")
    with pytest.raises(RunError, match="thresholds"):
        predict("other.keras", ["photos"], out="a.csv", resume=True)


def test_the_terminal_shows_all_labels_with_their_probabilities(
    several, folder, given, capsys
):
    with pytest.raises(SystemExit, match="^0$"):
        run_command("predict", several, *paths())
    told = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    for photo, labels in given.items():
        assert re.sub(r" [0-9.]+%", "", told[photo]) == (", ".join(labels) or "(none)")


@pytest.mark.parametrize("name", ["onnx", "saved_model"])
def test_exports_give_the_same_labels(name, several, model, folder, given):
    formats = pytest.importorskip("train.export.formats").FORMATS
    row, path = formats[name], pathlib.Path(formats[name].file)
    path.parent.mkdir(exist_ok=True)
    pkgutil.resolve_name(row.runtime.writer)(model, path, class_names=NAMES)
    found = exported_model.load(path)
    assert found.problem_type == SEVERAL and found.class_names == NAMES
    assert found.thresholds == model.layers[-1].thresholds
    predict(str(path), ["photos"], out="a.jsonl")
    objects = map(json.loads, text_of("a.jsonl").splitlines())
    assert {one["file"]: one["labels"] for one in objects} == given


def test_thresholds_are_one_probability_per_class(model):
    head = ClassificationHead(3)
    for wrong in ((0.5, 1.5, 0.5), (0.5, float("nan"), 0.5), "abc", (None,) * 3, 3):
        with pytest.raises(ValueError, match="thresholds must be probabilities"):
            head.thresholds = wrong
    with pytest.raises(ValueError, match="has 2 numbers for 3 classes"):
        head.thresholds = (0.5, 0.5)
    again = ClassificationHead.from_config(model.layers[-1].get_config())
    assert again.thresholds == model.layers[-1].thresholds
    # Other classes have none of those.
    assert model.rebuild(classes=4).layers[-1].thresholds == ()
    assert (
        model.rebuild(image_size=64).layers[-1].thresholds
        == model.layers[-1].thresholds
    )


def test_runs_of_tasks_answer_as_their_reports(task_run, tmp_path):
    name, _, run = task_run
    with (run / "answers.csv").open(newline="", encoding="utf-8") as file:
        expected = {row["file"]: row for row in csv.DictReader(file)}
    predict(str(run), [*expected], out=tmp_path / "a.csv")
    rows = rows_of_csv(tmp_path / "a.csv")
    assert len(rows) == len(expected) == 4
    for row in rows:
        path = (tmp_path / row["file"]).resolve()
        [own] = [one for key, one in expected.items() if path.samefile(key)]
        if name == "labels":
            assert {*row["labels"].split("|")} == {*own["given"].split("|")}
        else:
            assert row["label"] == "value" and "labels" not in row
            assert float(row["value"]) == pytest.approx(float(own["answer"]), rel=1e-5)
