"""Runs of a few steps of a tiny model: what ends them, and what is left."""

import json
import os
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from train import recipes
from train.common.errors import RunError
from train.engine import repeatable, session
from train.engine.devices import alone
from train.engine.metrics import MetricLog
from train.engine.optimizers import MomentumSGD
from train.inference.run_directory import RunDirectory
from train.masked_patches import training as masked_training
from train.recipes import Recipe, masking
from train.run import training
from train.run.training import speed
from train.study import studies

RECIPE = Recipe(
    "digits",
    "ViT-Ti_16",
    None,
    32,
    steps=12,
    batch_size=4,
    micro_batches=1,
    warmup_steps=0,
    early_stopping=2,
    eval_every=2,
    checkpoint_every=2,
)
# The best at step 4, so the run stops after step 8, where a checkpoint is due, too.
ACCURACIES = {2: 0.3, 4: 0.6, 6: 0.5, 8: 0.4, 10: 0.9, 12: 0.9}


class Run:
    """A run whose validations are given."""

    def __init__(self, path, recipe=RECIPE, losses=None, rate=0.1):
        self.recipe, self.losses = recipe, losses or {}
        self.directory = RunDirectory(path)
        keras.utils.set_random_seed(0)
        images = keras.Input((2, 2, 3))
        logits = keras.layers.Dense(3, name="head")(keras.layers.Flatten()(images))
        devices = alone()
        self.trainer = devices.trainer(
            keras.Model(images, logits), MomentumSGD(rate), clip_norm=None
        )
        self.taken = []
        self.devices = devices

    def batches(self, start_step):
        rng = np.random.default_rng(0)
        for step in range(1, 100):
            batch = (
                tf.constant(rng.uniform(-1, 1, (4, 2, 2, 3)), "float32"),
                tf.constant(rng.integers(0, 3, 4), "int32"),
            )
            if step > start_step:
                self.taken.append(step)
                yield batch

    def validate(self):
        step = int(self.trainer.optimizer.iterations)
        loss = self.losses.get(step, 1.0)
        return {"val_loss": loss, "val_accuracy": ACCURACIES[step]}

    def train(self):
        session.train(
            self.recipe,
            self.trainer,
            self.directory,
            self.devices,
            batches=self.batches,
            validate=self.validate,
            announce=lambda _: None,
        )
        return [weight.numpy() for weight in self.trainer.model.weights]


@pytest.mark.parametrize("every", [2, 3, 12])
def test_a_run_that_stopped_early_stays_finished(tmp_path, capsys, every):
    recipe = RECIPE.override(checkpoint_every=every)
    first = Run(tmp_path, recipe)
    expected = first.train()
    assert first.taken == list(range(1, 9))
    log = first.directory.metrics.read_text()
    capsys.readouterr()
    for _ in range(2):
        again = Run(tmp_path, recipe)
        found = again.train()
        assert again.taken == []
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)
        assert again.directory.metrics.read_text() == log
        told = capsys.readouterr().out
        assert "stopped early, after step 8: testing and reporting again" in told
        assert "the best validation was after step 4" in told


def test_a_lost_best_is_told_before_the_steps_that_are_left(tmp_path):
    whole = Run(tmp_path, RECIPE.override(early_stopping=20))
    whole.train()
    (tmp_path / "checkpoints" / "best.npz").unlink()
    # As if it was killed after step 10.
    (tmp_path / "checkpoints" / "step-00000012.npz").unlink()
    again = Run(tmp_path, RECIPE.override(early_stopping=20))
    with pytest.raises(RunError, match=r"best\.npz is missing.*give the command"):
        again.train()
    assert again.taken == []


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_validation_loss_that_is_not_finite_ends_the_run(tmp_path, loss):
    run = Run(tmp_path, losses={6: loss})
    with pytest.raises(RunError) as caught:
        run.train()
    message = str(caught.value)
    assert f"validation loss after step 6 is {loss}" in message
    assert "--learning_rate" in message and "are kept" in message
    # The checkpoint of the same step was not due yet.
    steps = sorted(path.name for path in run.directory.checkpoints.glob("step*"))
    assert steps == ["step-00000002.npz", "step-00000004.npz"]
    for line in run.directory.metrics.read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(name))


def test_weights_that_overflow_replace_no_checkpoint(tmp_path):
    # The loss of step 5 is still finite, its update is not.
    recipe = RECIPE.override(early_stopping=0, eval_every=12, checkpoint_every=1)
    run = Run(tmp_path, recipe)
    step = run.trainer.step

    def diverging(images, labels):
        told = step(images, labels)
        if int(run.trainer.optimizer.iterations) == 5:
            run.trainer.model.weights[0].assign(np.full((12, 3), np.inf))
        return told

    run.trainer.step = diverging
    with pytest.raises(RunError, match=r"step-00000005\.npz was not written.*finite"):
        run.train()
    steps = sorted(path.name for path in run.directory.checkpoints.iterdir())
    assert steps == ["step-00000003.npz", "step-00000004.npz"]


def test_the_speed_of_a_run_is_that_by_wall_time(tmp_path):
    log = MetricLog(tmp_path / "metrics.jsonl")
    # One slow window, as of the first step, which compiles: 4 x 10 x 8 images.
    for step, seconds in ((10, 37.0), (20, 1.0), (30, 1.0), (40, 1.0)):
        log.append(step, seconds=seconds, images_per_second=80 / seconds)
    assert speed(log) == {
        "seconds": 40.0,
        "images_per_second": pytest.approx(320 / 40),
    }


@pytest.mark.parametrize("run", [training.run, masked_training.run])
def test_a_run_leaves_keras_as_it_was_and_is_alone(tmp_path, run):
    of = masking if run is masked_training.run else recipes
    recipe = of.for_dataset("digits").smoke()
    recipe = recipe.override(model="ViT-X", precision="mixed_bfloat16", seed=3)
    policy = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()[1].tolist()
    # Refused late, once all of it is set.
    with pytest.raises(RunError, match="ViT-X"):
        run(recipe, run_dir=tmp_path / "run")
    assert keras.config.dtype_policy() == policy
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states

    with (
        RunDirectory(tmp_path / "run").locked(),
        pytest.raises(RunError, match=f"process {os.getpid()} .*another --run_dir"),
    ):
        run(recipe, run_dir=tmp_path / "run")


def test_a_study_is_alone_in_its_directory(tmp_path):
    recipe = studies.recipe_for("positions", "digits").smoke()
    with (
        RunDirectory(tmp_path).locked(),
        pytest.raises(RunError, match=f"process {os.getpid()} .*another --run_dir"),
    ):
        studies.run("positions", recipe, run_dir=tmp_path)


def test_random_numbers_follow_the_seed_and_go_on_as_before():
    before = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()[1].tolist()
    drawn = []
    for _ in range(2):
        with (
            pytest.raises(KeyError),
            repeatable.settled(3, "mixed_bfloat16"),
        ):
            assert keras.config.dtype_policy().name == "mixed_bfloat16"
            initializer = keras.initializers.GlorotUniform()
            drawn.append(keras.ops.convert_to_numpy(initializer((2, 3))).tolist())
            drawn[-1].append(np.random.uniform())
            raise KeyError
        assert keras.config.dtype_policy() == before
        assert random.getstate() == states[0]
        assert np.random.get_state()[1].tolist() == states[1]
    assert drawn[0] == drawn[1]
