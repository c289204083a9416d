"""Studies: several runs of a recipe that differ in one thing, and their comparison."""

from train import recipes
from train.common.errors import RunError
from train.engine import reproducibility
from train.inference.run_directory import RunDirectory
from train.recipes import pretraining
from train.study import kinds, report
from train.study.points import Options


def recipe_for(study, dataset, name=None):
    """Returns the recipe that the runs of a study have in common.

    Args:
        study: str, one of `train.study.kinds.names()`.
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
    from_scratch = kinds.named(study).FROM_SCRATCH
    others = set(pretraining.names()) - (set() if from_scratch else {*recipes.names()})
    if name in others:
        return pretraining.for_dataset(dataset, name)
    recipe = recipes.for_dataset(dataset, name)
    if from_scratch and name is None and recipe.weights is not None:
        return pretraining.for_dataset(dataset)
    return recipe


def run(study, recipe, options=None, *, run_dir, **settings):
    """Makes the runs of a study that are missing, and writes table and plot.

    Keras's precision and the random states of Python and NumPy are restored
    afterwards; the rest of Keras's session, with the names it gives to layers, is new.

    Args:
        study: str, one of `train.study.kinds.names()`.
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
    kind = kinds.named(study)
    if kind.FROM_SCRATCH:
        _check_from_scratch(recipe)
    runs, found = kind.measure(recipe, options, {"run_dir": run_dir, **settings})
    found = {
        "study": study,
        "dataset": recipe.dataset,
        "command": settings.get("command", ""),
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
