"""A run: what it leaves of the process, and what it measures."""

import os
import pathlib
import random
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import same_runs

from train import recipes
from train.common.errors import RunError
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import config_file, training
from train.run.classification import FineTuning
from train.run.task import speed

ROOT = pathlib.Path(__file__).parents[3]
SMOKE = recipes.for_dataset("digits").smoke()


def test_the_speed_of_a_run_is_that_by_wall_time(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl")
    # One slow window, as of the first step, which compiles: 4 x 10 x 8 images.
    for step, seconds in ((10, 37.0), (20, 1.0), (30, 1.0), (40, 1.0)):
        log.append(step, seconds=seconds, images_per_second=80 / seconds)
    assert speed(log) == {
        "seconds": 40.0,
        "images_per_second": pytest.approx(320 / 40),
    }


def test_a_run_leaves_keras_as_it_was_and_is_alone(tmp_path):
    recipe = SMOKE.override(model="ViT-X", precision="mixed_bfloat16", seed=3)
    policy = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()[1].tolist()
    # Refused late, once all of it is set.
    with pytest.raises(RunError, match="ViT-X"):
        training.run(recipe, run_dir=tmp_path / "run")
    assert keras.config.dtype_policy() == policy
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states

    with (
        RunDirectory(tmp_path / "run").locked(),
        pytest.raises(RunError, match=f"process {os.getpid()} .*another --run_dir"),
    ):
        training.run(recipe, run_dir=tmp_path / "run")


# A command on simulated devices of TensorFlow, which are set before all else.
ON_DEVICES = """
import runpy, sys
import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
devices = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv.pop(1))
tf.config.set_logical_device_configuration(cpu, devices)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


@pytest.mark.soak
@pytest.mark.parametrize("module", ["train.finetune", "train.masked_patches"])
def test_two_devices_do_what_one_does(module, tmp_path):
    def report(count, strategy):
        run_dir = tmp_path / strategy
        words = ["--dataset=digits", "--smoke", f"--strategy={strategy}"]
        words = [str(count), module, *words, f"--run_dir={run_dir}"]
        done = subprocess.run(
            [sys.executable, "-c", ON_DEVICES, *words],
            env={**os.environ, "KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert ("on 2 devices" in done.stdout) == (count == 2)
        return same_runs.report(run_dir)

    one, two = report(1, "one"), report(2, "mirrored")
    assert one.keys() == two.keys()
    for name in one.keys() - {"seconds", "images_per_second"}:
        if isinstance(one[name], float | int):
            assert two[name] == pytest.approx(one[name], abs=1e-4), name


def test_a_layer_augments_a_run_that_resumes_to_the_bit(tmp_path):
    def task(**changed):
        layer = keras.layers.RandomRotation(**{"factor": 0.1, **changed})
        return FineTuning(SMOKE, augmentation_layer=layer)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    results = training.run(task(seed=1), run_dir=whole)
    assert results["training_only"].startswith("shift crop, layer RandomRotation")
    # What a run has left that was killed after four steps.
    shutil.copytree(whole, killed)
    (killed / "model.keras").unlink()
    (killed / "checkpoints" / "step-00000008.npz").unlink()
    for other, named in ((FineTuning(SMOKE), "RandomRo"), (task(factor=0.3), "0.3")):
        with pytest.raises(RunError, match=f"settings: augmentation_layer .*{named}"):
            training.run(other, run_dir=killed)
    # Numbers follow the run's seed, not the layer's.
    training.run(task(seed=2), run_dir=killed)
    same_runs.assert_same_bits(whole, killed)
    # What only Python has no file or flag brings.
    with pytest.raises(RunError, match="augmentation_layer.* in Python"):
        config_file.values(config_file.read(whole / "config.json"), Recipe, "c.json")
