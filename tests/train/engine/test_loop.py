"""The training loop: its steps, what ends a run, and what is left of it."""

import itertools
import time
import types
from unittest import mock

import numpy as np
import pytest
from made_steps import (
    DEVICES,
    assert_equal,
    batches_of,
    trainer_of,
    two_matrices,
    values,
)

from train.common.errors import RunError
from train.engine.loop import TrainingLoop, evaluate, take_steps
from train.engine.pace import Pace
from train.models.run_directory import RunDirectory
from train.recipes import Recipe

RECIPE = Recipe("digits", "ViT-Ti_16", None, 32, steps=12, warmup_steps=0).override(
    **{"batch_size": 4, "micro_batches": 1, "early_stopping": 2},
    **{"eval_every": 2, "checkpoint_every": 2},
)
# The best at step 4, so the run stops after step 8, where a checkpoint is due, too.
ACCURACIES = {2: 0.3, 4: 0.6, 6: 0.5, 8: 0.4, 10: 0.9, 12: 0.9}
BATCHES = batches_of(13, 4, 2)
TRAIN = types.SimpleNamespace(num_examples=24)


class Run:
    """A run whose validations are given."""

    def __init__(self, path, losses=(), **changes):
        self.recipe, self.losses = RECIPE.override(**changes), dict(losses)
        self.directory, self.devices = RunDirectory(path), DEVICES
        self.source = types.SimpleNamespace(train=TRAIN)
        self.trainer = trainer_of(two_matrices)
        self.taken = []

    def batches(self, start_step):
        for step in range(start_step + 1, 13):
            self.taken.append(step)
            yield BATCHES[step]

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
        return values(self.trainer.model.weights)

    def files(self):
        return sorted(path.name for path in self.directory.checkpoints.iterdir())


@pytest.mark.parametrize("every", [3, 12])
def test_a_run_that_stopped_early_stays_finished(tmp_path, capsys, every):
    first = Run(tmp_path, checkpoint_every=every)
    expected = first.train()
    assert first.taken == list(range(1, 9))
    log = first.directory.metrics.read_text()
    capsys.readouterr()
    again = Run(tmp_path, checkpoint_every=every)
    assert_equal(again.train(), expected)
    assert again.taken == []
    assert again.directory.metrics.read_text() == log
    told = capsys.readouterr().out
    assert "stopped early, after step 8: testing and reporting again" in told
    assert "the best validation was after step 4" in told


def test_a_paced_run_takes_the_steps_that_fit(tmp_path, capsys):
    """Eleven on a schedule of six, killed at the eighth."""

    def begun(left):
        run = Run(tmp_path, early_stopping=0, steps=6, checkpoint_every=5)
        run.validate = lambda batches: None
        pace = Pace(lambda: next(left), 6, 1)
        return run, TrainingLoop(run, pace)

    left = iter([10, 9, 8, 7, 6, 5, 4])
    run, loop = begun(left)
    with pytest.raises(StopIteration):
        loop.train()
    assert run.taken[-1] == 8 and run.files() == ["step-00000005.npz"]
    run, loop = begun(iter([5, 4, 3, 2, 1, 0]))
    loop.train()
    assert run.taken == [6, 7, 8, 9, 10, 11]
    assert int(run.trainer.optimizer.iterations) == 6
    assert run.files()[-1] == "step-00000011.npz"
    bar = loop.log.bar
    assert (bar.n, bar.total) == (11, 11)
    run, loop = begun(iter([]))
    loop.train()
    assert run.taken == []
    told = capsys.readouterr().out
    assert "has used its time, after step 11: testing and reporting again" in told


def test_a_lost_best_is_told_before_the_steps_that_are_left(tmp_path):
    Run(tmp_path, early_stopping=20).train()
    (tmp_path / "checkpoints" / "best.npz").unlink()
    # Leave what a kill after step 10 leaves.
    (tmp_path / "checkpoints" / "step-00000012.npz").unlink()
    again = Run(tmp_path, early_stopping=20)
    with pytest.raises(RunError, match=r"best\.npz is missing.*give the command"):
        again.train()
    assert again.taken == []


def test_a_validation_loss_that_is_not_finite_ends_the_run(tmp_path):
    run = Run(tmp_path, losses={6: np.nan})
    refused = "validation loss after step 6 is nan.*--learning_rate.*are kept"
    with pytest.raises(RunError, match=refused):
        run.train()
    # The checkpoint of the same step was not due yet.
    assert run.files() == ["best.npz", "step-00000002.npz", "step-00000004.npz"]


def test_pictures_are_drawn_without_validation_too(tmp_path, capsys):
    run = Run(tmp_path, early_stopping=0, explained_images=1, steps=4)
    run.validate = lambda batches: None
    drawn = {"map": np.zeros((2, 2, 3), "uint8")}
    run.pictures = mock.Mock(side_effect=[ValueError("not finite"), drawn])
    run.train()
    assert run.pictures.mock_calls == [mock.call(2), mock.call(4)]
    told = capsys.readouterr().out
    assert "step 2: no pictures for TensorBoard: not finite" in told


# Single steps


def test_numbers_that_are_not_finite_end_the_run():
    def take(trainer, batches):
        """Returns the steps that are logged before the error, and what it says."""
        log = mock.Mock()
        with pytest.raises(RunError) as refused:
            list(take_steps(trainer, batches, log, start_step=0, steps=3))
        return [one.args[0] for one in log.mock_calls], str(refused.value)

    images, labels = BATCHES[1]
    batches = [BATCHES[0], (images * np.nan, labels), BATCHES[2]]
    logged, told = take(trainer_of(two_matrices), batches)
    # Neither checkpoints nor logs see the step.
    assert logged == [1] and "loss of step 2 is nan: lower --learning_rate" in told
    trainer = trainer_of(two_matrices)
    trainer.step = lambda *_: {"learning_rate": np.inf}
    assert "The learning_rate of step 1 is inf: lower" in take(trainer, BATCHES)[1]
    trainer.step = lambda *_: {"loss_scale": 0.5}
    logged, told = take(trainer, BATCHES)
    assert "step 1 gradients overflow" in told and "mixed_bfloat16" in told


@pytest.fixture
def clock(monkeypatch):
    """A list of the one number that is the time."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_metrics_are_fetched_together_and_before_what_a_step_is_followed_by(clock):
    trainer = trainer_of(two_matrices)
    events, fetch = [], trainer.fetch

    def recorded(pending):
        events.append(f"fetch {len(pending)}")
        return fetch(pending)

    def batches():
        for number, batch in enumerate(BATCHES, start=1):
            clock[0] += 0.25
            events.append(number)
            yield batch

    def log(step, metrics):
        events.append(f"log {step}")
        # All is wall time: waiting for images, and what is done between steps.
        assert metrics["seconds"] == (100.25 if step == 13 else 0.25)

    trainer.fetch = recorded
    settings = {"start_step": 0, "steps": 13, "intervals": (5, 12)}
    for step in take_steps(trainer, batches(), log, **settings):
        events.append(f"turn {step}")
        clock[0] += 100.0 * (step == 12)
    expected = []
    for steps in [[1], [2, 3, 4, 5], [6, 7, 8, 9], [10], [11, 12], [13]]:
        logs = [f"log {step}" for step in steps]
        expected += [*steps, f"fetch {len(steps)}", *logs, f"turn {steps[-1]}"]
    assert events == expected


class Ahead:
    """A trainer whose device computes a step while what was before is fetched."""

    ahead = 1

    def __init__(self):
        self.events = []

    def step(self, number):
        self.events.append(f"step {number}")
        return {"loss": number}

    def fetch(self, pending):
        self.events.append("fetch " + " ".join(str(one["loss"]) for one in pending))
        return pending

    def answers(self, number):
        self.events.append(f"answers {number}")
        return np.array([number]), np.zeros((1, 2), "float32"), np.ones(1)


def test_logs_and_fetches_hide_behind_the_next_step(monkeypatch):
    # Metrics are fetched about once a second: here after each step.
    ticks = itertools.count(0.0, 2.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    trainer = Ahead()
    events, batches = trainer.events, [(number,) for number in range(1, 10)]
    settings = {"start_step": 0, "steps": 4, "intervals": (3,)}

    def log(step, _):
        events.append(f"log {step}")

    def prepare(step):
        events.append(f"prepare {step}")

    for step in take_steps(trainer, batches, log, prepare=prepare, **settings):
        events.append(f"turn {step}")
    assert events == [
        *("step 1", "step 2", "fetch 1", "log 1", "step 3", "fetch 2", "log 2"),
        # Images are read while the last step before a validation runs.
        *("prepare 3", "fetch 3", "log 3", "turn 3"),
        *("step 4", "prepare 4", "fetch 4", "log 4", "turn 4"),
    ]


def test_answers_of_a_batch_are_kept_while_the_next_is_computed():
    trainer = Ahead()

    def keep(labels, probabilities):
        trainer.events.append(f"keep {labels[0]}")
        return probabilities.tolist()

    kept, loss = evaluate(trainer, [(1,), (2,), (3,)], keep)
    assert kept == [[[0.5, 0.5]]] * 3 and loss == 1.0
    assert trainer.events == [
        *("answers 1", "answers 2", "keep 1", "answers 3", "keep 2", "keep 3")
    ]
