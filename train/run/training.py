"""A run from recipe to report, whatever it trains."""

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from keras.optimizers.schedules import LearningRateSchedule

from train.common.errors import RunError
from train.common.files import checkpoint_steps, write_json, write_text
from train.data import columns, pipeline, run_data, sources
from train.data.options import DEFAULTS, DataOptions
from train.data.registry import kind_of
from train.data.review import review
from train.data.sources import corrections
from train.data.sources.splits import Source
from train.engine import reproducibility
from train.engine.devices import start
from train.engine.loop import TrainingLoop, check_finite, explained_device_errors
from train.engine.metric_log import VALIDATED
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.reports.review import findings
from train.run import building, explained_images, micro_batches, plan
from train.run.classification import FineTuning
from train.run.task import Task
from train.tasks import MASKS
from zoo.store.progress import progress_bar


def run(
    task: Task | Recipe,
    *,
    run_dir: str | os.PathLike,
    data_options: DataOptions = DEFAULTS,
    devices: Devices | None = None,
    command: str = "",
    extend: bool = False,
) -> dict | None:
    """Trains a model, or goes on where a killed run left off.

    With `extend` a finished run of fewer steps goes on as well, with the rates that a
    run of the recipe's steps has from there on.

    Each of several hosts calls this function; the first writes the files, which all of
    them must be able to read. Keras's precision and the random numbers of Python and
    NumPy are afterwards as they were.

    `task` is a `train.run.task.Task`, such as
    `train.run.classification.PreTraining(recipe)`, or a `train.recipes.Recipe` for
    `train.run.classification.FineTuning`; `devices` are what
    `train.engine.devices.start` returns, one device by default; `command` is what was
    typed, for the report. The other arguments are flags of `python -m train.finetune`.

    Returns a dict of the results, as in `report.json`; None on all hosts but the first.
    Raises a `RunError` where data, weights, checkpoints or directory are not as needed,
    another run is using the directory, or the loss is not finite.

    Example:
        >>> from train.recipes import for_dataset
        >>> results = run(for_dataset("digits").smoke(), run_dir="runs/digits")
        ... # doctest: +SKIP
    """
    if isinstance(task, Recipe):
        task = FineTuning(task)
    devices = devices or start("one")
    data = functools.cache(
        functools.partial(suitable_source, task, devices, data_options)
    )
    with begun(task, run_dir, devices, data, extend) as directory:
        source = data()
        if devices.is_chief:
            check_source(source, directory, is_decoded=data_options.skip_corrupt)
        this = built(task, source, directory, devices)
        if devices.is_chief:
            directory.extend(task.deciding)
        if not checkpoint_steps(directory.checkpoints):
            begin(task, devices)
        TrainingLoop(this).train()
        with this.trainer.averaged():
            measured = this.evaluate_at_the_end()
            weights = this.trainer.whole_weights()
            if devices.is_chief:
                if weights is not None:
                    # Save and report a model that this host has as a whole.
                    with devices.on_processor():
                        _build_of(task, source, weights)
                task.conclude(measured)
                task.save(directory)
        results = None
        if devices.is_chief:
            results = task.report(directory, measured, command)
        devices.wait()
        return results


def begin(task: Task, devices: Devices) -> None:
    """Gives a task what it begins with, where one process has the whole model."""
    if not (devices.has_hosts or devices.shares_model):
        task.begin()


def _build_of(task, source, weights):
    """Builds a task's model anew, with the values of some arrays."""
    task.build(source)
    for variable, value in zip(task.model.variables, weights, strict=True):
        variable.assign(value)


class Run:
    """A task on its data and devices, for `train.engine.loop.TrainingLoop`."""

    def __init__(self, task, trainer, directory, devices):
        self.task = task
        self.recipe = task.recipe
        self.source = task.source
        self.trainer = trainer
        self.directory = directory
        self.devices = devices
        self.image_size = task.network.input_shape[1:3]
        self.shown = explained_images.choose(
            self.recipe, task.network, self.source.validation or self.source.test
        )

    def announce(self) -> None:
        print(self.task.announcement(self.directory))

    def batches(self, start_step: int) -> Iterator:
        """Yields the training batches after `start_step` steps."""
        recipe = self.recipe
        batches = self._distributed(
            pipeline.training_batches,
            self.source.train,
            batch_size=recipe.batch_size,
            start_step=start_step,
            **self.task.batch_settings,
            classes=len(self.source.class_names),
        )
        for number, batch in enumerate(batches, start=start_step):
            if number == 0 and self.devices.is_chief:
                images, labels = self.trainer.first_device(batch)
                self.task.draw_batch(self.directory.batch, images, labels)
            yield batch

    def validation_batches(self) -> Any:
        """Starts to read the validation images; returns batches, None without any."""
        if self.source.validation is None:
            return None
        batches = self._tested(self.source.validation)
        return itertools.chain([next(batches)], batches)

    def validate(self, batches: Iterable | None) -> dict[str, float] | None:
        """Returns `val_loss`, `val_accuracy` and the like of batches, or None."""
        if batches is None:
            return None
        measured = self.task.evaluate(self.trainer, batches)
        return {f"val_{name}": measured[name] for name in VALIDATED if name in measured}

    def pictures(self, step: int) -> dict[str, np.ndarray]:
        """Returns what the model attends to, pictures by name."""
        return explained_images.pictures(self.task.network, self.shown, step)

    def evaluate_at_the_end(self) -> dict:
        """Returns the evaluation of each split that the task reports, by its name."""
        splits = {
            name: split
            for name in self.task.evaluated
            if (split := getattr(self.source, name)) is not None
        }
        bar = progress_bar(
            first="compiling",
            total=sum(split.num_examples for split in splits.values()),
            unit="image",
            desc="testing",
            disable=not self.devices.is_chief,
        )
        measured = {}
        with bar, explained_device_errors(self.devices):
            for name, split in splits.items():
                measured[name] = self.task.evaluate(
                    self.trainer,
                    self._tested(split),
                    lambda done, start=bar.n: bar.update(start + done - bar.n),
                )
                check_finite(f"The {name} loss", measured[name]["loss"])
        return measured

    def _tested(self, split):
        # The images that a device holds at once in training fit in its memory.
        return self._distributed(
            pipeline.evaluation_batches,
            split,
            batch_size=self.recipe.batch_size // self.trainer.micro_batches,
        )

    def _distributed(self, batches_of, split, **settings):
        """Returns batches on the devices; if reading fails, the error names images."""
        make = functools.partial(
            batches_of,
            split,
            image_size=self.image_size,
            finish=self.task.finish,
            **settings,
        )
        return pipeline.explained(self.devices.batches(make), split)


def suitable_source(
    task: Task, devices: Devices, data_options: DataOptions = DEFAULTS
) -> Source:
    """Returns the data of a task, or raises a `RunError` where they do not suit it."""
    micro_batches.check(task.recipe, devices)
    if task.recipe.explained_images and devices.has_hosts and devices.shares_model:
        raise RunError(
            f"--explained_images={task.recipe.explained_images} draws what a model of "
            "one process attends to, and here each process has a part: leave it out."
        )
    task.check_devices(devices)
    source = load_source(task.recipe, data_options, devices.print)
    if source.train.read_mask is not None and task.recipe.task != MASKS:
        raise RunError(
            f"{source.name} has masks, a class for every pixel: unpack it, and pass "
            "its folder with --task=masks."
        )
    task.check_data(source)
    return source


def built(
    task: Task,
    source: Source,
    directory: RunDirectory,
    devices: Devices,
    schedule: LearningRateSchedule | None = None,
) -> Run:
    """Returns the `Run` of a task, which is built; `schedule` replaces the recipe's."""
    with devices.strategy.scope():
        task.build(source)
        task.micro_batches = micro_batches.number_of(task, devices, directory)
        parts = devices.micro_batches(task.recipe.batch_size, task.micro_batches)
        trainer = building.trainer(task, devices, parts, schedule)
    return Run(task, trainer, directory, devices)


@contextlib.contextmanager
def begun(
    task: Task,
    run_dir: str | os.PathLike,
    devices: Devices,
    data: Callable[[], Source],
    extend: bool = False,
) -> Iterator[RunDirectory]:
    """Locks and yields the directory of a run, and sets the run's seed and precision.

    The plan of the task is settled before, see `train.run.plan.settle` for `data`.

    Raises a `RunError` where it cannot be written, holds another run, or is in use.
    """
    directory = RunDirectory(run_dir)
    plan.settle(task, directory, devices, data)
    with contextlib.ExitStack() as stack:
        if devices.is_chief:
            stack.enter_context(directory.locked())
            directory.claim(task.deciding, extend=extend)
        recipe = task.recipe
        stack.enter_context(reproducibility.seeded(recipe.seed, recipe.precision))
        yield directory


def load_source(
    recipe: Recipe,
    data_options: DataOptions = DEFAULTS,
    log: Callable[[str], None] = print,
) -> Source:
    """Returns the recipe's data, cut down to the examples that it asks for.

    Raises a `ValueError` for options with bits or columns, which a recipe has.
    """
    of_recipe = {
        "bits": recipe.bits,
        "columns": columns.of_settings(vars(recipe)),
        "task": recipe.task,
        "ignore": recipe.ignore,
    }
    if any(
        getattr(data_options, name) != getattr(DEFAULTS, name) for name in of_recipe
    ):
        raise ValueError(
            "Bits, columns, task and ignore of a run are settings of its recipe: pass "
            "recipe.override(bits=12) instead of DataOptions(bits=12)."
        )
    source = sources.load(
        recipe.dataset,
        data_options,
        validation_fraction=recipe.validation_fraction,
        log=log,
        **of_recipe,
    )
    return run_data.limit(source, recipe.train_examples, recipe.test_examples)


def check_source(source: Source, directory: RunDirectory, *, is_decoded: bool) -> None:
    """Makes sure that a run has the data it began with, and will be able to test.

    A run without checkpoint, on the user's own files, prints what is notable about
    them, and decodes all images of validation and test first, where they were not
    decoded before.
    """
    directory.claim_data(run_data.facts_of(source))
    if corrected := corrections.record(source):
        write_json(directory.corrections, corrected)
    if source.skipped:
        write_text(directory.skipped, "\n".join(source.skipped) + "\n")
    if checkpoint_steps(directory.checkpoints) or not kind_of(source.name).is_own:
        return
    for line in findings(review(source, is_short=True), source.name):
        print(line)
    if not is_decoded:
        pipeline.check_readable(source.validation, source.test)
