"""Runs that go on: finished ones by --extend, and those that were killed."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import same_runs

from train.common.errors import RunError
from train.run import training

pytestmark = pytest.mark.usefixtures("empty_figures")


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
    # Leave what a run of four steps leaves that is killed after these two.
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
    # It can be extended again.
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


# Kills, again and again

ROOT = pathlib.Path(__file__).parents[3]
FLAGS = [
    *("--dataset=digits", "--smoke", "--steps=2000", "--micro_batches=2"),
    *("--checkpoint_every=3", "--eval_every=100", "--dropout_rate=0.1"),
    *("--average_decay=0.99", "--momentum_dtype=bfloat16", "--mixup=0.2"),
    *("--rand_augment=2,5", "--random_erasing=0.5", "--label_smoothing=0.1"),
]


def start(run_dir):
    return subprocess.Popen(
        [sys.executable, "-m", "train.finetune", *FLAGS, f"--run_dir={run_dir}"],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def steps(run_dir):
    return sorted(path.name for path in run_dir.glob("checkpoints/step-*.npz"))


@pytest.mark.slow
@pytest.mark.soak
def test_twenty_kills_change_no_bit(tmp_path):
    seed = random.randrange(2**32)
    print(f"the moments of the kills follow from seed {seed}")
    moments = random.Random(seed)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole)
    assert process.wait(timeout=1800) == 0, process.communicate()[0]
    for _ in range(20):
        process, before = start(killed), steps(killed)
        # This process, not one before it, has to write a checkpoint.
        while steps(killed) == before:
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (killed / "model.keras").exists(), "it was over before the kill"
    process = start(killed)
    output, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, output
    assert "going on after step" in output
    assert steps(killed) == steps(whole)
    same_runs.assert_same_bits(whole, killed)
    arrays = same_runs.arrays(whole)
    drawn = [arrays[key][1] for key in arrays if "seed_generator_state" in key]
    assert max(drawn) >= 2 * 2000, "no dropout in each of the micro-batches"
    # Temporary files and locks alike.
    left = [path for path in killed.rglob("*") if path.name.startswith(".")]
    assert not left, "half-written files stay behind"
