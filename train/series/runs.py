"""Runs one after another, each in a directory of its own."""

import functools
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras

from train.common.errors import RunError, Stopped
from train.data.sources import DataError
from train.recipes import Recipe
from train.run import training
from train.run.classification import FineTuning
from train.run.task import Task
from train.series import validation


class RunSeries:
    """Makes runs, and reads those that are finished already.

    A run is the same to the bit as that run alone: each begins with a fresh Keras
    session and the random numbers of its own seed. After a run that fails the others
    are made, unless it is the first (of those that have data, with
    `skips_missing_data`). A run is in the folder of its label.

    Args:
        run_dir: path of the folder that they are in.
        total: int, how many there will be.
        task: function of a recipe to the `train.run.task.Task` of its run.
        make: function that makes the run of a recipe, with the keywords of
            `train.run.training.run`, which it is by default.
        needed: names that the `report.json` of each run must have, beside those of
            its validation.
        skips_missing_data: bool.
        settings: keywords of `make` that all runs have; `devices` and `data_options`
            are among them.
    """

    def __init__(
        self,
        run_dir: pathlib.Path,
        *,
        total: int,
        task: Callable[[Recipe], Task] = FineTuning,
        make: Callable[..., dict | None] | None = None,
        needed: Sequence[str] = (),
        skips_missing_data: bool = False,
        **settings: Any,
    ):
        self.path = run_dir
        self.total = total
        self.task = task
        self.make = make or training.run
        self.needed = needed
        self.skips_missing_data = skips_missing_data
        self.settings = settings
        self.failed: dict[str, str] = {}
        self._missing: dict[str, RunError] = {}
        self._begun = 0
        self._finished = 0

    def result(self, label: str, recipe: Recipe) -> dict | None:
        """Returns the result of a run, which is made unless it is finished.

        The result is that in `report.json`, with the label as `run`. None where the run
        failed.
        """
        self._begun += 1
        print(f"run {self._begun} of {self.total}: {label}", flush=True)
        try:
            # TFDS tries for minutes to download, once is enough.
            if recipe.dataset in self._missing:
                raise self._missing[recipe.dataset]
            result = self.finished(self.path / label, recipe)
        except Stopped:
            # A user who stops a run does not want another to begin.
            raise
        except RunError as error:
            lacks_data = isinstance(error, DataError)
            if not (self._finished or (self.skips_missing_data and lacks_data)):
                raise
            if lacks_data:
                self._missing[recipe.dataset] = error
            self.failed[label] = str(error)
            print(f"{label} failed: {error}", file=sys.stderr, flush=True)
            return None
        self._finished += 1
        return {"run": label, **result}

    def finished(self, path: pathlib.Path, recipe: Recipe) -> dict:
        """Returns the results of a run that is finished now, in the folder `path`."""
        task, settings = self.task(recipe), self.settings
        devices = settings["devices"]
        data = functools.partial(
            training.suitable_source, task, devices, settings["data_options"]
        )
        with training.begun(task, path, devices, data) as directory:
            pass  # Raises if the directory holds another run.
        if task.is_finished(directory):
            print(f"{path} is finished already")
        else:
            keras.utils.clear_session()
            self.make(recipe, run_dir=path, **settings)
        held_out = (validation.PLAIN, validation.LOSS)
        validated = held_out if recipe.validation_fraction else ()
        return directory.read_results(*self.needed, *validated)
