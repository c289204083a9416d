"""The training of all weights in a search: its plan, its run, what it adds."""

import contextlib
import dataclasses
import functools
import math

from train.data.registry import CROPS
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
# Sizes of training, beside that of the features, and how many epochs must fit at each
# but the smallest. On CIFAR-100 with ten images a class and the same seconds, 20 epochs
# at 160 end 1.6 points above 34 at 128; with 50 a class, 12 at 160 are as good as 6 at
# 224, 1 point above 20 at 128, and 3 at 160 as good as 4 at 128.
_SMALLER_SIZES = (160, 128)
_EPOCHS_AT_FULL_SIZE, _EPOCHS_BETWEEN = 6, 3
# In fewer epochs no photo is seen often enough for crops to help. On CIFAR-100 whole
# images end 0.7 to 1.1 points above windows of 60 to 100% after four epochs and 1.6
# after one; after thirty they are 1.2 to 2.1 points below.
_EPOCHS_WITH_CROPS = 8
# Images of networks without patches are multiples of this.
_STRIDE = 32


def _plan(search, backbone):
    """Returns the settings of a training that fits the time, or {}."""
    left = search.budget.left - time_plan.reserve(search)
    photos = search.source.train.num_examples
    batch = backbone.recipe.batch_size
    while batch > 8 and 2 * batch > photos:
        batch //= 2
    full, *smaller = _sizes(backbone.recipe)
    for size in (full, *smaller):
        area = math.prod(size) / math.prod(full)
        rate = backbone.speed / _PASSES / area
        epochs = left * rate / photos
        if epochs >= (_EPOCHS_AT_FULL_SIZE if size == full else _EPOCHS_BETWEEN):
            break
    steps = int(_ROOM * left * rate / batch)
    if left < time_plan.LEAST_SECONDS or steps < _LEAST_STEPS:
        return {}
    crop = search.options.crop or backbone.recipe.crop
    if search.options.crop is None and crop == "inception":
        crop = "gentle" if epochs >= _EPOCHS_WITH_CROPS else "resize"
    search.because(
        f"All weights are trained at {sides(size)} for about {epochs:.2g} epochs; a "
        f"photo gives {CROPS[crop].title}."
    )
    return {"image_size": size, "batch_size": batch, "steps": steps, "crop": crop}


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


def _sizes(recipe):
    """Returns the (height, width) of features, and smaller ones in turn."""
    full = pair(recipe.image_size, "image_size")
    steps = (_STRIDE, _STRIDE)
    if building.architecture_of(recipe).one_grid:
        steps = building.config_of(recipe).stride
    sizes = [full]
    for longer in _SMALLER_SIZES:
        factor = longer / max(full)
        if factor < 1:
            sizes.append(
                tuple(
                    max(round(factor * side / step), 1) * step
                    for side, step in zip(full, steps, strict=True)
                )
            )
    return sizes
