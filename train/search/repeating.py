"""The command that makes what a search has found, without what does not help."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from keras_vit_start import typed
from train import recipes
from train.common.typed_flags import flags_in
from train.data import data_flags
from train.recipes import Recipe
from train.recipes.fields import OUTPUT
from train.run.settings import written
from train.search.backbones import Backbone
from train.search.options import begins_with
from train.search.sizes import size_of
from train.search.state import State

# The length of a training, and what follows from it.
_OF_LENGTH = {"steps", "epochs", "warmup_steps"}


def command(search: State, best: Backbone, fitted: Sequence[Backbone]) -> str:
    """Returns the command that makes what answers; "" where Python made the network.

    It has all flags that change the result, those that were given and those chosen.
    `best` is the backbone that was trained, if any was.
    """
    recipe, stage = best.recipe, search.stage
    if not isinstance(recipe.model, str):
        return ""
    given: dict[str, Any] = {"model": recipe.model, "weights": recipe.weights}
    from_probe = search.budget.facts.get("training", {}).get("from_probe")
    if search.trained == 1.0 and stage is not None and not from_probe:
        given |= {"image_size": size_of(stage), "batch_size": stage.batch_size}
        given |= {"steps": search.task.steps(search.directory), "crop": stage.crop}
        recipe, of_search = stage.override(**given), []
    else:
        given |= {name: getattr(recipe, name) for name in search.options.given}
        of_search = [*_of_search(search, recipe, fitted)]
    words = [f"--dataset={recipe.dataset}", *_flags(recipe, given, bool(of_search))]
    words += data_flags.of_command(search.command)
    words += flags_in(search.command, ["strategy", "mesh"]) + of_search
    return typed("finetune", [*words, f"--run_dir={search.directory.path}-again"])


def _of_search(search: State, best: Recipe, fitted: Iterable[Backbone]) -> Iterator:
    """Yields the flags of a search with the models that answer."""
    yield f"--minutes={search.options.minutes:g}"
    answering = [
        str(one.recipe.model)
        for one in fitted
        if any(row.share for row in one.probed.tried)
    ]
    if others := [model for model in answering if model != best.model]:
        yield f"--models={','.join(others)}"
    if search.options.single or search.trained == 1.0:
        yield "--single"


def _flags(recipe: Recipe, given: Mapping[str, Any], is_search: bool) -> Iterator[str]:
    """Yields the settings that are given, and others that the recipe has.

    These are those that a command with the given ones alone would not have.
    """
    base = begins_with(recipe.dataset)
    if not is_search and base != recipes.for_dataset(recipe.dataset):
        yield f"--recipe={recipes.OWN_DATA}"
    before = base.override(**given)
    names = dict.fromkeys(given)
    # A model that brings its weights is named once.
    if recipe.weights == recipe.model:
        del names["weights"]
    for field in dataclasses.fields(recipe):
        is_flag = field.metadata["group"] and field.metadata.get("changes") != OUTPUT
        is_new = getattr(before, field.name) != getattr(recipe, field.name)
        if is_flag and is_new and field.name not in _OF_LENGTH:
            names[field.name] = None
    for name in names:
        yield f"--{name}={written(recipe, name)}"
