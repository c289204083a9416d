"""The runs of a study: one after another, each in a directory of its own."""

import dataclasses
import json
import pathlib
import statistics
import sys

import keras

from train.common.errors import RunError, Stopped
from train.common.files import make_folder
from train.data.sources import DataError
from train.data.sources.kinds import short_name
from train.engine.devices import alone
from train.engine.metrics import MetricLog
from train.few_shot import probe
from train.inference.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import training


@dataclasses.dataclass(frozen=True)
class Point:
    """What a study has one number of: a recipe, run with one seed or several.

    Args:
        label: str, with which the names of its runs begin.
        recipe: `train.recipes.Recipe`; its seed is the first.
        facts: dict of what the study says of it, to JSON.
    """

    label: str
    recipe: Recipe
    facts: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FewShot:
    """A few-shot probe of the models that are trained.

    Args:
        dataset: str, as for `train.few_shot.probe.run`.
        shots: int, images a class.
    """

    dataset: str
    shots: int


class Runs:
    """Makes the runs of a study, and reads those that are finished already.

    A run of a study is the same to the bit as that run alone: each begins with a fresh
    Keras session and the random numbers of its own seed. A run that fails does not
    keep the others from being made, unless it is the first.

    Args:
        run_dir: path of the study's directory; a run is in the folder of its label.
        total: int, how many runs there will be.
        data_dir: as for `train.run.training.run`; so are the next three.
        skip_corrupt: bool.
        devices: `train.engine.distribution.Devices`, one device by default.
        command: str, what was typed.
        skips_missing_data: bool, whether to go on where the first runs have no data.

    Attributes:
        failed: dict of label to what is wrong.

    Raises:
        RunError: the directory cannot be made.
    """

    def __init__(
        self,
        run_dir,
        *,
        total,
        data_dir=None,
        skip_corrupt=False,
        devices=None,
        command="",
        skips_missing_data=False,
    ):
        self.devices = devices or alone()
        self.path = make_folder(run_dir)
        self.total = total
        self.data_dir = data_dir
        self.skip_corrupt = skip_corrupt
        self.command = command
        self.skips_missing_data = skips_missing_data
        self.failed = {}
        self._missing = {}
        self._begun = 0
        self._finished = 0

    def result(self, label, recipe, few_shot=None):
        """Returns what came out of a run, which is made unless it is finished.

        Args:
            label: str, of the run.
            recipe: `train.recipes.Recipe`.
            few_shot: None or `FewShot`.

        Returns:
            Dict as in the run's `report.json`, with `run`, the label; `images`, how
            many were learned from, each time counted; and with a probe
            `few_shot_accuracy`. None where the run failed.

        Raises:
            RunError: the run failed, and so will the others; or it was stopped.
        """
        self._begun += 1
        print(f"run {self._begun} of {self.total}: {label}", flush=True)
        try:
            # TFDS tries for minutes to download, once is enough.
            if recipe.dataset in self._missing:
                raise self._missing[recipe.dataset]
            found = self._result(self.path / label, recipe, few_shot)
        except Stopped:
            # Who stops a run would not want another to begin.
            raise
        except RunError as error:
            survives = self._finished or (
                self.skips_missing_data and isinstance(error, DataError)
            )
            if not survives:
                raise
            if isinstance(error, DataError):
                self._missing[recipe.dataset] = error
            self.failed[label] = str(error)
            print(f"{label} failed: {error}", file=sys.stderr, flush=True)
            return None
        self._finished += 1
        return {"run": label, **found}

    def _result(self, path, recipe, few_shot):
        with training.begun(recipe, path, self.devices) as directory:
            pass  # the run is this one, or there is none yet
        is_new = not (directory.results.is_file() and directory.model.is_file())
        if is_new:
            keras.utils.clear_session()
            training.run(
                recipe,
                run_dir=path,
                data_dir=self.data_dir,
                skip_corrupt=self.skip_corrupt,
                devices=self.devices,
                command=self.command,
            )
        else:
            print(f"{path} is finished already")
        found = {
            **read_report(directory),
            "images": _steps_taken(directory) * recipe.batch_size,
        }
        if few_shot is not None:
            found["few_shot_accuracy"] = self._few_shot(path, few_shot, is_new)
        return found

    def _few_shot(self, path, few_shot, is_new):
        name = f"few_shot-{short_name(few_shot.dataset)}-{few_shot.shots}"
        written = path / name / "few_shot.json"
        if is_new or not written.is_file():
            probe.run(
                str(path),
                dataset=few_shot.dataset,
                data_dir=self.data_dir,
                shots=(few_shot.shots,),
                out_dir=written.parent,
                command=self.command,
            )
        return _read(written, lambda found: float(found["rows"][0]["mean"]))


def measured(runs, points, seeds, few_shot=None):
    """Makes the runs of all points, with one seed after the other.

    Args:
        runs: `Runs`.
        points: sequence of `Point`.
        seeds: int, how many.
        few_shot: None or `FewShot`.

    Returns:
        List of dicts, one for each point that has a finished run: `label`, the facts
        of the point, `runs` (their labels), `parameters`, `images`, and as in
        `spread` `test_accuracy` and `few_shot_accuracy` (None without a probe).
    """
    results = {point.label: [] for point in points}
    for seed in range(seeds):
        for point in points:
            recipe = dataclasses.replace(point.recipe, seed=point.recipe.seed + seed)
            label = f"{point.label}-seed{recipe.seed}"
            if found := runs.result(label, recipe, few_shot):
                results[point.label].append(found)
    return [
        {
            "label": point.label,
            **point.facts,
            "runs": [one["run"] for one in found],
            "parameters": found[0]["parameters"],
            "images": found[0]["images"],
            "test_accuracy": spread([one["test_accuracy"] for one in found]),
            "few_shot_accuracy": few_shot
            and spread([one["few_shot_accuracy"] for one in found]),
        }
        for point in points
        if (found := results[point.label])
    ]


def spread(values):
    """Returns mean and sample standard deviation.

    Args:
        values: sequence of floats, one or more.

    Returns:
        Dict of `values`, `mean`, and `deviation`, which is None of one value.

    Example:

    >>> spread([0.5, 0.75, 1.0])
    {'values': [0.5, 0.75, 1.0], 'mean': 0.75, 'deviation': 0.25}
    """
    return {
        "values": list(values),
        "mean": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
    }


def read_report(directory):
    """Returns the `report.json` of a finished run.

    Args:
        directory: `train.inference.run_directory.RunDirectory`.

    Raises:
        RunError: it is damaged.
    """
    directory.require(directory.results)
    return _read(directory.results, _report_of)


def last_validation(path, *, best=False):
    """Returns how a run did on the images that were held out.

    Args:
        path: str or path of the run's directory.
        best: bool, whether to take the best validation, whose weights a run with early
            stopping keeps, in place of the last.

    Returns:
        Dict of `validation_accuracy` and `validation_loss`.

    Raises:
        RunError: the run has no validations.
    """
    log = MetricLog(RunDirectory(path).metrics)
    _, accuracies = log.series("val_accuracy")
    _, losses = log.series("val_loss")
    if not len(accuracies):
        raise RunError(
            f"{log.path} has no validations: the study looks at images that are held "
            "out, pass a --validation_fraction above 0 and another --run_dir."
        )
    place = int(accuracies.argmax()) if best else -1
    return {
        "validation_accuracy": float(accuracies[place]),
        "validation_loss": float(losses[place]),
    }


def _steps_taken(directory):
    """Steps of the run; fewer than the recipe's where it stopped early."""
    steps, _ = MetricLog(directory.metrics).series("loss")
    return int(steps[-1]) if len(steps) else 0


def _report_of(found):
    float(found["test_accuracy"]), int(found["parameters"])
    return dict(found)


def _read(path, part):
    """Returns what a function takes out of a file of JSON."""
    try:
        return part(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    except (ValueError, OSError, LookupError, TypeError, RecursionError) as error:
        raise RunError(
            f"{path} is damaged ({error!r}): remove it and give the command again."
        ) from error
