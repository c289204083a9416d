"""Runs without one class per photo are not published: weights alone lose thresholds."""

import pytest
from in_process import run_command


def test_runs_of_other_tasks_are_refused_by_name(task_run, tmp_path):
    name, _, run = task_run
    with pytest.raises(SystemExit, match=f"is a run of --task={name}, and this takes"):
        run_command("publish", run, f"--to={tmp_path / 'registry'}")
    assert not (tmp_path / "registry").exists()
