"""The runs of a study, and the rows that they make."""

import dataclasses
import pathlib
import typing
from collections.abc import Sequence

from train.common.files import read_json
from train.data.options import DataOptions
from train.data.registry import short_name
from train.engine.metric_log import MetricLog
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.scoring import linear_probe
from train.series.runs import RunSeries
from train.series.spread import spread
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


class Runs(RunSeries):
    """Runs whose results also have the images learned from, and a probe's accuracy.

    These are `images`, each counted every time it was seen, and `few_shot_accuracy`;
    `few_shot` is data set and images per class of the probe, or None.
    """

    def __init__(self, run_dir, *, few_shot=None, **others):
        super().__init__(run_dir, **others)
        self.few_shot = few_shot

    def finished(self, path: pathlib.Path, recipe: Recipe) -> dict:
        directory = RunDirectory(path)
        is_new = not self.task(recipe).is_finished(directory)
        result = super().finished(path, recipe)
        # A run that stopped early has fewer steps than the recipe.
        steps, _ = MetricLog(directory.metrics).series("loss")
        images = int(steps[-1]) * recipe.batch_size if len(steps) else 0
        result = {**result, "images": images}
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
