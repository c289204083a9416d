"""What happens after a training step: progress, logs, checkpoints, validation."""

import signal
import threading

import numpy as np
import tensorflow as tf

from train.common.errors import Preempted, Stopped
from train.common.progress import progress_bar


class Progress:
    """One line with loss, accuracy, images/s by wall time and the time left.

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

    def show(self, step, pictures):
        """Writes pictures of a step to TensorBoard.

        Args:
            step: int.
            pictures: dict of uint8 arrays (height, width, 3) by name.
        """
        with self.writer.as_default(step):
            for name, picture in pictures.items():
                tf.summary.image(name, picture[None])
        self.writer.flush()


class Diary:
    """Tells of a run and writes it down.

    Args:
        log: `StepLog`.
        progress: `Progress`.
    """

    def __init__(self, log, progress):
        self.log = log
        self.progress = progress

    def __call__(self, step, metrics):
        self.progress(step, metrics)
        self.log(step, metrics)

    def flush(self, step):
        """Writes what there is up to a step."""
        self.log.flush(step)

    def validated(self, step, **found):
        """Notes how the held out examples did."""
        self.log.write(step, **found)
        self.say(
            f"step {step}: validation accuracy {found['val_accuracy']:.1%}, "
            f"loss {found['val_loss']:.3f}"
        )

    def show(self, step, pictures):
        """Puts pictures on TensorBoard."""
        self.log.show(step, pictures)

    def say(self, line):
        """Tells something beside the progress."""
        self.progress.bar.write(line)

    def close(self):
        """Leaves the progress as it is."""
        self.progress.close()


class Silence:
    """The diary of the processes that another one speaks for."""

    def __call__(self, step, metrics=None, **found):
        """Says nothing."""

    validated = flush = __call__

    def close(self):
        """Has nothing to leave."""


class EarlyStopping:
    """Keeps the best weights, and ends a run that has long not got better.

    It goes by what the log says, so that a resumed run decides as the unbroken one.

    Args:
        log: `train.engine.metrics.MetricLog`.
        patience: int, validations without a better accuracy; 0 for no end.
        keep: function that saves the weights as the best.
    """

    def __init__(self, log, patience, keep):
        self.log = log
        self.patience = patience
        self.keep = keep

    def after(self, step):
        """Returns whether the run ends with the validation after this step."""
        if not self.patience:
            return False
        best, later = self.best()
        if best == step:
            self.keep()
        return later >= self.patience

    def is_over(self):
        """Returns whether the run has ended by what the log has of it."""
        if not self.patience or not len(self.log.series("val_accuracy")[0]):
            return False
        return self.best()[1] >= self.patience

    def best(self):
        """Returns the step of the best validation, and how many came after it."""
        steps, accuracies = self.log.series("val_accuracy")
        place = int(np.argmax(accuracies))
        return int(steps[place]), len(steps) - 1 - place


class Every:
    """Calls a function every so many steps, and after the last.

    Args:
        interval: int, steps.
        last_step: int.
        function: function of the number of steps taken; if it returns True, the run
            ends.
    """

    def __init__(self, interval, last_step, function):
        self.interval = interval
        self.last_step = last_step
        self.function = function

    def __call__(self, step, metrics):
        if step % self.interval == 0 or step == self.last_step:
            return self.function(step)
        return None


class StopOnSignal:
    """Ends the run after the step in which SIGINT or SIGTERM came, once saved.

    Used as a context: outside of it the signals do what they did before.

    Args:
        save: function of the number of steps taken.
        everyone: function of this process's signal, an int, 0 for none, to those of
            all processes of the run, which stop together.
    """

    def __init__(self, save, everyone=lambda number: [number]):
        self.save = save
        self.everyone = everyone
        self.received = 0

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
        self.received = number

    def __call__(self, step, metrics):
        if received := max(self.everyone(self.received)):
            self.save(step)
            name = signal.Signals(received).name
            message = (
                f"Stopped by {name} after step {step}, which is saved: "
                "the same command goes on from there."
            )
            # Who takes the machine away has had what it asked for.
            raise (Preempted if received == signal.SIGTERM else Stopped)(message)
