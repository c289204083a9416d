"""A run: what it leaves of the process, and what it measures."""

import os
import random

import keras
import numpy as np
import pytest

from train import recipes
from train.common.errors import RunError
from train.engine.metrics import MetricLog
from train.inference.run_directory import RunDirectory
from train.run import training
from train.run.task import speed


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
    recipe = recipes.for_dataset("digits").smoke()
    recipe = recipe.override(model="ViT-X", precision="mixed_bfloat16", seed=3)
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
