"""Callbacks of the training loop: logs and signals."""

import signal
import threading

import numpy as np
import tensorflow as tf

from train.common.errors import Preempted, Stopped
from train.engine.metric_log import LEADING
from zoo.store.progress import progress_bar


class RunLog:
    """Progress bar, metric log and TensorBoard of a run.

    A run has 200 records, each of the means over `every` steps. `examples` are those
    of an epoch.
    """

    def __init__(
        self, metrics, tensorboard, *, steps, start_step, batch_size, examples
    ):
        self.metrics = metrics
        self.batch_size = batch_size
        self.examples = examples
        self.every = max(steps // 200, 1)
        self.writer = tf.summary.create_file_writer(str(tensorboard))
        self.window = []
        self.bar = progress_bar(
            first="reading images and compiling the step, a minute or so",
            total=steps,
            initial=start_step,
            unit="step",
            desc="training",
        )
        # Prints a line above the progress bar.
        self.print = self.bar.write
        self.close = self.bar.close

    def __call__(self, step, metrics):
        """Takes a step's metrics from `train.engine.loop.take_steps`."""
        self.bar.set_postfix(
            {
                "epoch": f"{step * self.batch_size / self.examples:.3g}",
                "loss": f"{metrics['loss']:.3f}",
                "accuracy": f"{metrics['accuracy']:.1%}",
                "images/s": f"{self.batch_size / metrics['seconds']:.0f}",
            },
            refresh=False,
        )
        self.bar.update()
        self.window.append(metrics)
        if step % self.every == 0:
            self.flush(step)

    def flush(self, step: int) -> None:
        """Writes the means over the steps since the last record."""
        if not self.window:
            return
        means = {
            name: sum(metrics[name] for metrics in self.window) / len(self.window)
            for name in self.window[0]
        }
        seconds = means.pop("seconds")
        self.write(
            step,
            **means,
            seconds=seconds * len(self.window),
            images_per_second=self.batch_size / seconds,
        )
        self.window = []

    def write(self, step: int, **values: float) -> None:
        self.metrics.append(step, **values)
        with self.writer.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        self.writer.flush()

    def validation(self, step: int, **values: float) -> None:
        """Writes and prints a validation: `val_loss`, `val_accuracy` and the like."""
        self.write(step, **values)
        shares = [
            f"{name.replace('_', ' ')} {values[f'val_{name}']:.1%}"
            for name in LEADING
            if f"val_{name}" in values
        ]
        if (error := values.get("val_mean_absolute_error")) is not None:
            shares.append(f"mean absolute error {error:.4g}")
        measured = ", ".join([*shares, f"loss {values['val_loss']:.3f}"])
        self.print(f"step {step}: validation {measured}")

    def expect(self, steps: int) -> None:
        """Shows that there will be about so many steps in all."""
        self.bar.total = steps

    def images(self, step: int, images: dict[str, np.ndarray]) -> None:
        """Writes images for TensorBoard: uint8 arrays (height, width, 3) by name."""
        with self.writer.as_default(step):
            for name, image in images.items():
                tf.summary.image(name, image[None])
        self.writer.flush()


class NullLog:
    """No-op `RunLog` for all hosts but the first."""

    def __call__(self, *args, **values):
        """Does nothing."""

    flush = write = validation = expect = images = print = close = __call__


class SignalHandler:
    """Saves and ends the run after the step in which SIGINT or SIGTERM came.

    A context: outside of it the signals do what they did before. `all_gather` takes
    this process's signal, 0 for none, and returns those of all processes of the run,
    which stop together.
    """

    def __init__(self, save, all_gather=lambda number: [number]):
        self.save = save
        self.all_gather = all_gather
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

    def came(self) -> int:
        """Returns the signal that a process of the run received, 0 for none."""
        return max(self.all_gather(self.received))

    def after(self, step: int) -> None:
        """Raises `Preempted` (SIGTERM) or `Stopped` after this step for a signal."""
        if received := self.came():
            self.save(step)
            name = signal.Signals(received).name
            message = (
                f"Stopped by {name} after step {step}, which is saved: "
                "the same command goes on from there."
            )
            raise (Preempted if received == signal.SIGTERM else Stopped)(message)
