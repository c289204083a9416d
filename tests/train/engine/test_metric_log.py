"""The file of metrics, what logs write there, and signals."""

import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from train.common.errors import Preempted, RunError
from train.engine.callbacks import NullLog, RunLog, SignalHandler
from train.engine.metric_log import MetricLog


@pytest.fixture
def log(tmp_path):
    return MetricLog(tmp_path / "run" / "metrics.jsonl")


def steps_of(log):
    return [record["step"] for record in log.records()]


def test_what_is_written_is_read_exactly(log):
    log.rewind(10)
    assert log.records() == [] and log.series("loss")[0].shape == (0,)
    assert not log.path.parent.exists()
    losses = np.random.default_rng(0).normal(size=10)
    for step, loss in enumerate(losses, start=1):
        values = {"loss": tf.constant(loss), "images": np.int32(step), "a": True}
        log.append(np.int64(step), **values)
        content = log.path.read_bytes()
        assert content.endswith(b"\n") and content.count(b"\n") == step
    log.append(7, val_loss=np.float32(0.5))
    assert log.records()[2] == {"step": 3, "loss": losses[2], "images": 3, "a": 1}
    steps, values = log.series("loss")
    assert steps.dtype == np.int64 and values.dtype == np.float64
    np.testing.assert_array_equal(steps, np.arange(1, 11))
    np.testing.assert_array_equal(values, losses)
    # Records after a step go, in whatever order they came.
    log.rewind(7)
    lines = content.splitlines(keepends=True)[:7]
    assert log.path.read_bytes() == b"".join(lines) + b'{"step": 7, "val_loss": 0.5}\n'
    assert os.listdir(log.path.parent) == ["metrics.jsonl"]


@pytest.mark.parametrize(
    "value", [float("nan"), np.float32("-inf"), "high", None, np.zeros(3)]
)
def test_what_is_no_finite_scalar_is_named_and_leaves_the_log_alone(log, value):
    log.append(1, loss=1.0)
    before = log.path.read_bytes()
    with pytest.raises((TypeError, ValueError)) as refused:
        log.append(2, loss=1.0, gradient_norm=value)
    if isinstance(value, (float, np.floating)):
        assert "'gradient_norm' at step 2 is " in str(refused.value)
        assert "lower the learning rate" in str(refused.value)
    assert log.path.read_bytes() == before


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"\x00\x00\x00\xff"])
@pytest.mark.parametrize("whole", [0, 2])
def test_a_torn_last_line_is_left_out(log, torn, whole):
    for step in range(1, 3):
        log.append(step, loss=1 / step)
    lines = log.path.read_bytes().splitlines(keepends=True)[:whole]
    for repair, after in (
        (lambda: log.append(3, loss=0.25), b'{"step": 3, "loss": 0.25}\n'),
        (lambda: log.rewind(2), b""),
    ):
        log.path.write_bytes(b"".join(lines) + torn)
        assert steps_of(log) == [1, 2][:whole]
        repair()
        assert log.path.read_bytes() == b"".join(lines) + after


@pytest.mark.parametrize(
    "line",
    [
        *("oops", "[1, 2]", '{"loss": 1.0}', "7", '{"step": 1e999}', "[" * 100_000),
        *('{"step": 1, "loss": "x"}', '{"step": 1, "loss": [2]}'),
    ],
)
def test_a_broken_line_in_the_middle_is_named(log, line):
    log.append(1, loss=1.0)
    with open(log.path, "a") as file:
        file.write(line + "\n")
    log.append(3, loss=1.0)
    before = log.path.read_bytes()
    for read in (log.records, lambda: log.rewind(1)):
        with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: not a record"):
            read()
    assert log.path.read_bytes() == before


def test_the_best_validation_is_the_first_of_equals(log):
    assert log.best_validation() == (None, 0)
    found = []
    for step, accuracy in enumerate([0.2, 0.5, 0.4, 0.6, 0.6], start=1):
        log.append(step, val_accuracy=accuracy)
        found.append(log.best_validation())
    assert found == [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1)]


def test_a_validation_is_the_last_or_the_best(log):
    assert log.validation() == log.validation(best=True) == {}
    for step, accuracy in enumerate([0.2, 0.6, 0.4], start=1):
        log.append(step, val_accuracy=accuracy, val_loss=step / 2)
    names = ("validation_accuracy", "validation_loss")
    assert log.validation() == dict(zip(names, (0.4, 1.5), strict=True))
    assert log.validation(best=True) == dict(zip(names, (0.6, 1.0), strict=True))


def test_the_best_balanced_accuracy_is_the_best(log):
    for step, (accuracy, balanced) in enumerate([(0.9, 0.5), (0.8, 0.7)], start=1):
        shares = {"val_accuracy": accuracy, "val_balanced_accuracy": balanced}
        log.append(step, **shares, val_loss=0.1)
    log.append(3, loss=0.1)
    assert log.best_validation() == (2, 0)
    assert log.validation(best=True) == {
        "validation_accuracy": 0.8,
        "validation_balanced_accuracy": 0.7,
        "validation_loss": 0.1,
    }


# The log of a run


def metrics_of(step):
    return {
        "loss": 1.0 / step,
        "accuracy": step / 10,
        "gradient_norm": 2.0 * step,
        "learning_rate": 0.01 * step,
        "seconds": 0.25 * step,
    }


def test_the_log_of_a_run_writes_means_over_its_window(log, tmp_path, capsys):
    # The log of other hosts does nothing.
    null_log = NullLog()
    null_log(1, metrics_of(1))
    null_log.validation(1, val_loss=0.1, val_accuracy=0.5)
    assert capsys.readouterr() == ("", "")
    sizes = {"steps": 400, "start_step": 0, "batch_size": 8, "examples": 40}
    run_log = RunLog(log, tmp_path / "tensorboard", **sizes)
    for step in (1, 2, 3):
        run_log(step, metrics_of(step))
    assert steps_of(log) == [2]
    run_log.flush(3)
    run_log.flush(3)
    run_log.write(3, val_loss=0.5)
    run_log.close()
    first, second, validation = log.records()
    expected = {
        "loss": 0.75,
        "accuracy": 0.15,
        "gradient_norm": 3.0,
        "learning_rate": 0.015,
        "seconds": 0.75,
        "images_per_second": 16 / 0.75,
    }
    assert first == pytest.approx({"step": 2, **expected})
    assert second["step"] == 3 and second["loss"] == pytest.approx(1 / 3)
    assert second["images_per_second"] == pytest.approx(8 / 0.75)
    assert validation == {"step": 3, "val_loss": 0.5}
    [path] = (tmp_path / "tensorboard").iterdir()
    events = [
        (value.tag, event.step, pytest.approx(float(tf.make_ndarray(value.tensor))))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert {name for name, _, _ in events} == expected.keys() | {"val_loss"}
    losses = ("loss", 2, 0.75), ("loss", 3, 1 / 3), ("val_loss", 3, 0.5)
    assert all(one in events for one in losses)


def test_the_progress_bar_shows_where_a_resumed_run_is(log, tmp_path, capsys):
    sizes = {"steps": 10, "start_step": 6, "batch_size": 8, "examples": 40}
    run_log = RunLog(log, tmp_path / "tensorboard", **sizes)
    for step in range(7, 11):
        run_log(step, metrics_of(step))
    run_log.close()
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("reading images and compiling the step, a minute or so")
    # 8 images in the last step's 2.5 seconds.
    for part in ("6/10", "10/10", "loss=0.100", "accuracy=100.0%", "epoch=2"):
        assert part in last or part in first


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_step_once_saved(number):
    before = signal.getsignal(number)
    saved = []
    with pytest.raises(RunError) as stopped, SignalHandler(saved.append) as handler:
        handler.after(1)
        assert saved == []
        os.kill(os.getpid(), number)
        handler.after(2)
    assert saved == [2]
    assert isinstance(stopped.value, Preempted) == (number == signal.SIGTERM)
    for part in (signal.Signals(number).name, "step 2", "the same command goes on"):
        assert part in str(stopped.value)
    assert signal.getsignal(number) == before
