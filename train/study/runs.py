"""The runs of a study: one after another, each in a directory of its own."""

import dataclasses
import functools
import os
import statistics
import sys
import typing
from collections.abc import Sequence

import keras

from train.common.errors import RunError, Stopped
from train.common.files import read_json
from train.data.options import DataOptions
from train.data.registry import short_name
from train.data.sources import DataError
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import training
from train.run.classification import FineTuning
from train.scoring import linear_probe
from train.study.options import Options


class Point(typing.NamedTuple):
    """One row of a study: a recipe, run with one seed or several.

    The names of its runs begin with `label`; `facts` are its columns in `study.json`.
    """

    label: str
    recipe: Recipe
    facts: dict


def models_of(recipe: Recipe, options: Options) -> list[tuple[str, Recipe]]:
    """Returns pairs of name and recipe, of --models or of the recipe's own model."""
    models = []
    for name in dict.fromkeys(options.models):
        changed = recipe.override(model=name)
        if options.smoke:
            small = changed.smoke()
            changed = recipe.override(model=small.model, image_size=small.image_size)
        models.append((name, changed))
    return models or [(model_name(recipe), recipe)]


def model_name(recipe: Recipe) -> str:
    """Returns the name of a recipe's model, or of its width."""
    model = recipe.model
    return model if isinstance(model, str) else f"width-{model.hidden_size}"


class Runs:
    """Makes the runs of a study, and reads those that are finished already.

    A run of a study is the same to the bit as that run alone: each begins with a fresh
    Keras session and the random numbers of its own seed. After a run that fails the
    others are made, unless it is the first (of those that have data, with
    `skips_missing_data`). A run is in the folder of its label in `run_dir`, a path;
    `few_shot` is data set and images per class of a probe, or None; `settings` are
    those of `train.run.training.run`.
    """

    def __init__(
        self, run_dir, *, total, few_shot=None, skips_missing_data=False, **settings
    ):
        self.path = run_dir
        self.total = total
        self.few_shot = few_shot
        self.skips_missing_data = skips_missing_data
        self.settings = settings
        self.failed = {}
        self._missing = {}
        self._begun = 0
        self._finished = 0

    def result(self, label: str, recipe: Recipe) -> dict | None:
        """Returns the result of a run, which is made unless it is finished.

        The result is that in `report.json`, with the label as `run`, the number of
        training images, counted each time they were seen, as `images`, and
        `few_shot_accuracy` if there is a probe. None where the run failed.
        """
        self._begun += 1
        print(f"run {self._begun} of {self.total}: {label}", flush=True)
        try:
            # TFDS tries for minutes to download, once is enough.
            if recipe.dataset in self._missing:
                raise self._missing[recipe.dataset]
            result = self._result(self.path / label, recipe)
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

    def _result(self, path, recipe):
        task, devices = FineTuning(recipe), self.settings["devices"]
        data = functools.partial(
            training.suitable_source, task, devices, self.settings["data_options"]
        )
        with training.begun(task, path, devices, data) as directory:
            pass  # Raises if the directory holds another run.
        is_new = not (directory.results.is_file() and directory.model.is_file())
        if is_new:
            keras.utils.clear_session()
            training.run(recipe, run_dir=path, **self.settings)
        else:
            print(f"{path} is finished already")
        # A run that stopped early has fewer steps than the recipe.
        steps, _ = MetricLog(directory.metrics).series("loss")
        images = int(steps[-1]) * recipe.batch_size if len(steps) else 0
        result = {**directory.read_results(), "images": images}
        if self.few_shot is not None:
            result["few_shot_accuracy"] = self._few_shot_accuracy(path, is_new)
        return result

    def _few_shot_accuracy(self, path, is_new):
        dataset, shots = self.few_shot
        folder = path / f"few_shot-{short_name(dataset)}-{shots}"
        written = folder / "few_shot.json"
        if is_new or not written.is_file():
            linear_probe.run(
                str(path),
                dataset=dataset,
                data_options=DataOptions(self.settings["data_options"].data_dir),
                shots=(shots,),
                out_dir=folder,
                command=self.settings["command"],
            )
        remedy = "remove it and give the command again"
        return read_json(written, remedy, lambda one: float(one["rows"][0]["mean"]))


def measured_from_scratch(
    points: Sequence[Point], recipe: Recipe, options: Options, settings: dict
) -> tuple[Runs, dict]:
    """Returns `Runs` and `rows` of a study from scratch, with few-shot probes."""
    seeds = options.seeds or 1
    dataset = options.few_shot_dataset or recipe.dataset
    few_shot = (dataset, options.shots) if options.shots else None
    runs = Runs(total=len(points) * seeds, few_shot=few_shot, **settings)
    return runs, {"rows": measured(runs, points, seeds)}


def measured(runs: Runs, points: Sequence[Point], seeds: int) -> list[dict]:
    """Makes the runs of all points, with one seed after the other.

    Returns a dict for each point that has a finished run.
    """
    results = {point.label: [] for point in points}
    for seed in range(seeds):
        for point in points:
            recipe = dataclasses.replace(point.recipe, seed=point.recipe.seed + seed)
            if finished := runs.result(f"{point.label}-seed{recipe.seed}", recipe):
                results[point.label].append(finished)
    return [
        {
            "label": point.label,
            **point.facts,
            "runs": [one["run"] for one in finished],
            "parameters": finished[0]["parameters"],
            "images": finished[0]["images"],
            "test_accuracy": spread([one["test_accuracy"] for one in finished]),
            "few_shot_accuracy": runs.few_shot
            and spread([one["few_shot_accuracy"] for one in finished]),
        }
        for point in points
        if (finished := results[point.label])
    ]


def spread(values: Sequence[float]) -> dict:
    """Returns mean and sample standard deviation, which is None of one value."""
    return {
        "values": list(values),
        "mean": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
    }


def last_validation(path: str | os.PathLike, *, best: bool = False) -> dict[str, float]:
    """Returns accuracy and loss of a run's last validation, or of its best one."""
    log = MetricLog(RunDirectory(path).metrics)
    _, accuracies = log.series("val_accuracy")
    _, losses = log.series("val_loss")
    if not len(accuracies):
        raise RunError(
            f"{log.path} has no validations, by which the study chooses: pass a "
            "--validation_fraction above 0 and another --run_dir."
        )
    place = int(accuracies.argmax()) if best else -1
    return {
        "validation_accuracy": float(accuracies[place]),
        "validation_loss": float(losses[place]),
    }
