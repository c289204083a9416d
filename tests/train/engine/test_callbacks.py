import os
import signal

import pytest
import tensorflow as tf

from train.common.errors import Preempted, RunError
from train.engine.callbacks import NullLog, RunLog, SignalHandler
from train.engine.metrics import MetricLog


def metrics_of(step):
    return {
        "loss": 1.0 / step,
        "accuracy": step / 10,
        "gradient_norm": 2.0 * step,
        "learning_rate": 0.01 * step,
        "seconds": 0.25 * step,
    }


def events_of(folder):
    """The scalars that TensorBoard will show: {name: [(step, value)]}."""
    events = {}
    for path in sorted(folder.iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                events.setdefault(value.tag, []).append((event.step, number))
    return events


def test_the_log_writes_means_over_its_window(tmp_path):
    metrics = MetricLog(tmp_path / "metrics.jsonl")
    sizes = {"steps": 400, "start_step": 0, "batch_size": 8}
    log = RunLog(metrics, tmp_path / "tensorboard", **sizes)
    for step in (1, 2, 3):
        log(step, metrics_of(step))
    assert [record["step"] for record in metrics.records()] == [2]
    log.flush(3)
    log.flush(3)
    log.write(3, val_loss=0.5)
    log.close()

    first, second, validation = metrics.records()
    assert first == {
        "step": 2,
        "loss": pytest.approx(0.75),
        "accuracy": pytest.approx(0.15),
        "gradient_norm": pytest.approx(3.0),
        "learning_rate": pytest.approx(0.015),
        "seconds": pytest.approx(0.75),
        "images_per_second": pytest.approx(16 / 0.75),
    }
    assert second["step"] == 3 and second["loss"] == pytest.approx(1 / 3)
    assert second["images_per_second"] == pytest.approx(8 / 0.75)
    assert validation == {"step": 3, "val_loss": 0.5}

    events = events_of(tmp_path / "tensorboard")
    assert events.keys() == first.keys() - {"step"} | {"val_loss"}
    assert events["loss"] == [(2, pytest.approx(0.75)), (3, pytest.approx(1 / 3))]
    assert events["val_loss"] == [(3, 0.5)]


def test_the_log_of_other_hosts_does_nothing(capsys):
    log = NullLog()
    log(1, metrics_of(1))
    log.validation(1, val_loss=0.1, val_accuracy=0.5)
    log.print("a line")
    log.close()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_step_once_saved(number):
    before = signal.getsignal(number)
    saved = []
    with SignalHandler(saved.append) as handler:
        handler.after(1)
        assert saved == []
        os.kill(os.getpid(), number)
        with pytest.raises(RunError) as caught:
            handler.after(2)
    assert saved == [2]
    assert isinstance(caught.value, Preempted) == (number == signal.SIGTERM)
    message = str(caught.value)
    assert signal.Signals(number).name in message and "step 2" in message
    assert "the same command goes on" in message
    assert signal.getsignal(number) == before


def test_the_signals_are_handed_back_after_an_error():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), SignalHandler(print):
        assert signal.getsignal(signal.SIGTERM) != before
        raise KeyError
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_progress_bar_shows_where_a_resumed_run_is(tmp_path, capsys):
    metrics = MetricLog(tmp_path / "metrics.jsonl")
    sizes = {"steps": 10, "start_step": 6, "batch_size": 8}
    log = RunLog(metrics, tmp_path / "tensorboard", **sizes)
    log.every = 100
    for step in range(7, 11):
        log(step, metrics_of(step))
    log.close()
    shown = capsys.readouterr().err
    assert "6/10" in shown and "10/10" in shown
    # 8 images in the last step's 2.5 seconds.
    first, last = shown.splitlines()
    assert first.endswith("reading images and compiling the step, a minute or so")
    for part in ("loss=0.100", "accuracy=100.0%", "images/s=3"):
        assert part in last
