"""A search with several seeds: one after another, from the same features."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from train.data.options import DEFAULTS, DataOptions
from train.engine.devices import start
from train.engine.step import Devices
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
    devices: Devices | None = None,
    started: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> dict:
    """Searches with the seed of a recipe and those after it, and reports all.

    The minutes of the options are those of all searches together; without any, each has
    those that suit the number of photos. The features are computed by the first, and
    their seconds count in each, so that all train as long; so does an equal part of the
    time since `started`, what the `clock` said when the command began, in which the
    data are loaded for all.

    The other arguments and the results are those of `train.series.seeds.run`.
    """
    devices = devices or start("one")
    series.check(run_dir, seeds, devices)
    each = options.shared_by(seeds)
    began = clock() if started is None else started
    source = training.suitable_source(Found(recipe, each), devices, data_options)
    each = each.settled(source.train.num_examples)
    share = (clock() - began) / seeds
    minutes = "minute" if each.minutes == 1 else "minutes"
    print(f"{seeds} searches of {each.minutes:g} {minutes} each", flush=True)

    first = series.folder_of(run_dir, recipe.seed)

    def search(recipe: Recipe, **more: Any) -> dict:
        return searching.run(
            recipe,
            each,
            seeds=seeds,
            features_of=first,
            clock=clock,
            started=clock() - share,
            source=source,
            **more,
        )

    return series.run(
        recipe,
        seeds,
        run_dir=run_dir,
        task=functools.partial(Found, options=each),
        make=search,
        data_options=data_options,
        devices=devices,
        **settings,
    )
