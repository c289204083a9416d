"""What happens after a training step: progress, logs, checkpoints, validation."""

import signal
import sys
import threading

import tensorflow as tf
from tqdm import tqdm

from train.errors import RunError


def progress_bar(**settings):
    """Returns a progress bar that does not flood a log file.

    Args:
        **settings: of `tqdm.tqdm`.
    """
    # In a log file every refresh is a line of its own.
    interval = 0.5 if sys.stderr.isatty() else 20.0
    return tqdm(**settings, dynamic_ncols=True, mininterval=interval)


class Progress:
    """One line with loss, accuracy, images/s and the time left.

    Args:
        steps: int, of the run.
        start_step: int, steps already taken.
        batch_size: int.
    """

    def __init__(self, steps, start_step, batch_size):
        self.batch_size = batch_size
        self.bar = progress_bar(
            total=steps, initial=start_step, unit="step", desc="training"
        )

    def __call__(self, step, metrics):
        self.bar.set_postfix(
            {
                "loss": f"{metrics['loss']:.3f}",
                "accuracy": f"{metrics['accuracy']:.1%}",
                "images/s": f"{self.batch_size / metrics['seconds']:.0f}",
            },
            refresh=False,
        )
        self.bar.update()

    def close(self):
        """Leaves the line as it is."""
        self.bar.close()


class StepLog:
    """Means over a few steps, to the metric log and to TensorBoard.

    Args:
        log: `MetricLog`.
        tensorboard: path of the folder for TensorBoard.
        every: int, steps.
        batch_size: int.
    """

    def __init__(self, log, tensorboard, every, batch_size):
        self.log = log
        self.every = every
        self.batch_size = batch_size
        self.writer = tf.summary.create_file_writer(str(tensorboard))
        self.steps = []

    def __call__(self, step, metrics):
        self.steps.append(metrics)
        if step % self.every == 0:
            self.flush(step)

    def flush(self, step):
        """Writes the mean over the steps since the last time.

        Args:
            step: int, steps taken so far.
        """
        if not self.steps:
            return
        means = {
            name: sum(metrics[name] for metrics in self.steps) / len(self.steps)
            for name in self.steps[0]
        }
        seconds = means.pop("seconds")
        self.write(
            step,
            **means,
            seconds=seconds * len(self.steps),
            images_per_second=self.batch_size / seconds,
        )
        self.steps = []

    def write(self, step, **values):
        """Writes values of a step.

        Args:
            step: int.
            **values: floats.
        """
        self.log.append(step, **values)
        with self.writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.writer.flush()


class Every:
    """Calls a function every so many steps, and after the last.

    Args:
        interval: int, steps.
        last_step: int.
        function: function of the number of steps taken.
    """

    def __init__(self, interval, last_step, function):
        self.interval = interval
        self.last_step = last_step
        self.function = function

    def __call__(self, step, metrics):
        if step % self.interval == 0 or step == self.last_step:
            self.function(step)


class StopOnSignal:
    """Ends the run after the step in which SIGINT or SIGTERM came, once saved.

    Used as a context: outside of it the signals do what they did before.

    Args:
        save: function of the number of steps taken.
    """

    def __init__(self, save):
        self.save = save
        self.received = None

    def __enter__(self):
        self.previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def _receive(self, number, _):
        self.received = signal.Signals(number)

    def __call__(self, step, metrics):
        if self.received is not None:
            self.save(step)
            raise RunError(
                f"Stopped by {self.received.name} after step {step}, which is saved: "
                "the same command goes on from there."
            )
