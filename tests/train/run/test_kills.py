"""A run that is killed again and again ends as one that was not."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
import same_runs

ROOT = pathlib.Path(__file__).parents[3]
FLAGS = [
    *("--dataset=digits", "--smoke", "--steps=2000", "--micro_batches=2"),
    *("--checkpoint_every=3", "--eval_every=100", "--dropout_rate=0.1"),
    *("--average_decay=0.99", "--momentum_dtype=bfloat16", "--mixup=0.2"),
    *("--rand_augment=2,5", "--random_erasing=0.5", "--label_smoothing=0.1"),
]
pytestmark = [pytest.mark.slow, pytest.mark.soak]


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
