"""A search with several seeds: one after another, from the same features."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from train.data.options import DEFAULTS, DataOptions
from train.recipes import Recipe
from train.run import training
from train.search import searching
from train.search.options import Options
from train.search.task import Found
from train.series import seeds as series


def run(
    recipe: Recipe,
    seeds: int,
    options: Options,
    *,
    run_dir: str | os.PathLike,
    data_options: DataOptions = DEFAULTS,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> dict:
    """Searches with the seed of a recipe and those after it, and reports all.

    The minutes of the options are those of all searches together; without any, each has
    those that suit the number of photos. The features are computed by the first, and
    their seconds count in each, so that all train as long.

    The other arguments and the results are those of `train.series.seeds.run`.
    """
    each = options.shared_by(seeds)
    if each.minutes is None:
        # Every search prints what is logged here.
        source = training.load_source(recipe, data_options, lambda line: None)
        each = each.settled(source.train.num_examples)
    minutes = "minute" if each.minutes == 1 else "minutes"
    print(f"{seeds} searches of {each.minutes:g} {minutes} each", flush=True)
    return series.run(
        recipe,
        seeds,
        run_dir=run_dir,
        task=functools.partial(Found, options=each),
        make=functools.partial(
            searching.run,
            options=each,
            seeds=seeds,
            features_of=series.folder_of(run_dir, recipe.seed),
            clock=clock,
        ),
        data_options=data_options,
        **settings,
    )
