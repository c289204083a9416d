"""The training of all weights in a search: its plan, its run, what it adds."""

import contextlib
import dataclasses
import functools
import math

from train.engine import loop
from train.engine.pace import Pace
from train.run import building, training
from train.run.classification import FineTuning
from train.scoring.temperature import temperature
from train.search import time_plan
from train.search.answers import Answer, Member
from train.search.backbones import Backbone
from train.search.choosing import share_of
from train.search.probing import judged
from train.search.state import State
from train.search.table import sides
from train.search.trained import logits_of
from zoo.network import pair

# A training of fewer steps teaches nothing.
_LEAST_STEPS = 20
# A step computes as much as three forward passes, and waits for photos too.
_PASSES = 3.5
# Steps of the schedule, by those that seem to fit: a faster machine takes more.
_ROOM = 1.5
# All weights are trained at the size of the features where so many epochs fit.
_EPOCHS_AT_FULL_SIZE = 15
_SMALL_SIZE = 128
# Images of networks without patches are multiples of this.
_STRIDE = 32


def _plan(search, backbone):
    """Returns image size, batch and steps of a training that fits, or {}."""
    left = search.budget.left - time_plan.reserve(search)
    photos = search.source.train.num_examples
    batch = backbone.recipe.batch_size
    while batch > 8 and 2 * batch > photos:
        batch //= 2
    full = pair(backbone.recipe.image_size, "image_size")
    for size in (full, _small(backbone.recipe)):
        area = math.prod(size) / math.prod(full)
        rate = backbone.speed / _PASSES / area
        if left * rate >= _EPOCHS_AT_FULL_SIZE * photos:
            break
    steps = int(_ROOM * left * rate / batch)
    if left < time_plan.LEAST_SECONDS or steps < _LEAST_STEPS:
        return {}
    return {"image_size": size, "batch_size": batch, "steps": steps}


def with_training(
    search: State, backbone: Backbone, answer: Answer, stack: contextlib.ExitStack
) -> Answer:
    """Trains all weights, and returns the answer, with them where they help."""
    facts = search.budget.facts
    if "training" not in facts:
        search.budget.keep(training=_plan(search, backbone))
    if not facts["training"]:
        search.because("No training: too few steps would fit the time that is left.")
        return answer
    plan = facts["training"] | {"image_size": tuple(facts["training"]["image_size"])}
    recipe = backbone.recipe.override(**plan)
    if recipe.eval_every is None:
        recipe = recipe.override(eval_every=max(recipe.steps // 5, 1))
    task = FineTuning(recipe)
    begun = search.budget.clock()
    run = training.built(task, search.source, search.directory, search.devices)

    def left() -> float:
        search.budget.keep()
        return search.budget.left - time_plan.reserve(search)

    seconds_of_step = max(left() / recipe.steps, 1e-3)
    every = min(max(int(1 / seconds_of_step), 1), max(recipe.steps // 20, 1))
    loop.TrainingLoop(run, Pace(left, recipe.steps, every)).train()
    stack.enter_context(run.trainer.averaged())
    search.task.stage = recipe
    through = pair(backbone.recipe.image_size, "image_size")
    return _joined(
        search,
        answer,
        Member(lambda: task.network, functools.partial(logits_of, run)),
        Member(
            lambda: task.network,
            functools.partial(logits_of, run, through=through),
        ),
        search.budget.clock() - begun,
    )


def _joined(search, answer, alone, beside, seconds):
    """Returns the answer with a trained network, as far as that helps.

    `alone` takes photos of its own size, `beside` those of the whole answer.
    """
    labels = search.source.validation.labels()
    logits = beside.logits(search.source.validation)
    weight = 1 / temperature(logits, labels)
    of_probes = answer.held_out[-len(labels) :]
    share = share_of(weight * logits, of_probes, labels, search.judge)
    if search.options.single:
        share = float(share > 0.5)
    row = judged(
        f"All weights, trained at {sides(search.task.stage.image_size)}",
        weight * logits,
        labels,
        seconds,
        search.judge,
    )
    before = judged("", of_probes, labels, 0.0, search.judge)
    for one in search.tried:
        one.share *= 1 - share
    row.share = search.trained = share
    search.tried.append(row)
    what = f"gets {share:.0%} of the answer" if share else "is left out"
    search.because(
        f"The trained network {what}: on {len(labels):,} held-out photos its log "
        f"loss is {row.log_loss:.3f}, that of the probes {before.log_loss:.3f}."
    )
    if not share:
        return answer
    member = dataclasses.replace(alone if share == 1 else beside, weight=weight)
    answer = dataclasses.replace(answer, held_out=of_probes)
    return answer.joined_by(member, weight * logits, share, labels)


def _small(recipe):
    """Returns the (height, width) of training where the recipe's takes too long."""
    both = pair(recipe.image_size, "image_size")
    steps = (_STRIDE, _STRIDE)
    if building.architecture_of(recipe).one_grid:
        steps = building.config_of(recipe).stride
    factor = min(_SMALL_SIZE / max(both), 1.0)
    return tuple(
        max(round(factor * side / step), 1) * step
        for side, step in zip(both, steps, strict=True)
    )
