"""Backbones: their features, and the probes on these."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from train.data import copies
from train.data.sources.subset import limited
from train.recipes import Recipe
from train.run import building
from train.scoring.features import Extractor
from train.scoring.learning_curve import Point, of_probe
from train.scoring.probed_network import probed_network
from train.search import probing
from train.search.answers import Answer, Member
from train.search.budget import FEATURES
from train.search.choosing import share_of
from train.search.probing import Probed
from train.search.state import State
from train.search.table import sides

# Shares of the budget: for features and for probes.
_FEATURES, _PROBES = 0.4, 0.15
# Of the photos of a large set only some give features: training learns more from all.
# On all of CIFAR-100 probes of 21,000 photos reach 75% and one epoch at 128 82%.
_FEATURES_OF_SOME = 0.15
# From so many photos on the backbone is converted for another runtime.
_CONVERTED = 1_000
# So many photos compile the network, where none are held out.
_FEWEST = 32
# At least so many seconds are for probes.
_LEAST_PROBES = 10.0


@dataclasses.dataclass
class Backbone:
    """A network on whose features probes were fitted, and how fast these came."""

    recipe: Recipe
    name: str
    probed: Probed
    labels: np.ndarray
    speed: float
    member: Member
    curve: Sequence[Point]
    log_loss: float


def backbone_of(search: State, recipe: Recipe, number: int, count: int) -> Backbone:
    """Returns the backbone of one of `count` recipes, which share the time."""
    with search.devices.strategy.scope():
        network = building.model(recipe, len(search.names))
    name, key = _name_of(recipe, network), f"{FEATURES}{number}"
    # A conversion takes as long as it saves on some thousand photos.
    is_large = search.source.train.num_examples >= _CONVERTED
    extractor = Extractor(network, engine="auto" if is_large else "keras")
    extract = functools.partial(extractor, cache=search.features)
    facts: dict[str, Any] | None = search.budget.facts.get(key)
    begun = search.budget.clock()
    # The first photos compile, and do not show how fast others come.
    first = search.source.validation or limited(search.source.train, _FEWEST)
    of_first = extract(first)
    if facts is None:
        left = search.budget.left / count
        of_train, speed = probing.features_in(
            _FEATURES * left,
            extract,
            search.source.train,
            search.budget.clock,
            otherwise=_FEATURES_OF_SOME * left,
        )
        facts = {
            "photos": len(of_train.labels),
            "speed": speed,
            "seconds": search.budget.clock() - begun,
        }
        search.budget.keep(**{key: facts})
    else:
        of_train = extract(probing.first_of(search.source.train, facts["photos"]))
    features = of_train
    groups = copies.groups(probing.first_of(search.source.train, facts["photos"]))
    if search.source.validation is not None:
        features = probing.joined([of_train, of_first])
        others = len(groups) + copies.groups(search.source.validation)
        groups = np.concatenate([groups, others])
    search.say(
        f"{name}: features of {len(features.labels):,} photos in "
        f"{search.budget.clock() - begun:.0f} s"
    )
    probed = probing.probed(
        features,
        len(search.names),
        of=f", {name}" if count > 1 else "",
        seconds=max(_PROBES * search.budget.seconds / count, _LEAST_PROBES),
        clock=search.budget.clock,
        groups=groups,
        judge=search.judge,
        log=search.say,
    )
    search.budget.keep()
    search.tried += probed.tried
    member = Member(
        functools.partial(_with_head, search, recipe, probed.head),
        lambda split: probed.head.logits(probed.read(extract(split))),
        lambda split: probed.read(extract(split)),
    )
    curve = _curve(search, of_train, of_first)
    return Backbone(
        recipe,
        name,
        probed,
        labels=features.labels,
        speed=facts["speed"],
        member=member,
        curve=curve,
        log_loss=float(search.judge.losses(probed.logits, features.labels).mean()),
    )


def _curve(search, of_train, of_judges):
    """Returns the learning curve of a probe, if there are held-out photos."""
    if search.source.validation is None:
        return ()
    return of_probe(
        "ridge",
        of_train.pooled,
        of_train.labels,
        (of_judges.pooled, of_judges.labels),
        len(search.names),
    )


def _with_head(search, recipe, head):
    """Returns the network of a recipe with the head of its probes."""
    network = building.model(recipe, len(search.names))
    return probed_network(network, head, search.names)


def _name_of(recipe, network):
    model = recipe.model if isinstance(recipe.model, str) else network.name
    if os.path.exists(model):
        model = pathlib.Path(model).stem
    return f"{model} at {sides(network.input_shape[1:3])}"


def of_probes(search: State, best: Backbone, backbones: Sequence[Backbone]) -> Answer:
    """Returns the answer of the best backbone's probes, and of others that help."""
    answer = Answer([best.member], best.probed.logits)
    joined = [best]
    for other in backbones:
        if other is best:
            continue
        share = 0.0
        if not search.options.single and len(other.labels) == len(best.labels):
            share = share_of(
                other.probed.logits, answer.held_out, best.labels, search.judge
            )
        if share:
            answer = answer.joined_by(
                other.member, other.probed.logits, share, best.labels
            )
        _share_out(joined, 1 - share)
        _share_out([other], share)
        joined.append(other)
        what = f"gets {share:.0%} of the answer" if share else "is left out"
        search.because(
            f"{other.name} {what}: on held-out photos its log loss is "
            f"{other.log_loss:.3f}, that of {best.name} {best.log_loss:.3f}."
        )
    used = [one.name for one in search.tried if one.share]
    search.because(f"The answers of these probes are averaged: {'; '.join(used)}.")
    return answer


def _share_out(backbones, share):
    """Multiplies the shares of the probes of some backbones."""
    for backbone in backbones:
        for one in backbone.probed.tried:
            one.share *= share
