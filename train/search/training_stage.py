"""The training of all weights in a search: its plan, its run, what it adds."""

import contextlib
import dataclasses
import math
from typing import NamedTuple

import numpy as np

from train.data.registry import CROPS
from train.data.sources.splits import Source, Split
from train.engine import loop
from train.engine.pace import Pace
from train.recipes import Recipe
from train.run import training
from train.run.classification import FineTuning
from train.scoring.probes import Linear
from train.scoring.temperature import temperature
from train.search import time_plan
from train.search.answers import Answer, Member
from train.search.backbones import Backbone
from train.search.choosing import FEW, share_of
from train.search.probing import judged
from train.search.sizes import scaled, size_of
from train.search.slowdown import Slowdown
from train.search.state import State
from train.search.table import sides
from train.search.trained import logits_of

# A training of fewer steps teaches nothing.
_LEAST_STEPS = 14
# So many validations, and the share of the time that they may take.
_VALIDATIONS, _VALIDATING = 5, 0.04
_NEVER = 1_000
# Sizes of training, beside that of the features. How many epochs must fit at each but
# the smallest, and how many photos of each class a new head must see. On CIFAR-100 with
# ten images a class and the same seconds, 20 epochs at 160 end 1.6 points above 34 at
# 128, 14 there 2.5 above 6 at 224; with 50 a class, 12 at 160 are as good as 6 at 224,
# 1 point above 20 at 128, and 3 at 160 as good as 4 at 128. Between these sizes one
# that begins as a probe needs to see no number: 3.7 epochs at 160 of ten a class have a
# log loss of 0.83 on held-out photos, 5.5 at 128 one of 1.08; with 50 a class 0.6 at
# 160 are as good as 1 at 128.
_SMALLER_SIZES = (160, 128)
_AT_FULL_SIZE, _BETWEEN = (6, 300), (3, 120)
# In fewer epochs no photo is seen often enough for crops to help. On CIFAR-100 from a
# head of zeros whole images end 0.7 to 1.1 points above windows of 60 to 100% after
# four epochs and 1.6 after one; after thirty they are 1.2 to 2.1 points below. From a
# probe few photos are known sooner: after four epochs whole images are 1.5 points below
# with ten a class, and 0.4 above with fifty.
_FEW_EPOCHS, _FEWER_EPOCHS = 8, 2
# Adam, with rates that fall towards the first block, learns more from few epochs. From
# a head of zeros the average with probes ends 0.5 to 1.0 points above that of momentum
# after four epochs of 50 images a class (three draws), 1.8 after 1.5 of 250; after
# thirty of ten a class it is 0.1 to 1.1 points below. A head that begins as a probe and
# this rate bring 1.5 to 3.9 points over zeros and half of the rate in 80 to 250 steps
# of 50 and 250 a class, and 0.3 in 90 of ten.
_OF_FEW_EPOCHS = {"optimizer": "adam", "learning_rate": 1e-3, "layer_decay": 0.75}
# A trained network usually gets half of the answer: a hundred held-out photos often say
# less or more by chance. Where a share had to be surely better than none, 15 of 36
# trainings on ten images a class got another than half, which was 0.9 points better.
_USUAL_SHARE = 0.5


class _FromProbe(FineTuning):
    """Fine-tuning with a head that begins as a probe, not as zeros."""

    def __init__(self, recipe: Recipe, head: Linear):
        super().__init__(recipe)
        self._head = head

    def build(self, source: Source) -> None:
        super().build(source)
        self.model.layers[-1].set_weights([self._head.kernel, self._head.bias])


class _Fitting(NamedTuple):
    """What fits the time that is left, at a size of images.

    So many `photos` are trained on in some `seconds`, which are so many `epochs`.
    """

    size: tuple[int, int]
    area: float
    seconds: float
    photos: float
    epochs: float


def _fitting(search, backbone, speed, may_know):
    """Returns the `_Fitting` of the largest size of which enough fits.

    `may_know` says whether a head may begin as a probe in few epochs.
    """
    full, *smaller = _sizes(backbone.recipe)
    for size in (full, *smaller):
        area = _area(size, backbone)
        seconds = time_plan.left_for_training(search, area)
        photos = seconds * speed / time_plan.PASSES / area
        epochs = photos / search.source.train.num_examples
        fewest_epochs, fewest_of_class = _AT_FULL_SIZE if size == full else _BETWEEN
        is_known = may_know and epochs < _FEW_EPOCHS and size != full
        is_seen = photos / len(search.names) >= fewest_of_class
        if epochs >= fewest_epochs and (is_known or is_seen):
            break
    return _Fitting(size, area, seconds, photos, epochs)


def _plan(search, backbone):
    """Returns the settings of a training that fits the time, or {}."""
    recipe, batch = backbone.recipe, backbone.recipe.batch_size
    while batch > 8 and 2 * batch > search.source.train.num_examples:
        batch //= 2
    speed = backbone.speed / search.budget.facts.get("photo_scale", 1.0)
    options, has_blocks = search.options, backbone.has_blocks
    is_free = has_blocks and options.may_choose_optimizer(recipe)
    may_know = has_blocks and options.may_begin_as_probe(recipe)
    fitting = _fitting(search, backbone, speed, may_know)
    steps = int(fitting.photos / batch)
    if fitting.seconds < time_plan.least_training(search) or steps < _LEAST_STEPS:
        return {}
    is_few = fitting.epochs < _FEW_EPOCHS
    from_probe = is_few and may_know
    of_class = search.source.train.num_examples / len(search.names)
    is_soon_known = from_probe and of_class <= FEW
    sees_whole = fitting.epochs < (_FEWER_EPOCHS if is_soon_known else _FEW_EPOCHS)
    plan = {
        "image_size": list(fitting.size),
        "batch_size": batch,
        "steps": steps,
        "crop": options.crop_of(recipe) or ("resize" if sees_whole else "gentle"),
    }
    if is_few and is_free:
        plan |= _OF_FEW_EPOCHS | {"from_probe": from_probe}
    if recipe.eval_every is None:
        seconds = fitting.area * search.source.validation.num_examples / speed
        count = min(int(_VALIDATING * fitting.seconds / seconds), _VALIDATIONS)
        plan["eval_every"] = _steps_between(count, steps)
    return plan


def _steps_between(count, steps):
    """Returns after how many of some steps so many validations come."""
    # None comes on a machine that turns out faster either, if none fits.
    return max(steps // count, 1) if count else _NEVER * steps


def _about(plan, photos):
    """Returns a sentence about what is trained, by the plan of it."""
    epochs = plan["steps"] * plan["batch_size"] / photos
    how = ""
    if "optimizer" in plan:
        how = (
            f" by {plan['optimizer'].capitalize()}, whose rate is times "
            f"{plan['layer_decay']} from each block to the one before"
        )
    if plan.get("from_probe"):
        how += ", with LDA as the head to begin with"
    return (
        f"All weights are trained at {sides(plan['image_size'])} for about "
        f"{epochs:.2g} epochs{how}; a photo gives {CROPS[plan['crop']].title}."
    )


def smallest_area(backbone: Backbone) -> float:
    """Returns the area of the smallest images for training, by the backbone's."""
    return _area(_sizes(backbone.recipe)[-1], backbone)


def _area(size, backbone):
    """Returns the pixels of an image for training, by those for the features."""
    return math.prod(size) / math.prod(size_of(backbone.recipe))


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
    search.because(_about(facts["training"], search.source.train.num_examples))
    begun = search.budget.clock()
    with search.budget.part("training"):
        run = _trained(search, backbone)
    stack.enter_context(run.trainer.averaged())

    def logits(split: Split, through: tuple[int, int]) -> np.ndarray:
        return logits_of(run, split, search.features, through)

    member = Member(lambda: run.task.network, logits, run.image_size)
    with search.budget.part("choosing"):
        return _joined(search, answer, member, search.budget.clock() - begun)


def _trained(search, backbone):
    """Returns the `Run` of the training that was planned, whose steps are taken."""
    plan = dict(search.budget.facts["training"])
    plan["image_size"] = tuple(plan["image_size"])
    from_probe = plan.pop("from_probe", False)
    recipe = backbone.recipe.override(**plan)
    task = FineTuning(recipe)
    if from_probe:
        task = _FromProbe(recipe, backbone.first_head())
    run = training.built(task, search.source, search.directory, search.devices)
    area, slowdown = _area(plan["image_size"], backbone), Slowdown()

    def left() -> float:
        search.budget.keep()
        slowdown.look(search.budget.clock(), pace.taken)
        search.slowdown = slowdown.factor
        return time_plan.left_for_training(search, area)

    seconds_of_step = max(
        time_plan.left_for_training(search, area) / recipe.steps, 1e-3
    )
    every = min(max(int(1 / seconds_of_step), 1), max(recipe.steps // 20, 1))
    pace = Pace(left, recipe.steps, every)
    loop.TrainingLoop(run, pace).train()
    search.stage = recipe
    return run


def _joined(search, answer, member, seconds):
    """Returns the answer with a trained network, as far as that helps."""
    labels = search.source.validation.labels()
    through = max(answer.size, member.size)
    logits = member.logits(search.source.validation, through)
    weight = 1 / temperature(logits, labels)
    of_probes = answer.held_out[-len(labels) :]
    logits = weight * logits
    row = judged(
        f"All weights, trained at {sides(search.stage.image_size)}",
        logits,
        labels,
        seconds,
        search.judge,
    )
    before = judged("", of_probes, labels, 0.0, search.judge)
    if search.options.single:
        share = float(row.log_loss < before.log_loss)
    else:
        share = share_of(logits, of_probes, labels, search.judge, usual=_USUAL_SHARE)
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
    member = dataclasses.replace(member, weight=weight)
    answer = dataclasses.replace(answer, held_out=of_probes)
    return answer.joined_by(member, logits, share, labels)


def _sizes(recipe):
    """Returns the (height, width) of features, and smaller ones in turn."""
    full = size_of(recipe)
    factors = (longer / max(full) for longer in _SMALLER_SIZES)
    return [full, *(scaled(recipe, factor) for factor in factors if factor < 1)]
