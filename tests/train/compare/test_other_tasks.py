"""Runs without one class per photo are refused by name."""

import shutil

import pytest
from in_process import run_command


def test_runs_of_other_tasks_are_refused_by_name(task_run, tmp_path):
    name, _, run = task_run
    other, page = shutil.copytree(run, tmp_path / "other"), tmp_path / "compare.html"
    with pytest.raises(SystemExit, match=f"is a run of --task={name}, and this takes"):
        run_command("compare", run, other, f"--output={page}")
    assert not page.exists()
