"""Models of several labels and of a number are explained, each with what it answers."""

import json

from in_process import run_command


def test_runs_of_tasks_are_explained(task_run, tmp_path, monkeypatch):
    name, dataset, run = task_run
    out = tmp_path / "out"
    photo = run.parent / "photos" / "00.png"
    run_command("explain", run, photo, f"--out={out}")
    found = json.loads((out / "report.json").read_text())
    [one] = found["photos"]
    if name == "labels":
        assert {label for _, label, _ in one["predictions"]} == {"blue", "rare", "red"}
    else:
        assert not one["predictions"]
        assert "answers with numbers" in (out / "report.html").read_text("utf-8")
