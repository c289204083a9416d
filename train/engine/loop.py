"""The training loop: steps, validation, checkpoints, resume; and evaluation."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from train.common.errors import DIVERGED, RunError, explaining_full_memory
from train.data.pipeline import NO_LABEL
from train.engine.callbacks import NullLog, RunLog, SignalHandler
from train.engine.metric_log import MetricLog
from train.engine.step import Devices, Trainer, one_behind
from zoo.network.head import softmax

# Fetch metrics from the devices this often, and after this many steps at most.
FETCH_SECONDS = 1.0
FETCH_STEPS = 100


class TrainingLoop:
    """The steps of a `train.run.training.Run` that are left after its checkpoint.

    With a `train.engine.pace.Pace` their number is what fits in its time, instead of
    the recipe's.
    """

    def __init__(self, run, pace=None):
        self.run, self.pace = run, pace
        self.recipe, self.trainer, self.devices = run.recipe, run.trainer, run.devices
        self.steps = math.inf if pace else run.recipe.steps
        self.checkpoints = self.devices.checkpoints(run.directory.checkpoints)
        self.metrics = MetricLog(run.directory.metrics)
        self.log = NullLog()

    def train(self) -> None:
        """Takes the steps; where a `RunError` ends them, what is saved is whole."""
        recipe, trainer, devices = self.recipe, self.trainer, self.devices
        start_step = self._restore()
        with contextlib.ExitStack() as stack:
            stack.enter_context(explained_device_errors(devices))
            if devices.is_chief:
                self.metrics.rewind(start_step)
                self.run.announce()
                if devices.description:
                    print(devices.description)
            is_over = self._chief_decides(self._is_over)
            if devices.is_chief:
                self._announce_resume(start_step, is_over)
                self.log = RunLog(
                    self.metrics,
                    self.run.directory.tensorboard,
                    steps=recipe.steps,
                    start_step=start_step,
                    batch_size=recipe.batch_size,
                    examples=self.run.source.train.num_examples,
                )
            stack.callback(self.log.close)
            stack.callback(self.checkpoints.wait)
            signals = stack.enter_context(SignalHandler(self._save, devices.all_gather))
            for step in take_steps(
                trainer,
                self.run.batches(start_step),
                self.log,
                start_step=start_step,
                steps=start_step if is_over else self.steps,
                intervals=self._intervals(),
                all_gather=devices.all_gather,
                prepare=self._prepare,
                is_stopped=signals.came,
            ):
                stops = self._validates(step) and self._validate(step)
                if self.pace is not None and self._paced(step):
                    self._save(step)
                    stops = True
                if step % recipe.checkpoint_interval == 0 or step == self.steps:
                    self._save(step)
                signals.after(step)
                if stops:
                    break
            if recipe.early_stopping:
                # Wait until all workers have seen the last validation and its file.
                self.checkpoints.wait()
                devices.all_gather(0)
                self.checkpoints.restore_best(trainer.variables)
                if devices.is_chief:
                    best, _ = self.metrics.best_validation()
                    self.log.print(
                        f"the best validation was after step {best:,}: taking the "
                        "weights of then"
                    )

    def _intervals(self):
        own = () if self.pace is None else (self.pace.every,)
        return (self.recipe.eval_interval, self.recipe.checkpoint_interval, *own)

    def _restore(self):
        """Restores the newest checkpoint and returns its step."""
        step = self.checkpoints.restore(self.trainer.variables)
        with self.devices.explain_lost_worker():
            steps = self.devices.all_gather(step)
        if len(set(steps)) > 1:
            raise RunError(
                f"The workers found checkpoints of steps {steps} in "
                f"{self.checkpoints.folder}: pass a --run_dir on a disk that all of "
                "them share."
            )
        self.trainer.spread_seeds()
        return step

    def _announce_resume(self, start_step, is_over):
        if start_step >= self.steps:
            print("all steps were taken before: testing and reporting again")
        elif is_over:
            how = "stopped early" if self.pace is None else "has used its time"
            print(
                f"the run {how}, after step {start_step:,}: testing and reporting again"
            )
        elif start_step:
            print(f"going on after step {start_step:,}")
        if self.recipe.early_stopping and self.metrics.best_validation()[0]:
            # Fail now rather than after the last step.
            self.checkpoints.require_best()

    def _chief_decides(self, decide):
        """Returns on all hosts the bool that a function returns on the first."""
        decision = int(self.devices.is_chief and decide())
        return bool(max(self.devices.all_gather(decision)))

    def _is_over(self):
        """Returns whether the run ends early."""
        if self.pace is not None and self.pace.is_over(self.trainer.optimizer):
            return True
        if not self.recipe.early_stopping:
            return False
        _, later = self.metrics.best_validation()
        return later >= self.recipe.early_stopping

    def _paced(self, step):
        """Moves the schedule by the clock; returns whether it is at its end."""
        is_over = self.pace.keep(self.trainer.optimizer)
        if self.pace.steps_left is not None:
            self.log.expect(step + self.pace.steps_left)
        return is_over

    def _save(self, step):
        if self.devices.saves and step not in self.checkpoints.steps():
            # Steps logged up to here must not be logged again after a resume.
            self.log.flush(step)
            self.checkpoints.save(step, self.trainer.variables)

    def _save_best(self):
        if self.devices.saves:
            self.checkpoints.save_best(self.trainer.variables)

    def _validates(self, step):
        return step % self.recipe.eval_interval == 0 or step == self.steps

    def _prepare(self, step):
        """Starts to read validation images while the step before is under way."""
        if self._validates(step):
            self.validation = self.run.validation_batches()

    def _validate(self, step):
        """Validates, if there are images for it; returns whether the run stops."""
        with self.trainer.averaged():
            if metrics := self.run.validate(self.validation):
                loss = metrics["val_loss"]
                check_finite(f"The validation loss after step {step}", loss)
                self.log.validation(step, **metrics)
            if self.recipe.explained_images and self.devices.is_chief:
                self._draw(step)
        if not metrics:
            return False
        if self.recipe.early_stopping and self._chief_decides(
            lambda: self.metrics.best_validation()[0] == step
        ):
            self._save_best()
        stops = self._chief_decides(self._is_over)
        if stops:
            # From this checkpoint the same command has nothing left to do.
            self._save(step)
        return stops

    def _draw(self, step):
        try:
            self.log.images(step, self.run.pictures(step))
        except ValueError as error:
            # Weights that are not finite have no pictures, which is no reason to stop.
            self.log.print(f"step {step}: no pictures for TensorBoard: {error}")


def take_steps(
    trainer: Trainer,
    batches: Iterable,
    log: Callable[[int, dict], None],
    *,
    start_step: int,
    steps: float,
    intervals: Sequence[int] = (),
    all_gather: Callable[[int], list] = lambda number: [number],
    prepare: Callable[[int], None] = lambda step: None,
    is_stopped: Callable[[], int] = lambda: False,
) -> Iterator:
    """Takes the steps after `start_step`, up to `steps` in all, which may be infinite.

    Metrics stay on the devices and are fetched together, about once a second, while
    `trainer.ahead` steps run. At every multiple of `intervals` no step is left running,
    nor once `is_stopped`: there the number of steps is yielded, and signals, validation
    and checkpoints have their turn; `prepare` gets it before the last fetch. `log` gets
    each step's number and a dict of finite floats: those of `Trainer.step`, and
    `seconds`, the wall time since the fetch before, or since the beginning, divided by
    the steps: waiting for images, compiling, and what was done between the steps are
    in it. `all_gather` is that of the devices: all hosts fetch after the same steps.
    """
    before = time.perf_counter()
    batches = iter(batches)
    pending, most, is_alone = [], 1, False
    numbers = itertools.count(start_step + 1)
    for step in itertools.takewhile(lambda step: step <= steps, numbers):
        pending.append(trainer.step(*next(batches)))
        is_due = step == steps or any(step % interval == 0 for interval in intervals)
        # Steps may have become slower. Several hosts have different clocks.
        is_late = is_alone and time.perf_counter() - before >= FETCH_SECONDS
        if len(pending) - trainer.ahead < most and not (is_due or is_late):
            continue
        while len(pending) > trainer.ahead or (pending and (is_due or is_stopped())):
            count = max(len(pending) - trainer.ahead, 1)
            first = step - len(pending) + 1
            if is_due and count == len(pending):
                prepare(step)
            fetched, pending = trainer.fetch(pending[:count]), pending[count:]
            now = time.perf_counter()
            seconds, before = (now - before) / count, now
            for number, metrics in enumerate(fetched, start=first):
                _check(number, metrics)
                log(number, {**metrics, "seconds": seconds})
            counts = all_gather(min(max(int(FETCH_SECONDS / seconds), 1), FETCH_STEPS))
            most, is_alone = min(counts), len(counts) == 1
        if not pending:
            yield step


def _check(step, metrics):
    for name, value in metrics.items():
        check_finite(f"The {name} of step {step}", value)
    if metrics.get("loss_scale", 1.0) < 1.0:
        raise RunError(
            f"At step {step} gradients overflow whatever the scale of the loss: use "
            "--precision=mixed_bfloat16 or float32. The checkpoints before it are kept."
        )


def evaluate(
    trainer: Trainer,
    batches: Iterable,
    keep: Callable[[np.ndarray, np.ndarray], Any],
    on_batch: Callable[[int], None] | None = None,
    values: Callable[[np.ndarray], np.ndarray] = softmax,
) -> tuple:
    """Runs the model over all batches (images, labels), the last and smaller one too.

    `keep` gets labels (batch,) int32 and probabilities (batch, classes) float32 of each
    batch, as NumPy arrays: what `values` returns of logits. Several labels and numbers
    are float32 (batch, outputs). Returns a list of what it returns, and the trainer's
    mean loss over the examples, a float. `on_batch` gets the number of examples done so
    far.
    """
    kept, done, loss = [], 0, 0.0
    for labels, logits, losses in answered(trainer, batches):
        kept.append(keep(labels, values(logits)))
        loss += losses.sum(dtype="float64")
        done += len(labels)
        if on_batch is not None:
            on_batch(done)
    return kept, float(loss / done)


def answered(trainer: Trainer, batches: Iterable) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields labels, logits and losses of the examples of each batch (images, labels).

    They are NumPy arrays, (batch,), (batch, classes) and (batch,).
    """
    for answers in one_behind(itertools.starmap(trainer.answers, batches)):
        labels, logits, losses = map(ops.convert_to_numpy, answers)
        # Labels of several values are floats, NaN where there is none.
        is_filling = (
            np.isnan(labels) if labels.dtype.kind == "f" else labels == NO_LABEL
        )
        counted = ~is_filling.reshape(len(labels), -1).any(axis=1)
        yield labels[counted], logits[counted], losses[counted]


def check_finite(name: str, value: float) -> None:
    """Raises a `RunError` where a number, such as "The loss of step 3", is not."""
    if not np.isfinite(value):
        raise RunError(f"{name} is {value}: {DIVERGED}")


@contextlib.contextmanager
def explained_device_errors(devices: Devices) -> Iterator[None]:
    """Raises a `RunError` for a lost worker or full memory."""
    remedy = (
        "raise --micro_batches, pass --remat, lower --image_size or choose a smaller "
        "--model."
    )
    with devices.explain_lost_worker(), explaining_full_memory(remedy):
        yield
