"""A finished run that trains on: --extend."""

import json
import re
import shutil

import numpy as np
import pytest
import same_runs

from train.common.errors import RunError
from train.run import training


@pytest.fixture(scope="module")
def longer(short_recipe):
    """The settings of the shared run, for four steps instead of two."""
    return short_recipe.override(steps=4)


@pytest.fixture
def run(short_run, tmp_path):
    return shutil.copytree(short_run, tmp_path / "run")


def test_an_extended_run_goes_on_from_the_finished_one(
    run, short_recipe, longer, tmp_path
):
    # What a run of four steps does that was killed after these two.
    killed = shutil.copytree(run, tmp_path / "killed")
    (killed / "model.keras").unlink()
    (killed / "config.json").write_text(json.dumps(longer.deciding))
    before = same_runs.arrays(run)

    published = longer.override(published="99.9 somewhere")
    results = training.run(published, run_dir=run, extend=True)
    # A published number is not claimed.
    assert "published" not in same_runs.report(run)["config"]
    training.run(longer, run_dir=killed)
    # The finished run's checkpoint is as it was, and the next follows from it.
    for name, array in same_runs.arrays(run, 2).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    same_runs.assert_same_bits(run, killed)
    after = same_runs.arrays(run)
    [iteration] = [name for name in after if name.endswith("/iteration")]
    assert (before[iteration], after[iteration]) == (2, 4)

    # The log goes on, and its rates are those of a run of four steps from there.
    records = [line for line in same_runs.records(run) if "loss" in line]
    assert [line["step"] for line in records] == [1, 2, 3, 4]
    shares = [line["learning_rate"] / longer.learning_rate for line in records]
    expected = 0.5 * (1 + np.cos(np.pi * np.array([0, 1 / 2, 2 / 4, 3 / 4])))
    np.testing.assert_allclose(shares, expected, rtol=1e-5)

    assert (results["steps"], results["extended_after"]) == (4, [2])
    assert same_runs.report(run)["extended_after"] == [2]
    page = (run / "report.md").read_text()
    assert re.search(r"extended_after *\| *\\\[2\\\]", page)
    assert json.loads((run / "config.json").read_text())["steps"] == 4
    # The same command has nothing left to do, and it can be extended again.
    assert training.run(longer, run_dir=run, extend=True)["extended_after"] == [2]
    more = training.run(longer.override(steps=5), run_dir=run, extend=True)
    assert (more["steps"], more["extended_after"]) == (5, [2, 4])
    refused(r"steps 5 \(now 4\)", run, longer, extend=False)


def refused(told, run, recipe, *, extend=True):
    """Runs that cannot go on say so, and name --extend only where it helps."""
    with pytest.raises(RunError, match=told) as error:
        training.run(recipe, run_dir=run, extend=extend)
    assert ("--extend" in str(error.value)) == ("--extend" in told)


def test_what_cannot_be_extended_is_named(run, longer, tmp_path):
    before = (run / "config.json").read_text()
    refused(r"steps 2 \(now 4\).* --extend to train on", run, longer, extend=False)
    refused("other settings: seed 3 .*steps 2", run, longer.override(seed=1))
    refused("holds no run to extend: leave out --extend", tmp_path / "none", longer)
    assert not (tmp_path / "none").exists()
    # Data that have changed leave the run as it was.
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(data | {"test images": 3}))
    refused("other data: test images 3", run, longer)
    assert (run / "config.json").read_text() == before
    assert not (run / "extended.json").exists()
    # One that was killed is finished first.
    last = run / "checkpoints" / "step-00000002.npz"
    last.rename(last.with_stem("step-00000001"))
    refused("is of step 1, not of the last, 2: .* without --extend", run, longer)
    refused("other settings", run, longer, extend=False)


def test_the_range_test_says_that_extending_does_nothing(forks, tmp_path):
    flags = ["--dataset=digits", "--smoke", "--extend", "--find_learning_rate"]
    output = forks.output(tmp_path, "train.finetune", *flags, status=1)
    assert "error: --extend does nothing here, for" in output
    assert not list(tmp_path.rglob("config.json"))
