"""A run with several seeds: how much its result varies, and which model to use."""

import dataclasses
import os
import pathlib
from collections.abc import Callable

from train.common.errors import RunError
from train.common.files import write_json, write_text
from train.data.options import DEFAULTS, DataOptions
from train.engine import reproducibility
from train.engine.devices import start
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run.classification import FineTuning
from train.run.task import Task
from train.series import page, validation
from train.series.runs import RunSeries
from train.series.spread import spread

# The rows have these from the report of a run, the others where it has them.
_ACCURACIES = ("test_accuracy", "test_balanced_accuracy")
_OF_REPORTS = (
    *("run", *_ACCURACIES, validation.BALANCED, validation.PLAIN, validation.LOSS),
    *("test_examples", "steps", "seconds"),
)


def folder_of(run_dir: str | os.PathLike, seed: int) -> pathlib.Path:
    """Returns the run directory of a seed among those of several."""
    return RunDirectory(run_dir).path / f"seed-{seed}"


def check(run_dir: str | os.PathLike, seeds: int, devices: Devices) -> None:
    """Refuses devices of several hosts, and a folder that is a run, by a `RunError`."""
    # The other hosts would find the directory locked.
    if devices.has_hosts:
        raise RunError(
            "--seeds makes its runs in one process, and this is one of several: start "
            "it alone, or give one run after the other its --seed."
        )
    directory = RunDirectory(run_dir)
    if directory.is_begun():
        raise RunError(
            f"{directory.path} is a run itself, and --seeds={seeds} has a folder for "
            "each of its runs: pass another --run_dir."
        )


def run(
    recipe: Recipe,
    seeds: int,
    *,
    run_dir: str | os.PathLike,
    task: Callable[[Recipe], Task] = FineTuning,
    make: Callable[..., dict | None] | None = None,
    data_options: DataOptions = DEFAULTS,
    devices: Devices | None = None,
    command: str = "",
) -> dict:
    """Makes the run of a recipe with its seed and those after it, and reports them.

    A series that was killed goes on where it was, and finished runs are only read.

    Args:
        recipe: `train.recipes.Recipe`.
        seeds: int, how many.
        run_dir: path of the folder of the runs and of the report of all.
        task: as of `train.series.runs.RunSeries`.
        make: as of that.
        data_options: as of `train.run.training.run`, like the next two.
        devices: that compute.
        command: str, for the reports.

    Returns:
        Dict as in `report.json`, with the paths of the page, of the report and of the
        model to use.

    Raises:
        RunError: a run failed; where others did not, the report has these. Or there
            are several hosts, or the folder is itself a run.
    """
    devices = devices or start("one")
    check(run_dir, seeds, devices)
    directory = RunDirectory(run_dir)
    # The runs begin with new Keras sessions.
    with directory.locked(), reproducibility.preserved_state():
        runs = RunSeries(
            directory.path,
            total=seeds,
            task=task,
            make=make,
            needed=("leading_accuracy", *_ACCURACIES),
            data_options=data_options,
            devices=devices,
            command=command,
        )
        finished = []
        for seed in range(recipe.seed, recipe.seed + seeds):
            label = folder_of(directory.path, seed).name
            if result := runs.result(label, dataclasses.replace(recipe, seed=seed)):
                finished.append(result)
        results = _results(finished) | {
            "command": command,
            "failed": runs.failed,
        }
        contents = page.contents(results)
        write_text(directory.report, page.markdown_of(contents))
        write_text(directory.page, page.html_of(contents))
        write_json(directory.results, results)
    if runs.failed:
        label, message = next(iter(runs.failed.items()))
        raise RunError(
            f"{len(runs.failed)} of {seeds} runs failed; {directory.page} has the "
            f"others. The same command tries those again. {label}: {message}"
        )
    return {
        **results,
        "page": str(directory.page),
        "model": str(RunDirectory(directory.path / results["use"]).model),
    }


def _results(finished):
    """Returns the results of all finished runs, as in `report.json`."""
    first = use = finished[0]
    if is_chosen := validation.PLAIN in first:
        use = validation.best_validated(finished)
    config = {name: value for name, value in first["config"].items() if name != "seed"}
    return {
        "config": config,
        "leading_accuracy": first["leading_accuracy"],
        "test_examples": first["test_examples"],
        **{name: spread([one[name] for one in finished]) for name in _ACCURACIES},
        "runs": [{key: one.get(key) for key in _OF_REPORTS} for one in finished],
        "use": use["run"],
        "is_chosen": is_chosen,
    }
