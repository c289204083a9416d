"""A run: what it leaves of the process, and what it measures."""

import dataclasses
import functools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
from unittest import mock

import keras
import labelled_photos
import numpy as np
import pytest
import same_runs
import tensorflow as tf

from keras_vit import VisionTransformer, ViTConfig
from train import recipes
from train.common.errors import RunError
from train.data import sources
from train.data.columns import Columns
from train.data.options import DataOptions
from train.engine import bfloat16
from train.engine.bfloat16 import of_accelerators
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe, pretraining
from train.run import config_file, explained_images, plan, training
from train.run.classification import FineTuning, PreTraining
from train.run.task import speed
from zoo.common import machine

pytestmark = pytest.mark.usefixtures("empty_figures")

ROOT = pathlib.Path(__file__).parents[3]
SMOKE = recipes.for_dataset("digits").smoke()
WITH_PICTURES = SMOKE.override(explained_images=2)


def test_the_speed_of_a_run_is_that_by_wall_time(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl")
    # One slow window, as of the first step, which compiles: 4 x 10 x 8 images.
    for step, seconds in ((10, 37.0), (20, 1.0), (30, 1.0), (40, 1.0)):
        log.append(step, seconds=seconds, images_per_second=80 / seconds)
    expected = {"seconds": 40.0, "images_per_second": 320 / 40}
    assert speed(log) == pytest.approx(expected)


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


# Each with a recipe, of which the others are copies in other numbers.
SETTINGS = {
    "LoRA": {
        **{"recipe": "own_data", "lora_rank": 2, "layer_decay": 0.7},
        # The pictures are of test images, then.
        **{"validation_fraction": 0.0, "explained_images": 1},
        **{"loss": "sigmoid", "class_weights": "balanced", "head_bias": -2.0},
    },
    "float16": {
        **{"recipe": "augreg_imagenet21k_strong2", "precision": "mixed_float16"},
        **{"remat": True, "dropout_rate": 0.1, "average_decay": 0.9},
    },
    "probe": {
        **{"recipe": "own_data", "frozen": True, "early_stopping": 1},
        **{"eval_every": 1, "steps": 8},
    },
    "ResNet": {"recipe": "own_data", "model": "ResNet50V2", "image_size": 32},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["LoRA", "float16", "probe", pytest.param("ResNet", marks=pytest.mark.soak)]
)
def test_settings_together(name, tmp_path):
    values = {"steps": 3, "warmup_steps": 1, "eval_every": 2, **SETTINGS[name]}
    chosen = values.pop("recipe")
    known, task = recipes, FineTuning
    if chosen not in recipes.names():
        known, task = pretraining, PreTraining
    recipe = known.for_dataset("digits", chosen).smoke().override(**values)
    task = task(dataclasses.replace(recipe, test_examples=32))
    results = training.run(task, run_dir=tmp_path)
    report = same_runs.report(tmp_path)
    assert (report["steps"], report["test_examples"]) == (results["steps"], 32)
    assert (results["weights"] is not None) == isinstance(task, PreTraining)
    assert results["model"] in task.summary(results)
    lines = same_runs.records(tmp_path)
    accuracies = [line["val_accuracy"] for line in lines if "val_loss" in line]
    assert ("validation_examples" in report) == (len(accuracies) > 0)
    assert (len(accuracies) > 0) == (recipe.validation_fraction > 0)
    best = tmp_path / "checkpoints" / "best.npz"
    assert best.exists() == bool(recipe.early_stopping)
    kept = max(accuracies) if recipe.early_stopping else [None, *accuracies][-1]
    assert report.get("validation_accuracy") == kept
    if recipe.early_stopping:
        first_best = accuracies.index(max(accuracies)) + 1
        assert results["steps"] == first_best
        assert len(accuracies) == min(first_best + 1, 8)
    else:
        assert results["steps"] == recipe.steps


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
@pytest.mark.parametrize("task", ["masked_patches", "labels", "number"])
def test_two_devices_do_what_one_does(task, tmp_path):
    """`test_same_steps.py` has classes."""
    words = ["train.masked_patches", "--dataset=digits"]
    if task != "masked_patches":
        table = labelled_photos.table(tmp_path / "photos", task)
        # Five held-out photos are an odd number for two devices.
        words = [
            "train.finetune",
            table,
            f"--task={task}",
            "--validation_fraction=0.25",
        ]
    words += ["--smoke"]

    def report(count, strategy):
        own = [f"--strategy={strategy}", f"--run_dir={strategy}"]
        environment = {"KERAS_BACKEND": "tensorflow", "PYTHONPATH": str(ROOT)}
        told = subprocess.check_output(
            [sys.executable, "-c", ON_DEVICES, str(count), *words, *own],
            cwd=tmp_path,
            env={**os.environ, **environment},
            text=True,
        )
        assert ("on 2 devices" in told) == (count == 2)
        return same_runs.report(tmp_path / strategy)

    one, two = report(1, "one"), report(2, "mirrored")
    for name in one.keys() - {"seconds", "images_per_second"}:
        if isinstance(one[name], float | int):
            assert two[name] == pytest.approx(one[name], rel=1e-5, abs=1e-4), name


def test_a_layer_augments_a_run_that_resumes_to_the_bit(tmp_path):
    def task(**changed):
        layer = keras.layers.RandomRotation(**{"factor": 0.1, **changed})
        return FineTuning(SMOKE, augmentation_layer=layer)

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    results = training.run(task(seed=1), run_dir=whole)
    assert results["training_only"].startswith("shift crop, layer RandomRotation")
    # Leave what a kill after four steps leaves.
    shutil.copytree(whole, killed)
    (killed / "model.keras").unlink()
    (killed / "checkpoints" / "step-00000008.npz").unlink()
    for other, named in ((FineTuning(SMOKE), "RandomRo"), (task(factor=0.3), "0.3")):
        with pytest.raises(RunError, match=f"settings: augmentation_layer .*{named}"):
            training.run(other, run_dir=killed)
    # Numbers follow the run's seed, not the layer's.
    training.run(task(seed=2), run_dir=killed)
    same_runs.assert_same_bits(whole, killed)
    # No file or flag brings what only Python has.
    with pytest.raises(RunError, match="augmentation_layer.* in Python"):
        config_file.values(config_file.read(whole / "config.json"), Recipe, "c.json")


# --precision=auto: what is chosen, and that a run keeps it.


def test_a_run_keeps_what_it_began_with(short_recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: True)
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.8)
    auto = short_recipe.override(precision="auto", micro_batches=1)
    training.run(auto.override(steps=1), run_dir=tmp_path)
    assert "precision mixed_bfloat16, as this " in capsys.readouterr().out
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["precision"] == "mixed_bfloat16"
    model = keras.saving.load_model(tmp_path / "model.keras")
    policy = model.get_layer("encoder_block_0").dtype_policy
    assert policy.name == "mixed_bfloat16"

    # On a machine that has another answer it goes on as it began.
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.1)
    assert bfloat16.of_processor()[0] is False
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: False)
    assert bfloat16.of_processor()[0] is False
    training.run(auto, run_dir=tmp_path, extend=True)
    told = "precision mixed_bfloat16, with which the run began"
    assert told in capsys.readouterr().out
    with pytest.raises(RunError, match="other settings: .*precision"):
        training.run(auto.override(precision="float32"), run_dir=tmp_path)


def test_epochs_are_settled_by_the_training_images(tmp_path):
    task = FineTuning(SMOKE.override(epochs=0.05))
    data = functools.partial(training.load_source, task.recipe)
    devices, directory = mock.Mock(), RunDirectory(tmp_path)
    plan.settle(task, directory, devices, data)
    # 256 images in batches of 16.
    assert (task.recipe.steps, task.deciding["epochs"]) == (1, 0.05)
    results = training.run(FineTuning(SMOKE.override(epochs=0.05)), run_dir=tmp_path)
    assert (results["steps"], results["epochs"]) == (1, 16 / 256)
    assert "after 1 step (0.0625 epochs)" in directory.report.read_text()
    assert json.loads(directory.config.read_text())["steps"] == 1
    longer = SMOKE.override(epochs=0.1)
    with pytest.raises(RunError, match=r"other settings: epochs 0.05 .*--extend"):
        training.run(longer, run_dir=tmp_path)


@pytest.mark.parametrize("given", [{"bits": 12}, {"columns": Columns(label="breed")}])
def test_what_a_recipe_has_is_refused_among_options_of_data(given):
    with pytest.raises(ValueError, match="settings of its recipe: pass recipe.overr"):
        training.load_source(SMOKE, DataOptions(**given))


def test_the_gain_is_of_both_products(monkeypatch):
    """A product in bfloat16 that takes ten times as long is seen."""
    multiply, now = tf.matmul, [0]

    def slow(left, right):
        now[0] += 10 if left.dtype == tf.bfloat16 else 1
        return multiply(left[:2], right[:, :2])

    monkeypatch.setattr(tf, "function", lambda function, **_: slow)
    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: now[0])
    assert bfloat16.bfloat16_gain() == 0.1


def test_accelerators():
    for capabilities, has_it, reason in (
        ([], True, "TPUs"),
        ([(9, 0), (8, 0)], True, "8.0 multiply"),
        ([(9, 0), (7, 5)], False, "7.5 do not"),
        ([(9, 0), None], False, "not known"),
    ):
        found, why = of_accelerators(capabilities)
        assert found is has_it and reason in why


def test_workers_have_one_precision(tmp_path):
    for gains, of_all, expected in (
        (True, [1, 1], "mixed_bfloat16"),
        (True, [1, 0], "float32"),
        (False, [0, 0], "float32"),
    ):
        task, machines = mock.Mock(recipe=SMOKE.override(precision="auto")), mock.Mock()
        machines.bfloat16.return_value = gains, "as it does"
        machines.all_gather.return_value = of_all
        plan.settle(task, RunDirectory(tmp_path), machines)
        assert task.recipe.precision == expected


# Pictures of the attention; the loop asks for them.


def test_pictures_are_of_the_first_images_and_of_this_step():
    # A grid of 2x2 patches, and as few filters as are not too few to be drawn.
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8}
    config = ViTConfig(**sizes, patch_size=4, position_embedding="2d")
    model = VisionTransformer(config, image_size=8, classes=10)
    images = explained_images.choose(WITH_PICTURES, model, sources.load("digits").train)
    assert images.shape == (2, 8, 8, 3)
    drawn = explained_images.pictures(model, images, step=1)
    assert drawn.keys() == {"attention rollout", "figure 7"}
    for name, pixels in explained_images.pictures(model, images, step=2).items():
        height, width, channels = pixels.shape
        assert min(height, width) > 200 and (channels, pixels.dtype) == (3, "uint8")
        assert (pixels != drawn[name]).any()
    assert explained_images.choose(SMOKE, model, split=None) is None


def test_models_without_attention_are_refused_before_they_are_trained():
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))
    with pytest.raises(RunError, match="--explained_images shows what a Vision Tran"):
        explained_images.choose(WITH_PICTURES, model, split=None)
