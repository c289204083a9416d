"""The learning rate range test: --find_learning_rate.

Source:
    Cyclical Learning Rates for Training Neural Networks, arXiv 1506.01186, section 3.3.
"""

import contextlib
import itertools
import math
import os
import pathlib
import shlex
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from train.common import markdown
from train.common.files import write_json, write_text
from train.common.typed_flags import without_flags
from train.data.options import DEFAULTS, DataOptions
from train.engine import reproducibility
from train.engine.callbacks import NullLog, RunLog
from train.engine.devices import start
from train.engine.loop import explained_device_errors
from train.engine.metric_log import MetricLog
from train.engine.schedules import ExponentialRise
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.reports import figures
from train.run import plan, training
from train.run.task import Task
from zoo.common.regular_files import expand_home

STEPS = 100
# Rates are tried from the recipe's divided by this to the recipe's times this.
RANGE = 1000.0
# A point of the curve is the mean loss of this many steps.
WINDOW = 7
# The test ends where the loss is above the first, and this many times the lowest.
DIVERGED = 4.0

RULE = (
    "The rate at which the loss falls fastest as the rate rises, and at most a tenth "
    "of the rate at which it diverges."
)
_TEMPLATE = pathlib.Path(__file__).with_name("learning_rate.md.jinja")


def find(
    task: Task,
    *,
    run_dir: str | os.PathLike,
    data_options: DataOptions = DEFAULTS,
    devices: Devices | None = None,
    command: str = "",
) -> dict | None:
    """Trains with a rising learning rate, and suggests one from the losses.

    Writes `report.md`, `report.json`, `loss.png` and TensorBoard logs into the folder
    `learning_rate` of the run directory, and nothing that a run would go on from. The
    arguments are those of `train.run.training.run`, and so are optimizer, micro-batches
    and the clip of gradients; there is no warm-up and no average of weights.

    Returns a dict, as in `report.json`, where `suggested` is None if the loss did not
    fall; None on all hosts but the first.
    """
    devices = devices or start("one")
    plan.settle(task, RunDirectory(run_dir), devices, average_decay=0.0)
    recipe = task.recipe
    directory = RunDirectory(expand_home(run_dir) / "learning_rate")
    low, high = recipe.learning_rate / RANGE, recipe.learning_rate * RANGE
    with contextlib.ExitStack() as stack:
        if devices.is_chief:
            stack.enter_context(directory.locked())
        stack.enter_context(reproducibility.seeded(recipe.seed, recipe.precision))
        source = training.suitable_source(task, devices, data_options)
        rise = ExponentialRise(low, high, steps=STEPS)
        run = training.built(task, source, directory, devices, rise)
        training.begin(task, devices)
        devices.print(
            f"{source.name}: at most {STEPS} steps of {recipe.batch_size} images, "
            f"with learning rates from {low:g} to {high:g}"
        )
        with explained_device_errors(devices):
            measured = _range_test(run, devices)
        if not devices.is_chief:
            return None
        return _report(directory, task, measured, command)


def _forget_events(folder):
    """Removes what an earlier test has logged for TensorBoard, and nothing else."""
    if folder.is_symlink():
        return
    for file in folder.glob("events.out.tfevents.*"):
        if file.is_file() and not file.is_symlink():
            file.unlink()


def _range_test(run, devices):
    """Returns the arguments of `suggest`."""
    trainer, directory, log = run.trainer, run.directory, NullLog()
    if devices.is_chief:
        _forget_events(directory.tensorboard)
        metric_log = MetricLog(directory.metrics)
        metric_log.rewind(0)
        log = RunLog(
            metric_log,
            directory.tensorboard,
            steps=STEPS,
            start_step=0,
            batch_size=run.recipe.batch_size,
            examples=run.source.train.num_examples,
        )
    rates, losses, lowest, diverged = [], [], math.inf, False
    trainer.spread_seeds()
    before = time.perf_counter()
    # The last step only shows what the one before it did.
    batches = itertools.islice(run.batches(0), STEPS + 1)
    for step, batch in enumerate(batches):
        [metrics] = trainer.fetch([trainer.step(*batch)])
        rate = metrics.pop("learning_rate")
        losses.append(metrics["loss"])
        if diverged := not all(map(math.isfinite, metrics.values())):
            losses[-1] = math.inf
            break
        if step:
            seconds = time.perf_counter() - before
            log(step, {**metrics, "learning_rate": rates[-1], "seconds": seconds})
        before = time.perf_counter()
        recent = float(np.mean(losses[-3:]))
        lowest = min(lowest, recent)
        if diverged := recent > max(DIVERGED * lowest, losses[0]):
            break
        rates.append(rate)
    log.close()
    return rates[: len(losses) - 1], losses[1:], diverged


def suggest(rates: Sequence[float], losses: Sequence[float], diverged: bool) -> dict:
    """Returns what a range test shows, whose rates do not fall.

    `losses` are those after the steps, of which the last may be infinite. `suggested`
    is the rate by `RULE`, None where the loss did not fall by more than it varies;
    `diverged` the rate from which on it diverged, or None; `smoothed` the means of
    `WINDOW` losses, the steps in their middle.
    """
    rates, losses = np.array(rates, "float64"), np.array(losses, "float64")
    diverged = float(rates[-1]) if diverged and len(rates) else None
    finite = np.isfinite(losses)
    rates, losses = rates[finite], losses[finite]
    suggestion = {"suggested": None, "diverged": diverged, "smoothed": losses.tolist()}
    # Rounded rates may repeat, or be zero: no slope is between them.
    rises = np.diff(rates, prepend=0.0) > 0
    if np.count_nonzero(rises) < WINDOW:
        return suggestion
    smoothed = figures.moving_average(losses, WINDOW)
    suggestion["smoothed"] = smoothed.tolist()
    rates, losses, smoothed = rates[rises], losses[rises], smoothed[rises]
    bottom = int(smoothed.argmin())
    noise = (losses - smoothed)[: bottom + 1].std()
    if bottom < 1 or smoothed[0] - smoothed[bottom] <= 3 * noise:
        return suggestion
    slopes = np.gradient(smoothed, np.log10(rates))
    rate = rates[slopes[: bottom + 1].argmin()]
    if diverged is not None:
        rate = min(rate, diverged / 10)
    return suggestion | {"suggested": float(f"{rate:.2g}")}


def _report(directory, task, measured, command):
    rates, losses, _ = measured
    suggestion = suggest(*measured)
    text = _sentence(suggestion, task.recipe)
    again = _command(command, suggestion["suggested"])
    results = {
        "suggested": suggestion["suggested"],
        "diverged": suggestion["diverged"],
        "sentence": text,
        "command_to_go_on": again,
        "learning_rates": rates,
        "losses": [loss if math.isfinite(loss) else None for loss in losses],
        "smoothed_losses": suggestion["smoothed"],
        "command": command,
        "config": task.written_settings(directory),
    }
    picture = directory.path / "loss.png"
    figures.draw_range_test(picture, rates, losses, suggestion)
    writer = tf.summary.create_file_writer(str(directory.tensorboard))
    with writer.as_default(len(rates)):
        image = tf.io.decode_png(picture.read_bytes(), channels=3)
        tf.summary.image("loss over learning rate", image[None])
    writer.close()
    page = markdown.render(
        _TEMPLATE,
        title=f"The learning rate of {task.recipe.run_name}",
        sentence=text,
        rule=RULE,
        steps=len(rates),
        window=WINDOW,
        picture=picture.name,
        command=command,
        again=again,
        config=results["config"],
    )
    write_text(directory.report, page)
    write_json(directory.results, results)
    return results | {"report": str(directory.report)}


def _sentence(suggestion, recipe):
    low, high = recipe.learning_rate / RANGE, recipe.learning_rate * RANGE
    if suggestion["suggested"] is None:
        return (
            f"No suggestion: the loss did not fall at any rate from {low:g} to "
            f"{high:g} by more than it varies. Pass another --learning_rate to look "
            "around, or a larger --batch_size."
        )
    ended = f"The loss diverged at no rate up to {high:g}."
    if suggestion["diverged"] is not None:
        ended = f"The loss diverged at {suggestion['diverged']:.2g}."
    return (
        f"Suggested learning rate: {suggestion['suggested']:g}, instead of "
        f"{recipe.learning_rate:g}. {ended}"
    )


def _command(command, rate):
    """Returns the command that trains with a rate, "" without one or a command."""
    if rate is None or not command:
        return ""
    kept = without_flags(command, ["find_learning_rate", "learning_rate"])
    return shlex.join([*kept, f"--learning_rate={rate:g}"])


def summary(results: dict) -> str:
    """Returns what the command prints at its end."""
    lines = [results["sentence"]]
    if results["command_to_go_on"]:
        lines.append(results["command_to_go_on"])
    return "\n".join([*lines, f"report  {results['report']}"])
