"""A run: what it leaves of the process, and what it measures."""

import os
import random
import shutil

import keras
import numpy as np
import pytest
import same_runs
import two_devices

from train import recipes
from train.common.errors import RunError
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import config_file, training
from train.run.classification import FineTuning
from train.run.task import speed

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


ON_TWO_DEVICES = """
from train import recipes
from train.engine import devices
from train.run import training

recipe = recipes.for_dataset("digits").smoke().override(average_decay=0.9)
training.run(recipe, run_dir=sys.argv[1], devices=devices.start("mirrored"))
"""


@pytest.mark.soak
def test_two_devices_do_what_one_does(tmp_path):
    two_devices.run(ON_TWO_DEVICES, tmp_path / "two")
    training.run(SMOKE.override(average_decay=0.9), run_dir=tmp_path / "one")
    one, two = (same_runs.report(tmp_path / name) for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in ("test_loss", "test_accuracy", "test_calibration_error"):
        assert two[name] == pytest.approx(one[name], abs=1e-4), name
    for name in ("steps", "test_examples", "train_examples", "parameters", "config"):
        assert two[name] == one[name], name
    first, second = (same_runs.arrays(tmp_path / name, 8) for name in ("one", "two"))
    assert first.keys() == second.keys()
    for key in first:
        # Softmax does not see the keys' bias, and each device has seeds of its own.
        if "key/bias" not in key and "seed_generator" not in key:
            largest = np.abs(first[key]).max()
            difference = np.abs(first[key] - second[key]).max()
            assert difference <= 1e-5 * max(largest, 1e-3), key


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
