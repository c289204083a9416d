"""A finished run that trains on: --extend."""

import json
import math
import re
import shutil

import numpy as np
import pytest
import same_runs

from train import recipes
from train.common.errors import RunError
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.run import training

# Four steps and eight; dropout and averages have states of their own.
SHORT = recipes.for_dataset("digits").smoke()
SHORT = SHORT.override(steps=4, dropout_rate=0.1, average_decay=0.9, eval_every=2)
LONG = SHORT.override(steps=8)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("finished") / "run"
    training.run(SHORT, run_dir=path)
    return path


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def rate(recipe, step):
    """Half a cosine after a linear warm-up, of the paper, in NumPy."""
    warmup = recipe.warmup_steps
    progress = max(step - warmup, 0) / (recipe.steps - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return recipe.learning_rate * min(1, step / warmup) * cosine


def test_an_extended_run_goes_on_from_the_finished_one(run, tmp_path):
    # What a run of eight steps does that was killed after these four.
    killed = shutil.copytree(run, tmp_path / "killed")
    (killed / "model.keras").unlink()
    (killed / "config.json").write_text(json.dumps(LONG.deciding))
    before = same_runs.arrays(run)

    results = training.run(LONG, run_dir=run, extend=True)
    training.run(LONG, run_dir=killed)
    # The finished run's checkpoint is as it was, and the next follows from it.
    for name, array in same_runs.arrays(run, 4).items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    same_runs.assert_same_bits(run, killed)
    after = same_runs.arrays(run)
    assert any(not np.array_equal(after[name], before[name]) for name in before)
    [iteration] = [name for name in after if name.endswith("/iteration")]
    assert (before[iteration], after[iteration]) == (4, 8)

    # The log goes on, and its rates are those of a run of eight steps from there.
    directory = RunDirectory(run)
    steps, rates = MetricLog(directory.metrics).series("learning_rate")
    wanted = [rate(SHORT if step <= 4 else LONG, step - 1) for step in steps]
    assert {4, 8} <= {*steps} and len(steps) == len({*steps})
    np.testing.assert_allclose(rates, wanted, rtol=1e-5, atol=1e-9)
    validated, _ = MetricLog(directory.metrics).series("val_loss")
    assert validated.tolist() == [2, 4, 6, 8]

    assert (results["steps"], results["extended_after"]) == (8, [4])
    assert same_runs.report(run)["extended_after"] == [4]
    assert re.search(r"extended_after *\| *\\\[4\\\]", directory.report.read_text())
    assert json.loads(directory.config.read_text())["steps"] == 8
    # The same command has nothing left to do, and it can be extended again.
    assert training.run(LONG, run_dir=run, extend=True)["extended_after"] == [4]
    more = training.run(SHORT.override(steps=9), run_dir=run, extend=True)
    assert (more["steps"], more["extended_after"]) == (9, [4, 8])
    refused(r"steps 9 \(now 8\)", run, extend=False)


def refused(told, run, recipe=LONG, *, extend=True):
    """Runs that cannot go on say so, and name --extend only where it helps."""
    with pytest.raises(RunError, match=told) as error:
        training.run(recipe, run_dir=run, extend=extend)
    assert ("--extend" in str(error.value)) == ("--extend" in told)


def test_what_cannot_be_extended_is_named(run, tmp_path):
    before = (run / "config.json").read_text()
    refused(r"steps 4 \(now 8\).* --extend to train on", run, extend=False)
    refused("other settings: seed 0 .*steps 4", run, LONG.override(seed=1))
    refused("holds no run to extend: leave out --extend", tmp_path / "none")
    assert not (tmp_path / "none").exists()
    # Data that have changed leave the run as it was.
    data = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps(data | {"test images": 3}))
    refused("other data: test images 3", run)
    assert (run / "config.json").read_text() == before
    assert not (run / "extended.json").exists()
    # One that was killed is finished first.
    (run / "checkpoints" / "step-00000004.npz").rename(
        run / "checkpoints" / "step-00000003.npz"
    )
    refused("is of step 3, not of the last, 4: .* without --extend", run)
    refused("other settings", run, extend=False)


def test_a_published_number_is_not_claimed_by_an_extended_run(run):
    published = LONG.override(published="99.9 somewhere")
    training.run(published, run_dir=run, extend=True)
    assert "published" not in same_runs.report(run)["config"]


def test_the_range_test_says_that_extending_does_nothing(forks, tmp_path):
    flags = ["--dataset=digits", "--smoke", "--extend", "--find_learning_rate"]
    code, output = forks.run(["train.finetune", *flags], tmp_path, {})
    assert code == 1 and "error: --extend does nothing here, for" in output
    assert not list(tmp_path.rglob("config.json"))
