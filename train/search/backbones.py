"""Backbones: their features, and the probes on these."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from train.data import copies
from train.data.sources.splits import Split
from train.recipes import Recipe
from train.run import building
from train.run.trained_parts import block_numbers
from train.scoring import probes
from train.scoring.features import Extractor
from train.scoring.learning_curve import Point, of_probe
from train.scoring.probed_network import probed_network
from train.search import probing, time_plan
from train.search.answers import Answer, Member
from train.search.budget import PROBES
from train.search.choosing import even_share, share_of
from train.search.probing import Probed
from train.search.state import State
from train.search.table import sides
from train.search.timed_features import TimedFeatures

# From so many photos on the backbone is converted for another runtime.
_CONVERTED = 400
# A training begins with this share of a probe's logits: with all of them few photos are
# soon known by heart, and it ends up to 1.8 points lower.
_SHARE_OF_LOGITS = 0.3


@dataclasses.dataclass
class Backbone:
    """A network on whose features of photos probes were fitted.

    `photos` are those of the training part, of which so many came in a second by its
    `speed`. `judges` are the last of the photos that `labels` are of. `has_blocks` says
    whether the network has transformer blocks. `first_head` returns a probe that a
    training may begin with as its head, fitted without the photos that judge it.
    """

    recipe: Recipe
    name: str
    probed: Probed
    labels: np.ndarray
    speed: float
    photos: Split
    judges: Split | None
    member: Member
    curve: Sequence[Point]
    log_loss: float
    has_blocks: bool
    first_head: Callable[[], probes.Linear]


def backbone_of(search: State, recipe: Recipe, number: int, count: int) -> Backbone:
    """Returns the backbone of one of `count` recipes, which share the time."""
    begun = search.budget.clock()
    with search.budget.part("features"):
        with search.devices.strategy.scope():
            network = building.model(recipe, len(search.names))
        if "build_seconds" not in search.budget.facts:
            search.budget.keep(build_seconds=search.budget.clock() - begun)
        name = _name_of(recipe, network)
        # To convert and compare takes about as long as it saves on 300 photos.
        is_large = search.source.train.num_examples >= _CONVERTED
        extractor = Extractor(network, engine="auto" if is_large else "keras")
        extract = functools.partial(extractor, cache=search.features)
        timed = TimedFeatures(search, extract, number, count)
        features, groups = timed.of_train, copies.groups(timed.photos)
        if (of_judges := timed.of_judges) is not None:
            features = probing.joined([features, of_judges])
            others = len(groups) + copies.groups(timed.judges)
            groups = np.concatenate([groups, others])
        mirrored = timed.of_mirrored() if recipe.flip else None
    search.say(
        f"{name}: features of {len(features.labels):,} photos in "
        f"{search.budget.clock() - begun:.0f} s"
    )
    with search.budget.part("probes"):
        probed = probing.probed(
            features,
            len(search.names),
            of=f", {name}" if count > 1 else "",
            seconds=time_plan.for_probes(search, count),
            clock=search.budget.clock,
            mirrored=mirrored,
            groups=groups,
            judge=search.judge,
            log=search.say,
            number=search.budget.facts.get(f"{PROBES}{number}"),
        )
        search.budget.keep(**{f"{PROBES}{number}": len(probed.tried)})
        curve = _curve(timed, len(search.names))
    search.tried += probed.tried
    member = Member(
        functools.partial(probed_network, network, probed.head, search.names),
        lambda split, through: probed.head.logits(
            probed.read(extract(split, through=through))
        ),
        network.input_shape[1:3],
        lambda split: probed.head.head_inputs(probed.read(extract(split))),
    )
    return Backbone(
        recipe,
        name,
        probed,
        labels=features.labels,
        speed=timed.speed,
        photos=timed.photos,
        judges=timed.judges,
        member=member,
        curve=curve,
        log_loss=float(search.judge.losses(probed.logits, features.labels).mean()),
        has_blocks=bool(block_numbers(network)),
        first_head=functools.partial(
            _first_head,
            timed.of_train.pooled.copy(),
            timed.of_train.labels,
            len(search.names),
            groups[: len(timed.of_train.labels)],
        ),
    )


def _curve(timed, classes):
    """Returns the learning curve of a probe, if there are held-out photos."""
    of_train, of_judges = timed.of_train, timed.of_judges
    if of_judges is None:
        return ()
    return of_probe(
        "ridge",
        of_train.pooled,
        of_train.labels,
        (of_judges.pooled, of_judges.labels),
        classes,
    )


def _first_head(pooled, labels, classes, groups):
    """Returns LDA with a share of its logits, by photos that judge no training."""
    probe = probes.fit("lda", pooled, labels, classes, groups=groups)
    return probe.scaled(_SHARE_OF_LOGITS)


def _name_of(recipe, network):
    model = recipe.model if isinstance(recipe.model, str) else network.name
    if os.path.exists(model):
        model = pathlib.Path(model).stem
    return f"{model} at {sides(network.input_shape[1:3])}"


def of_probes(search: State, best: Backbone, backbones: Sequence[Backbone]) -> Answer:
    """Returns the answer of the best backbone's probes, and of others that help."""
    answer = Answer([best.member], best.probed.logits)
    before = [best]
    for other in backbones:
        if other is not best:
            answer = joined(search, best, answer, other, before)
            before.append(other)
    return answer


def joined(
    search: State,
    best: Backbone,
    answer: Answer,
    other: Backbone,
    before: Iterable[Backbone],
) -> Answer:
    """Returns the answer of the backbones before, and of another one if it helps."""
    share, photos, others = 0.0, len(other.labels), len(best.labels)
    if photos == others and not search.options.single:
        share = _share(search, other, best, answer)
    if share:
        answer = answer.joined_by(other.member, other.probed.logits, share, best.labels)
    _share_out(before, 1 - share)
    _share_out([other], share)
    what = f"gets {share:.0%} of the answer" if share else "is left out"
    why = (
        f"on held-out photos its log loss is {other.log_loss:.3f}, that of {best.name} "
        f"{best.log_loss:.3f}"
    )
    if photos != others:
        why = (
            f"there was time for features of {photos:,} photos, by {best.name} of "
            f"{others:,}"
        )
    search.because(f"{other.name} {what}: {why}.")
    return answer


def say_which_answer(search: State) -> None:
    """Says which probes answer."""
    used = [one.name for one in search.tried if one.share]
    what = "The answers of these probes are averaged"
    if len(used) == 1:
        what = "This probe answers"
    search.because(f"{what}: {'; '.join(used)}.")


def _share(search, other, best, answer):
    """Returns the share of the answer that another backbone gets."""
    if other.recipe == best.recipe.override(image_size=other.recipe.image_size):
        both = (
            search.judge.losses(one.probed.logits, best.labels) for one in (other, best)
        )
        return even_share(*both)
    return share_of(other.probed.logits, answer.held_out, best.labels, search.judge)


def _share_out(backbones, share):
    """Multiplies the shares of the probes of some backbones."""
    for backbone in backbones:
        for one in backbone.probed.tried:
            one.share *= share
