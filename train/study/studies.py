"""Studies: several runs of a recipe that differ in one thing, and what it does."""

from train import recipes
from train.common.errors import RunError
from train.data.sources import vtab
from train.engine import reproducibility
from train.inference.keras_files import load_model
from train.inference.run_directory import RunDirectory
from train.recipes import pretraining
from train.reports.compute import multiply_adds
from train.run import training
from train.study import points as study_points
from train.study import report
from train.study.points import Options
from train.study.runs import FewShot, Point, Runs, last_validation, measured, spread

# Their recipes train from scratch.
FROM_SCRATCH = ("examples", "compute", "positions")
# Forward, and twice as much backward: to the inputs and to the weights.
PASSES = 3


def recipe_for(study, dataset, name=None):
    """Returns the recipe that the runs of a study have in common.

    Args:
        study: str, one of `STUDIES`.
        dataset: str, as for `train.recipes.for_dataset`.
        name: str, of a recipe for fine-tuning or for training from scratch; by default
            that of the data set.

    Raises:
        ValueError: there is no recipe of this name.

    Example:

    >>> recipe_for("learning_rates", "cifar100").learning_rates
    (0.001, 0.003, 0.01, 0.03)
    >>> recipe_for("positions", "cifar100").weights is None
    True
    """
    from_scratch = study in FROM_SCRATCH
    others = set(pretraining.names()) - (set() if from_scratch else {*recipes.names()})
    if name in others:
        return pretraining.for_dataset(dataset, name)
    recipe = recipes.for_dataset(dataset, name)
    if from_scratch and name is None and recipe.weights is not None:
        return pretraining.for_dataset(dataset)
    return recipe


def run(study, recipe, options=None, *, run_dir, **settings):
    """Makes the runs of a study that are missing, and writes table and plot.

    Keras's precision and the random numbers of Python and NumPy are afterwards as they
    were; the rest of Keras's session, with the names it gives to layers, begins anew.

    Args:
        study: str, one of `STUDIES`.
        recipe: `train.recipes.Recipe`, what the runs have in common.
        options: `Options`.
        run_dir: path of the study's directory; each run is in a folder of it, and the
            study goes on where it was if called again.
        **settings: `data_dir`, `skip_corrupt`, `devices` and `command`, as for
            `train.run.training.run`.

    Returns:
        Dict as in `study.json`, with `page`, the path of `study.md`.

    Raises:
        RunError: a run failed; where others did not, they are in the table. Or there
            are several hosts.

    Example:

    >>> recipe = recipe_for("positions", "digits").smoke()
    >>> run("positions", recipe, run_dir="runs/positions")  # doctest: +SKIP
    """
    devices = settings.get("devices")
    # The other hosts would find the directory locked.
    if devices is not None and devices.has_hosts:
        raise RunError(
            "A study is made by one machine: leave --strategy=multiworker out, or give "
            "its runs one by one to keras-vit finetune."
        )
    # The runs begin with new Keras sessions, and their models are loaded after them.
    with RunDirectory(run_dir).locked(), reproducibility.preserved_state():
        return _run(study, recipe, options or Options(), run_dir, settings)


def _run(study, recipe, options, run_dir, settings):
    report.claim(run_dir, study)
    runs, found = STUDIES[study](recipe, options, {"run_dir": run_dir, **settings})
    found = {
        "study": study,
        "dataset": recipe.dataset,
        "command": runs.command,
        "shots": options.shots,
        **found,
        "failed": runs.failed,
    }
    page = report.write(run_dir, found)
    if runs.failed:
        label, message = next(iter(runs.failed.items()))
        raise RunError(
            f"{len(runs.failed)} of {runs.total} runs failed; {page} has the others. "
            f"The same command tries those again. {label}: {message}"
        )
    return {**found, "page": str(page)}


def _learning_rates(recipe, options, settings):
    if not recipe.validation_fraction:
        raise RunError(
            "The learning rate is chosen on images of train that are held out, and "
            "the recipe holds none out: pass a --validation_fraction such as 0.1."
        )
    if not recipe.learning_rates:
        raise RunError("There is no learning rate to try: pass --learning_rates.")
    seeds = options.seeds or 3
    runs = Runs(total=len(recipe.learning_rates) + seeds, **settings)
    rows = []
    for rate in recipe.learning_rates:
        label = f"rate-{rate}"
        if runs.result(label, recipe.override(learning_rate=rate)):
            validation = last_validation(
                runs.path / label, best=bool(recipe.early_stopping)
            )
            rows.append(
                {"label": label, "learning_rate": rate, "runs": [label], **validation}
            )
    rate = chosen_rate(rows)
    print(f"chosen: learning rate {rate:g}")
    final = recipe.override(learning_rate=rate)
    if not recipe.early_stopping:
        final = final.override(validation_fraction=0.0)
    label = f"chosen-{rate}"
    results = measured(runs, [Point(label, final)], seeds)
    return runs, {"rows": rows, "learning_rate": rate, "chosen": results}


def chosen_rate(rows):
    """Returns the learning rate that did best on the images that were held out.

    Of equal accuracies the lower loss decides, and then the order of the rows. How the
    runs did on the test images is not looked at.

    Args:
        rows: sequence of dicts of `learning_rate`, `validation_accuracy` and
            `validation_loss`.

    Example:

    >>> rows = [(0.01, 0.5, 1.0), (0.03, 0.75, 0.9), (0.06, 0.75, 0.8)]
    >>> names = ("learning_rate", "validation_accuracy", "validation_loss")
    >>> chosen_rate([dict(zip(names, row)) for row in rows])
    0.06
    """
    best = max(
        rows, key=lambda row: (row["validation_accuracy"], -row["validation_loss"])
    )
    return best["learning_rate"]


def _examples(recipe, options, settings):
    _check_from_scratch(recipe)
    source = training.load_source(
        recipe,
        settings.get("data_dir"),
        settings.get("skip_corrupt", False),
        # Every run tells.
        tell=lambda line: None,
    )
    points = study_points.of_examples(recipe, options, source.train.num_examples)
    return _measure(points, recipe, options, settings)


def _compute(recipe, options, settings):
    _check_from_scratch(recipe)
    points = study_points.of_compute(recipe, options)
    runs, found = _measure(points, recipe, options, settings)
    for row in found["rows"]:
        model = load_model(runs.path / row["runs"][0] / "model.keras")
        row["multiply_adds"] = multiply_adds(model)
        row["flops"] = training_flops(row["multiply_adds"], row["images"])
    return runs, found


def training_flops(multiply_adds_of_image, images):
    """Returns the floating-point operations of a training.

    Args:
        multiply_adds_of_image: int, of the model, forward.
        images: int, how many were learned from, each time counted.

    Returns:
        Int: two operations a multiply-add, forward and twice as much backward.

    Example:

    >>> training_flops(10, 3)
    180
    """
    return 2 * PASSES * multiply_adds_of_image * images


def _positions(recipe, options, settings):
    _check_from_scratch(recipe)
    points = study_points.of_positions(recipe, options)
    return _measure(points, recipe, options, settings)


def _vtab(recipe, options, settings):
    points = study_points.of_vtab(recipe, options)
    seeds = options.seeds or 1
    runs = Runs(total=len(points) * seeds, skips_missing_data=True, **settings)
    rows = measured(runs, points, seeds)
    if not rows:
        raise RunError(
            "No task of VTAB has its data here. " + next(iter(runs.failed.values()))
        )
    means, counts = group_means(
        {row["task"]: row["test_accuracy"]["mean"] for row in rows}
    )
    is_benchmark = len(rows) == len(vtab.TASKS) and not (
        options.smoke
        or recipe.train_examples
        or recipe.test_examples
        or recipe.validation_fraction
    )
    return runs, {
        "rows": rows,
        "means": means,
        "tasks": counts,
        "is_benchmark": is_benchmark,
    }


def group_means(accuracies):
    """Returns the mean accuracy of the tasks of each group of VTAB, and of all.

    Args:
        accuracies: dict of task to float.

    Returns:
        Tuple of two dicts by group, and `"mean"` for all tasks: the means, without
        groups that have none, and how many tasks they are of.

    Example:

    >>> group_means({"dtd": 0.5, "cifar100": 0.75, "eurosat": 1.0})[0]
    {'natural': 0.625, 'specialized': 1.0, 'mean': 0.75}
    """
    groups = {**vtab.GROUPS, "mean": tuple(vtab.TASKS)}
    done = {
        group: [accuracies[task] for task in tasks if task in accuracies]
        for group, tasks in groups.items()
    }
    counts = {group: len(values) for group, values in done.items()}
    if counts["mean"] == len(vtab.TASKS):
        return vtab.mean_by_group(accuracies), counts
    means = {group: spread(values)["mean"] for group, values in done.items() if values}
    return means, counts


def _measure(points, recipe, options, settings):
    seeds = options.seeds or 1
    few_shot = None
    if options.shots:
        few_shot = FewShot(options.few_shot_dataset or recipe.dataset, options.shots)
    runs = Runs(total=len(points) * seeds, **settings)
    return runs, {"rows": measured(runs, points, seeds, few_shot)}


def _check_from_scratch(recipe):
    if recipe.weights is not None:
        raise RunError(
            f"The study trains from scratch, and the recipe begins with the weights "
            f"{recipe.weights}: pass --weights=none."
        )
    if recipe.frozen or recipe.lora_rank:
        raise RunError(
            "The study trains all weights: leave --frozen and --lora_rank out."
        )


STUDIES = {
    "learning_rates": _learning_rates,
    "examples": _examples,
    "compute": _compute,
    "positions": _positions,
    "vtab": _vtab,
}
