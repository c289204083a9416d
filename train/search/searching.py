"""A search: probes on features first, then training, and what answers in the end."""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable

from train.common.errors import RunError
from train.data.options import DEFAULTS, DataOptions
from train.data.sources.splits import Source
from train.engine.devices import start
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.run import training
from train.search import backbones, repeating, time_plan
from train.search.budget import FILE, Budget
from train.search.larger import larger_of
from train.search.options import Options
from train.search.reporting import report, tested_in_time
from train.search.state import State
from train.search.task import Found
from train.search.training_stage import smallest_area, with_training

# A budget is kept within a tenth.
_LATE = 1.1


def run(
    recipe: Recipe,
    options: Options,
    *,
    run_dir: str | os.PathLike,
    data_options: DataOptions = DEFAULTS,
    devices: Devices | None = None,
    command: str = "",
    started: float | None = None,
    features_of: str | os.PathLike | None = None,
    seeds: int = 1,
    source: Source | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict:
    """Finds the best classifier in so many minutes, or goes on where it was killed.

    The settings of the recipe are those of its training, but for steps, which fit the
    time. `started` is what the `clock` said when the command began; `features_of` is
    the run directory of a search of the same data and networks, whose features are
    read, and which decides what is tried and tested. `seeds` says how many searches
    share the time that a user gave, `source` are their data, which are loaded if not
    given. The other arguments and the results are those of `train.run.training.run`.

    Raises a `RunError` as that does, and for several hosts.
    """
    started = clock() if started is None else started
    devices = devices or start("one")
    if devices.has_hosts:
        raise RunError(
            "--minutes measures one machine, and this run has several: pass --steps."
        )
    task = Found(recipe, options)
    source = source or training.suitable_source(task, devices, data_options)
    task.options = options.settled(source.train.num_examples)
    with training.begun(task, run_dir, devices, lambda: source) as directory:
        training.check_source(source, directory, is_decoded=data_options.skip_corrupt)
        minutes, path = task.options.minutes, directory.path / FILE
        budget = Budget(60 * minutes, path, started, clock)
        owner = directory.path
        if features_of is not None:
            owner = RunDirectory(features_of).path
            budget.take_over(owner / FILE)
        features = owner / "features"
        return results(
            State(
                task=task,
                source=source,
                directory=directory,
                devices=devices,
                budget=budget,
                features=features,
                command=command,
                seeds=seeds,
                is_default=options.minutes is None,
            )
        )


def results(search: State) -> dict:
    """Returns the results of all of a search, as in `report.json`, and the files."""
    is_again = "seconds" in search.budget.facts
    if is_again:
        search.say(
            f"{search.directory.path} is finished: it is tested and reported again"
        )
    else:
        search.say(
            f"{search.options.minutes:g} min for {search.source.name}, of which "
            f"{search.budget.used:.0f} s are used: probes on features first, then "
            "training as far as there is time"
        )
    _say_what_leads(search)
    recipes = _recipes(search)
    fitted = [
        backbones.backbone_of(search, recipe, number, len(recipes))
        for number, recipe in enumerate(recipes)
    ]
    if time_plan.is_short(search) and not is_again:
        search.because(
            f"The time is short: {search.budget.used:.0f} of "
            f"{search.budget.seconds:.0f} s have gone into the start, features and "
            "probes, and a test and its report are to come."
        )
    best = min(fitted, key=lambda one: one.log_loss)
    # A slower backbone may have fewer photos that judge what follows.
    search.source = dataclasses.replace(search.source, validation=best.judges)
    answer = first = backbones.of_probes(search, best, fitted)
    backbones.say_which_answer(search)
    search.trains = time_plan.may_train(search, smallest_area(best))
    if search.trains and "report_seconds" not in search.budget.facts:
        _first_report(search, best, first)
    if (recipe := larger_of(search, best)) is not None:
        number = len(fitted)
        larger = backbones.backbone_of(search, recipe, number, number + 1)
        answer = backbones.joined(search, best, answer, larger, fitted)
        fitted.append(larger)
    if answer is not first:
        search.is_larger = True
        backbones.say_which_answer(search)
    of_probes = answer
    with contextlib.ExitStack() as stack:
        if search.trains:
            answer = with_training(search, best, answer, stack)
        again = "" if _is_late(search) else repeating.command(search, best, fitted)
        if again:
            search.because(f"To repeat what answers: {again}")
        # The first report does not have what was tried, and why, since then.
        known = search.budget.facts.get("first_tested", 0) if answer is first else 0
        found = _last_report(search, best, answer, of_probes, known)
    if not is_again:
        search.budget.keep(seconds=search.budget.used)
        search.say(_about_time(search))
    return found


def _first_report(search, best, answer):
    """Reports the answer of the probes, and says how good it is."""
    with search.budget.part("first answer"):
        count = time_plan.tested(search, time_plan.FIRST_TEST)
        search.budget.keep(first_tested=count)
        results = report(search, answer, count, best, answer)
    leading = f"test_{results['leading_accuracy']}"
    search.say(
        f"first answer after {search.budget.used:.0f} s: {leading.replace('_', ' ')} "
        f"{results[leading]:.2%} on {results['tested']} images"
    )


def _say_what_leads(search):
    """Says that classes count alike where they are uneven."""
    if search.judge.shift is None:
        return
    counts = search.source.train.class_counts(len(search.names))
    search.because(
        f"The classes have {counts[counts > 0].min():,} to {counts.max():,} photos: "
        "the balanced accuracy leads. The logarithm of each class's share of the "
        "photos is taken off its logit, and all classes count alike in what is tried."
    )


def _last_report(search, best, answer, of_probes, known):
    """Tests and reports what answers; so many test photos have its logits already."""
    with search.budget.part("test"):
        if "tested" not in search.budget.facts:
            search.budget.keep(tested=tested_in_time(search, answer, known))
    with search.budget.part("report"):
        return report(search, answer, search.budget.facts["tested"], best, of_probes)


def _about_time(search):
    """Says what the time was used for, and which budget has room for it."""
    budget = search.budget
    parts = {"start": budget.used - sum(budget.parts.values()), **budget.parts}
    each = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in parts.items())
    told = f"{budget.used:.0f} of {budget.seconds:.0f} s used: {each}"
    if budget.used > _LATE * budget.seconds:
        told += f". {_too_short(search)}"
    return told


def _too_short(search):
    """Says that the search took longer than its budget, and what to pass."""
    minutes, seeds = search.options.minutes, search.seeds
    remedy = f"pass --minutes={seeds * math.ceil(search.budget.used / 6) / 10:g}"
    if seeds > 1:
        return f"That was too short: {remedy} for all {seeds} seeds"
    if search.is_default:
        photos = search.source.train.num_examples
        return (
            f"The time chosen for {photos:,} photos, {minutes:g} minutes, is too short "
            f"on this machine: {remedy}"
        )
    return f"--minutes={minutes:g} was too short: {remedy}"


def _is_late(search):
    """Returns whether the search takes, or has taken, longer than its budget."""
    coming = search.budget.used + time_plan.least_end(search)
    return search.budget.facts.get("seconds", coming) > _LATE * search.budget.seconds


def _recipes(search):
    others = (search.recipe.override(model=name) for name in search.options.models)
    return [search.recipe, *others]
