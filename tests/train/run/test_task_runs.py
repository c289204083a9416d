"""Runs of the tasks beside classes: what they leave, and that they go on alike."""

import csv
import shutil

import keras
import labelled_photos
import numpy as np
import pytest
import same_runs
from labelled_photos import task_of

from train.models.run_directory import RunDirectory
from train.run import training
from zoo.network.head import sigmoid
from zoo.photos import prepare

pytestmark = pytest.mark.usefixtures("empty_figures")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def outputs_of(run, dataset, rows):
    """Returns what a saved model answers to photos, in the order of rows."""
    model = keras.saving.load_model(run / "model.keras")
    images = np.stack([prepare(row["file"], (16, 16)) for row in rows])
    return model, keras.ops.convert_to_numpy(model(images, training=False))


def test_the_saved_model_has_the_answers_of_the_report(task_run):
    name, dataset, run = task_run
    report, rows = same_runs.report(run), rows_of(run / "answers.csv")
    model, outputs = outputs_of(run, dataset, rows)
    head = model.layers[-1]
    assert report["config"]["task"] == name
    if name == "number":
        assert (head.problem_type, head.class_names) == ("regression", ("value",))
        answers = np.array([float(row["answer"]) for row in rows])
        truth = np.array([float(row["truth"]) for row in rows])
        # In the units of the table, whose numbers are above 1,000.
        np.testing.assert_allclose(outputs[:, 0], answers, rtol=1e-5)
        error = np.abs(answers - truth).mean()
        assert report["test_mean_absolute_error"] == pytest.approx(error, rel=1e-3)
        assert error < 200
        return
    assert head.problem_type == "multi_label_classification"
    assert head.class_names == ("blue", "rare", "red")
    given = sigmoid(outputs) >= np.array(head.thresholds)
    shown = ["|".join(np.array(head.class_names)[own]) for own in given]
    assert shown == [row["given"] for row in rows]
    thresholds = [row["threshold"] for row in report["per_label"]]
    np.testing.assert_allclose(thresholds, head.thresholds)
    right = np.mean([row["labels"] == row["given"] for row in rows])
    assert report["test_accuracy"] == pytest.approx(right)
    # A photo is there with the labels of the table.
    own = {row["path"]: row for row in rows_of(run.parent / "photos" / "labels.csv")}
    for row in rows:
        values = own[row["file"].rpartition("/")[2]]
        expected = [one for one in ("blue", "rare", "red") if values[one] == "1"]
        assert row["labels"] == "|".join(expected)


def test_a_report_has_what_was_measured_and_how(task_run):
    name, dataset, run = task_run
    report = same_runs.report(run)
    metric = {"labels": "mean_average_precision", "number": "mean_absolute_error"}[name]
    ends = [report[f"test_{metric}{end}"] for end in ("_low", "", "_high")]
    assert ends == sorted(ends)
    assert report["test_examples"] + report["train_examples"] == 24 - 5
    assert report[f"validation_{metric}"] >= 0
    assert report["command"] == "keras-vit finetune ..." and len(report["verdict"]) >= 1
    page = (run / "report.html").read_text("utf-8")
    assert (run / "report.md").exists() and report["verdict"][0][:20] in page
    assert RunDirectory(run).class_names.read_text("utf-8").splitlines() == (
        ["value"] if name == "number" else ["blue", "rare", "red"]
    )


def test_a_run_that_was_stopped_goes_on_to_the_same_weights(task_run, tmp_path):
    name, dataset, run = task_run
    killed = shutil.copytree(run, tmp_path / "run")
    for path in (killed / "model.keras", killed / "report.json"):
        path.unlink()
    max(killed.glob("checkpoints/step-*.npz")).unlink()
    task = task_of(dataset, name, dropout_rate=0.1)
    # A probe would undo what was trained.
    task.begin = lambda: pytest.fail("a run that goes on begins anew")
    training.run(task, run_dir=killed)
    same_runs.assert_same_bits(run, killed)
    models = [keras.saving.load_model(one / "model.keras") for one in (run, killed)]
    for ours, theirs in zip(*(one.get_weights() for one in models), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert models[0].layers[-1].thresholds == models[1].layers[-1].thresholds


@pytest.mark.parametrize("name", ["labels", "number"])
def test_micro_batches_compute_the_same(name, tmp_path):
    dataset = labelled_photos.table(tmp_path, name)
    left = []
    for parts in (1, 4):
        run = tmp_path / f"run{parts}"
        training.run(task_of(dataset, name, steps=2, micro_batches=parts), run_dir=run)
        left.append(same_runs.trained(run))
    for key, array in left[0].items():
        np.testing.assert_allclose(left[1][key], array, atol=2e-5, err_msg=key)
