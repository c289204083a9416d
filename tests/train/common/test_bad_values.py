"""No value of any flag or setting ends a command in a traceback."""

import json
import os
import pathlib
import subprocess
import sys

import fuzzed_flags
import pytest

import keras_vit_start

ROOT = pathlib.Path(__file__).parents[3]
COMMANDS = [*keras_vit_start.COMMANDS.keys() - {"zoo"}]
# What cannot be counted or computed with.
NUMBERS = {"nan", "inf", "-inf", "1e400", "-1e400", "1" + 400 * "0", "1" + 5000 * "0"}


@pytest.fixture(scope="module", params=sorted(COMMANDS))
def outcomes(request, tmp_path_factory):
    """Returns rows of a flag or setting, its value, and what came of it."""
    folder = tmp_path_factory.mktemp("bad_values")
    (folder / "photo.jpg").touch()
    (folder / "run").mkdir()
    (folder / "run" / "model.keras").touch()
    (folder / "run" / "report.json").write_text("{}")
    model = "vit-ti16/augreg-imagenet21k"
    words = [request.param, model, "photo.jpg", "run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, fuzzed_flags.__file__, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_bad_value_is_an_error_of_at_most_two_lines(outcomes):
    assert len(outcomes) > 60
    long = [row for row in outcomes if row[2].count("\n") > 1]
    assert not long, f"{len(long)}, such as {long[0][:2]}: {long[0][2][-2000:]}"


def test_numbers_that_are_not_finite_or_huge_are_refused_at_once(outcomes):
    texts = {"few_shot_dataset", "real_labels", "subsets", "step_counts", "class"}
    texts |= {"positions", "tasks", "data_dir", "out_dir", "run_dir", "out", "output"}
    texts |= {"to", "name", "license", "push_to", "sort_into"}
    on = [row[:2] for row in outcomes if row[2] == fuzzed_flags.GOES_ON]
    wrong = [[name, value] for name, value in on if value in NUMBERS]
    assert [row for row in wrong if row[0] not in texts] == []


def test_an_empty_data_set_is_not_the_current_folder(outcomes):
    assert ["dataset", "", fuzzed_flags.GOES_ON] not in outcomes
