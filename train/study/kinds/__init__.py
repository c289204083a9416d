"""The studies: one module each, found by its name.

A module has `TITLE`, of the page, and three functions:

- `measure(recipe, options, settings)` makes the runs. It returns `runs.Runs` and a dict
  for `study.json` with `rows`. `settings` are those of `train.study.runs.Runs`.
- `tables(results)` yields tables and paragraphs of `study.md`; `results` is that dict.
- `draw(figure, results)` plots into a matplotlib figure.
"""

import importlib
import pkgutil
import types
from collections.abc import Collection, Iterable

from train import recipes
from train.common.errors import RunError
from train.common.flag_names import is_count
from train.data.checking import vtab_rows
from train.recipes import pretraining
from train.study.options import Options
from train.tasks import CLASSES
from zoo.network import NETWORKS

# Runs of these kinds start from random weights.
FROM_SCRATCH = {"compute", "examples", "positions"}
# These kinds take the name of several data sets.
OF_DATASETS = {"vtab"}
# Each is the kind, and after a hyphen the place, of `keras_vit.ViTConfig`.
POSITIONS = ("none", "1d", "2d", "relative", "1d-every-layer", "1d-every-layer-shared")
POSITIONS += ("2d-every-layer", "2d-every-layer-shared")


def names() -> list:
    """Returns the names of the studies, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def named(name: str) -> types.ModuleType:
    """Returns the module of a study."""
    return importlib.import_module(f"{__name__}.{name}")


def check(study: str, recipe: recipes.Recipe, options: Options) -> None:
    """Refuses a recipe that a study cannot use, and flags or models that mean nothing.

    Raises:
        RunError: the study trains all weights from scratch, the recipe does not; a
            value of its flags means nothing; or the photos have no class each.
        ValueError: what `Recipe.check` refuses in one of the models.
    """
    if recipe.task not in (None, CLASSES):
        raise RunError(
            f"A study compares accuracies of one class per photo, and these are for "
            f"--task={recipe.task}: use keras-vit finetune, or pass --task=classes."
        )
    for model in options.models:
        changed = recipe.override(model=model)
        (changed.smoke() if options.smoke else changed).check()
    check_known("model", "--models", options.models, NETWORKS)
    from_scratch = study in FROM_SCRATCH
    if from_scratch and recipe.weights is not None:
        raise RunError(
            "The study trains from scratch, and the recipe begins with the "
            f"weights {recipe.weights}: pass --weights=none."
        )
    if from_scratch and (recipe.frozen or recipe.lora_rank):
        raise RunError(
            "The study trains all weights: leave --frozen and --lora_rank out."
        )
    if study == "examples":
        _check_subsets(options.subsets)
    elif study == "compute":
        _check_step_counts(options.step_counts)
    elif study == "positions":
        names = options.positions
        check_known("position embedding", "--positions", names, POSITIONS)
    elif study == "vtab":
        tasks = [row["task"] for row in vtab_rows()]
        check_known("task", "--tasks", options.tasks, tasks)


def check_known(
    kind: str, flag: str, names: Iterable[str], known: Collection[str]
) -> None:
    """Refuses names of models, position embeddings or tasks that there are not."""
    for name in names:
        if name not in known:
            raise RunError(
                f"There is no {kind} {name!r}: {flag} takes {', '.join(known)}."
            )


def _check_subsets(subsets):
    for text in subsets:
        try:
            is_part = 0 < float(text[:-1]) <= 100 if "%" in text[-1:] else int(text) > 0
        except ValueError:
            is_part = False
        if not is_part:
            raise RunError(
                f"--subsets has {text!r}, which is no part of the training images: "
                "give percents such as 10%, or numbers of images."
            )


def _check_step_counts(counts):
    for text in counts:
        if not is_count(text):
            raise RunError(
                f"--step_counts has {text!r}, which is not a number of steps: give "
                "whole numbers from 1 up."
            )


def recipe_for(
    study: str | None, dataset: str, name: str | None = None
) -> recipes.Recipe:
    """Returns the recipe that the runs of a study have in common.

    As `train.recipes.for_dataset`, but also the recipes for training from scratch.
    `study` is None where it is not known.

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
