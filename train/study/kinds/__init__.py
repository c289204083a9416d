"""The studies: one module each, found by its name.

A module has `TITLE`, of the page, and three functions:

- `measure(recipe, options, settings)` makes the runs. It returns `runs.Runs` and a dict
  for `study.json` with `rows`. `settings` are those of `train.study.studies.run`.
- `tables(found)` yields the tables and paragraphs of `study.md`; `found` is that dict.
- `draw(figure, found)` plots into a matplotlib figure.
"""

import importlib
import pkgutil

from train import recipes
from train.common.errors import RunError
from train.recipes import pretraining

# Those whose runs start from random weights.
FROM_SCRATCH = {"compute", "examples", "positions"}
# Those whose data set is the name of several.
OF_DATASETS = {"vtab"}


def names():
    """Returns the names of the studies, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def named(name):
    """Returns the module of a study."""
    return importlib.import_module(f"{__name__}.{name}")


def check(study, recipe, models=(), smoke=False):
    """Refuses a recipe that a study cannot use, and models that there are not.

    Raises:
        RunError: the study trains all weights from scratch, the recipe does not.
        ValueError: what `Recipe.check` refuses in one of the models.
    """
    for model in models:
        one = recipe.override(model=model)
        (one.smoke() if smoke else one).check()
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


def recipe_for(study, dataset, name=None):
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
