"""The training loop: its steps, what ends a run, and what is left of it."""

import json
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from train.common.errors import RunError
from train.engine.devices import alone
from train.engine.loop import TrainingLoop, take_steps
from train.engine.optimizers import MomentumSGD
from train.engine.schedules import WarmupCosine
from train.engine.tensorflow_backend import TensorFlowTrainer
from train.models.run_directory import RunDirectory
from train.recipes import Recipe

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

    def validation_batches(self):
        return []

    def validate(self, batches):
        step = int(self.trainer.optimizer.iterations)
        loss = self.losses.get(step, 1.0)
        return {"val_loss": loss, "val_accuracy": ACCURACIES[step]}

    def announce(self):
        print("announced")

    def train(self):
        TrainingLoop(self).train()
        return [weight.numpy() for weight in self.trainer.model.weights]


@pytest.mark.parametrize("every", [3, 12])
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


def test_pictures_are_drawn_without_validation_too(tmp_path, capsys):
    recipe = RECIPE.override(early_stopping=0, explained_images=1, steps=4)
    run = Run(tmp_path, recipe)
    run.validate = lambda batches: None
    drawn = []

    def pictures(step):
        drawn.append(step)
        if step == 2:
            raise ValueError("not finite")
        return {"map": np.zeros((2, 2, 3), "uint8")}

    run.pictures = pictures
    run.train()
    assert drawn == [2, 4]
    told = capsys.readouterr().out
    assert "step 2: no pictures for TensorBoard: not finite" in told
    assert "step 4" not in told


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


# Single steps.


def batches_of(count, batch_size, side):
    rng = np.random.default_rng(0)
    return [
        (
            tf.constant(rng.uniform(-1, 1, (batch_size, side, side, 3)), "float32"),
            tf.constant(rng.integers(0, 3, batch_size), "int32"),
        )
        for _ in range(count)
    ]


def two_matrices():
    keras.utils.set_random_seed(0)
    images = keras.Input((2, 2, 3))
    hidden = keras.layers.Dense(5, use_bias=False)(keras.layers.Flatten()(images))
    return keras.Model(images, keras.layers.Dense(3)(hidden))


def logged(*args, **settings):
    told = []
    for _ in take_steps(*args, lambda *step: told.append(step), **settings):
        pass
    return told


def test_the_steps_that_are_left():
    schedule = WarmupCosine(0.1, 6, 2)
    optimizer = MomentumSGD(schedule)
    trainer = TensorFlowTrainer(two_matrices(), optimizer)
    optimizer.iterations.assign(3)
    told = logged(trainer, batches_of(3, 8, 2), start_step=3, steps=6)
    assert [step for step, _ in told] == [4, 5, 6]
    for step, metrics in told:
        assert metrics.keys() == {
            "loss",
            "accuracy",
            "gradient_norm",
            "learning_rate",
            "seconds",
        }
        assert metrics["learning_rate"] == pytest.approx(float(schedule(step - 1)))
        assert metrics["seconds"] > 0
    assert int(optimizer.iterations) == 6


def test_seconds_are_wall_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(0.1))
    taken = []

    def slow_batches():
        for batch in batches_of(3, 8, 2):
            clock[0] += 10.0  # images are waited for
            yield batch

    def log(_, metrics):
        taken.append(metrics["seconds"])

    for _ in take_steps(trainer, slow_batches(), log, start_step=0, steps=3):
        clock[0] += 100.0  # as validation does
    assert taken == [10.0, 110.0, 110.0]


def test_numbers_that_are_not_finite_end_the_run():
    class Broken(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return keras.ops.cast(np.inf, "float32")

    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(Broken()))
    batches = batches_of(3, 8, 2)
    with pytest.raises(RunError, match="The learning_rate of step 1 is inf: lower"):
        logged(trainer, batches, start_step=0, steps=1)

    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(0.1))
    batches[1] = batches[1][0] * np.nan, batches[1][1]
    told = []
    # What would save or log does not see the step.
    with pytest.raises(RunError, match=r"loss of step 2 is nan: lower --learning_rate"):
        for _ in take_steps(
            trainer, batches, lambda step, _: told.append(step), start_step=0, steps=3
        ):
            pass
    assert told == [1]


def test_a_loss_whose_gradients_always_overflow_ends_the_run():
    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(0.1))
    trainer.step = lambda images, labels: {"loss": 1.0, "loss_scale": 0.5}
    with pytest.raises(RunError, match="step 1 gradients overflow.*mixed_bfloat16"):
        logged(trainer, batches_of(1, 8, 2), start_step=0, steps=1)


def test_metrics_are_fetched_together_and_before_what_a_step_is_followed_by(
    monkeypatch,
):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(0.1))
    events, fetch = [], trainer.fetch

    def recorded(pending):
        events.append(f"fetch {len(pending)}")
        return fetch(pending)

    def batches():
        for number, batch in enumerate(batches_of(13, 8, 2), start=1):
            clock[0] += 0.25
            events.append(number)
            yield batch

    def log(step, metrics):
        events.append(f"log {step}")
        assert metrics["seconds"] == 0.25

    trainer.fetch = recorded
    for step in take_steps(
        trainer, batches(), log, start_step=0, steps=13, intervals=(5, 12)
    ):
        events.append(f"turn {step}")
    groups = [[1], [2, 3, 4, 5], [6, 7, 8, 9], [10], [11, 12], [13]]
    assert events == [
        event
        for steps in groups
        for event in (
            *steps,
            f"fetch {len(steps)}",
            *(f"log {step}" for step in steps),
            f"turn {steps[-1]}",
        )
    ]
