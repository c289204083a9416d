"""Runs of several labels and of a number, exported on the images of their tables."""

import json

import numpy as np
import pytest

from train.export import run as export_run
from train.models.exports import exported_model

pytestmark = pytest.mark.usefixtures("in_this_process")


def test_runs_of_tasks_are_exported(task_run, tmp_path):
    name, _, run = task_run
    out = tmp_path / "out"
    results = export_run.export(str(run), ["onnx"], out)
    [_, row] = results["exports"]
    assert row["largest_error"] < 1e-4 * max(results["largest_answer"], 1)
    assert "accuracy" not in row and results["images"]["count"] == 4
    found = exported_model.load(out / "model.onnx")
    report = json.loads((run / "report.json").read_text())
    images = np.zeros((1, 16, 16, 3), "float32")
    if name == "number":
        assert (found.problem_type, found.class_names) == ("regression", ("value",))
        # In the units of the table.
        assert 900 < found.run(images).item() < 1400
        return
    assert found.class_names == ("blue", "rare", "red")
    thresholds = [label["threshold"] for label in report["per_label"]]
    np.testing.assert_allclose(found.thresholds, thresholds)
