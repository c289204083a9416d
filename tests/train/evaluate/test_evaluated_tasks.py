"""Runs of several labels and of a number, evaluated on their own and other tables."""

import csv
import pathlib

import keras
import numpy as np
import pytest
from evaluated import report_of, tiny
from in_process import run_command
from labelled_photos import photos, write
from sklearn.metrics import average_precision_score

from train.common.errors import RunError
from train.evaluate.evaluation import evaluate
from zoo.photos import prepare


def answers_in(folder):
    with (folder / "answers.csv").open(newline="", encoding="utf-8") as file:
        return {pathlib.Path(row["file"]).name: row for row in csv.DictReader(file)}


def test_the_test_of_a_run_is_that_of_its_report(task_run, tmp_path):
    name, _, run = task_run
    results = evaluate(str(run), out_dir=tmp_path / "out")
    before, found = report_of(run), report_of(tmp_path / "out")
    shared = [key for key in found if key.startswith("test_") and key in before]
    metric = {"labels": "test_macro_f1", "number": "test_mean_absolute_error"}[name]
    assert metric in shared and len(shared) >= 5
    for key in shared:
        if key == "test_absolute_error_of_median":
            # An evaluation knows no photos to train on.
            continue
        assert found[key] == pytest.approx(before[key], rel=1e-4, abs=1e-4), key
    ours, theirs = answers_in(run), answers_in(tmp_path / "out")
    assert ours.keys() == theirs.keys() and len(ours) == 4
    if name == "labels":
        assert ours == theirs
        assert found["per_label"][0]["threshold"] == before["per_label"][0]["threshold"]
    assert results["page"].endswith("report.html")


def test_labels_of_another_table_are_found_by_their_names(task_run, tmp_path):
    name, dataset, run = task_run
    if name != "labels":
        pytest.skip("numbers have no names")
    folder = pathlib.Path(dataset).parent
    _, labels, _ = photos(tmp_path / "same")
    order = ("red", "unknown", "blue")
    rows = [
        (folder / f"{place:02}.png", int("red" in own), int(place == 5))
        + (int("blue" in own),)
        for place, own in enumerate(labels)
    ]
    # The model has no label "unknown", the table has no "rare".
    table = write(tmp_path / "other.csv", ("path", *order), rows)
    with pytest.raises(RunError, match="unknown"):
        evaluate(str(run), dataset=table, split="all", out_dir=tmp_path / "no")
    fewer = write(
        tmp_path / "fewer.csv",
        ("path", "red", "blue"),
        [(row[0], row[1], row[3]) for row in rows],
    )
    model = keras.saving.load_model(run / "model.keras")
    model.layers[-1].thresholds = (0.2, 0.4, 0.5)
    model.save(tmp_path / "other.keras")
    for name, own in (("whole", dataset), ("fewer", fewer)):
        evaluate(
            str(tmp_path / "other.keras"),
            dataset=own,
            split="all",
            out_dir=tmp_path / name,
        )
    whole, found = report_of(tmp_path / "whole"), report_of(tmp_path / "fewer")
    rows = {row["name"]: row for row in whole["per_label"]}
    thresholds = {name: row["threshold"] for name, row in rows.items()}
    assert thresholds == {"blue": 0.2, "rare": 0.4, "red": 0.5}
    assert {row["name"]: row for row in found["per_label"]} == {
        key: rows[key] for key in ("blue", "red")
    }
    assert "The data set lacks 1 label of the model." in found["notes"]


def test_a_table_of_other_labels_or_a_folder_is_refused(task_run, tmp_path):
    name, dataset, run = task_run
    folder = pathlib.Path(dataset).parent
    with pytest.raises(RunError, match=f"--task={name} reads labels from a table"):
        evaluate(str(run), dataset=str(folder), out_dir=tmp_path / "out")
    table = write(
        tmp_path / "words.csv",
        ("path", "label"),
        [(folder / f"{place:02}.png", "ab"[place % 2]) for place in range(8)],
    )
    with pytest.raises(RunError):
        evaluate(str(run), dataset=table, split="all", out_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_without_thresholds_gives_labels_from_a_half_on(tmp_path):
    names, labels, _ = photos(tmp_path, 12)
    rows = [
        (name, "|".join(own) or "none") for name, own in zip(names, labels, strict=True)
    ]
    table = write(tmp_path / "labels.csv", ("path", "label"), rows)
    model = tiny(4, class_names=("red", "blue", "rare", "none"))
    model.layers[-1].problem_type = "multi_label_classification"
    model.save(tmp_path / "other.keras")
    evaluate(
        str(tmp_path / "other.keras"),
        dataset=table,
        split="all",
        out_dir=tmp_path / "o",
    )
    found = report_of(tmp_path / "o")
    assert {row["threshold"] for row in found["per_label"]} == {0.5}
    # Its labels are in another order than those of the table.
    images = np.stack([prepare(tmp_path / name, (32, 32)) for name in names])
    outputs = keras.ops.convert_to_numpy(model(images))
    precisions = {row["name"]: row["average_precision"] for row in found["per_label"]}
    assert set(precisions) == {"red", "blue", "rare", "none"}
    for place, label in enumerate(("red", "blue", "rare", "none")):
        truth = [label in (own or ["none"]) for own in labels]
        expected = average_precision_score(truth, outputs[:, place])
        assert precisions[label] == pytest.approx(expected, abs=1e-6), label
    assert "The model has no thresholds: labels count from a half on." in found["notes"]


def test_a_model_of_several_numbers_is_refused(task_run, tmp_path):
    name, dataset, _ = task_run
    if name != "number":
        pytest.skip("labels are several")
    model = tiny(2)
    model.layers[-1].problem_type = "regression"
    model.save(tmp_path / "two.keras")
    with pytest.raises(RunError, match="with 2 numbers, and a table of photos has one"):
        evaluate(str(tmp_path / "two.keras"), dataset=dataset, out_dir=tmp_path / "out")


def test_the_command_says_what_was_found(task_run, tmp_path, capsys):
    name, dataset, run = task_run
    run_command("evaluate", run, dataset, f"--out_dir={tmp_path / 'out'}")
    assert report_of(tmp_path / "out")["all_examples"] == 24
    told = capsys.readouterr().out
    metric = {"labels": "Mean average precision", "number": "Mean absolute error"}[name]
    assert metric in told and str(tmp_path / "out") in told
