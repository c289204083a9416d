"""Probes on the features of a backbone: which answer, and their one head."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from train.data.sources.splits import Split, pick
from train.scoring import probes
from train.scoring.features import Features
from train.scoring.temperature import temperature
from train.search.candidates import Candidate, candidates_for
from train.search.choosing import FAR, chosen, in_turns, share_of
from train.search.judging import EVEN, Judge
from train.search.table import Tried

# Twice the features take so many times as long.
_WIDER = 5.0
# Five folds of four fifths of the photos take so many times as long as all at once.
_FOLDS = 4.0
# Features of fewer photos do not show how fast they come.
FEWEST = 64


@dataclasses.dataclass(frozen=True)
class Probed:
    """The probes of a backbone that answer together, as one head.

    Attributes:
        head: `train.scoring.probes.Probe` on the class token or on that and the mean
            of the patches behind it; linear, unless a perceptron is part of it.
        logits: floats (photos, classes), those for photos that the probes were not
            fitted on.
        tried: the probes, all that were fitted.
    """

    head: probes.Probe
    logits: np.ndarray
    tried: tuple[Tried, ...]

    def read(self, features: Features) -> np.ndarray:
        """Returns the part of features that the head is on, floats (photos, size)."""
        is_pooled = self.head.size == features.pooled.shape[1]
        return features.pooled if is_pooled else features.joined


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """A candidate that was fitted, scaled by its temperature."""

    candidate: Candidate
    probe: probes.Probe
    held_out: np.ndarray
    row: Tried


def features_in(
    seconds_left: Callable[[float], float],
    extract: Callable[[Split], Features],
    split: Split,
    clock: Callable[[], float],
    keep: Callable[[int, float], object] = lambda photos, speed: None,
) -> Features:
    """Returns features of as many photos of a split as there is time for.

    Each class has its share of the photos, of which there are at least 64. They come in
    parts of half the time that is left, so that a machine which becomes slower is
    noticed.

    `seconds_left` is a function of the seconds that all other photos need. `keep` is
    called after each part with the number of photos so far, and how many of the part
    came in a second.
    """
    turns = in_turns(split.labels())
    parts, taken, done = [], [], 0
    count = min(FEWEST, len(turns))
    while count:
        begun = clock()
        taken.append(np.sort(turns[done : done + count]))
        parts.append(extract(pick(split, taken[-1])))
        speed, done = count / max(clock() - begun, 1e-6), done + count
        keep(done, speed)
        rest = len(turns) - done
        coming = speed * seconds_left(rest / speed)
        part = min(max(int(coming / 2), FEWEST), rest)
        count = part if coming >= part else 0
    order = np.argsort(np.concatenate(taken))
    return _each(lambda values: values[order], joined(parts))


def first_of(split: Split, count: int) -> Split:
    """Returns the photos whose features `features_in` returned, when it had `count`."""
    return pick(split, np.sort(in_turns(split.labels())[:count]))


def _each(function, *parts):
    """Returns features whose arrays are those of a function of the parts' arrays."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Features(*(None if one[0] is None else function(*one) for one in columns))


def joined(parts: Sequence[Features]) -> Features:
    """Returns the features of the photos of several parts, in turn."""
    return _each(lambda *values: np.concatenate(values), *parts)


def probed(
    features: Features,
    classes: int,
    *,
    of: str,
    seconds: float,
    clock: Callable[[], float],
    mirrored: Features | None = None,
    groups: np.ndarray | None = None,
    judge: Judge = EVEN,
    log: Callable[[str], object] = print,
    number: int | None = None,
) -> Probed:
    """Fits probes on features, and chooses those that answer.

    The first is fitted in any case, others as long as `seconds` are left for one that
    takes as long as the longest before, or as it will on twice the features, and then
    for its folds.

    Args:
        features: of all photos.
        classes: int.
        of: str, which names end in: the backbone, where there are several.
        seconds: float.
        clock: function that returns seconds.
        mirrored: those of the same photos mirrored, to fit further probes on.
        groups: (photos,), those of photos that are copies of each other, see
            `train.scoring.folds.folds_of`.
        judge: `Judge` of the answers.
        log: called with a line for each probe.
        number: int, how many are fitted whatever their time: those of a run before.
    """
    end, taken = clock() + seconds, {}
    labels, fitted = features.labels, []
    photos_per_class = float(np.median(np.bincount(labels)[np.unique(labels)]))
    for candidate in candidates_for(features, mirrored is not None, photos_per_class):
        before = clock()
        name = f"{candidate.name}{of}"
        wider = _WIDER * taken.get(candidate.kind, 0.0) if candidate.patches else 0.0
        coming, left = max([wider, *taken.values()]), end - before
        if number is not None or not fitted:
            # The first, and those of a run before, may take any time.
            left = math.inf if len(fitted) < (number or 1) else 0.0
        found = None
        if left > 0 and coming <= left:
            found = _fit(
                candidate,
                features,
                mirrored,
                classes,
                groups=groups,
                seconds=left,
                clock=clock,
            )
        if found is None:
            # As the time is over, those that follow are left out, too.
            end = before
            log(f"{name}: left out, as the time is needed for the rest")
            continue
        probe, held_out = found
        taken[candidate.kind] = clock() - before
        row = judged(name, held_out, labels, taken[candidate.kind], judge)
        fitted.append(_Fitted(candidate, probe, held_out, row))
        log(row.line)
    return _together(fitted, features, groups, judge, photos_per_class)


def _fit(candidate, features, mirrored, classes, *, groups, seconds, clock):
    """Returns a probe and its logits for held-out photos, with a temperature.

    It is None where it would take more than some seconds, as one of all photos shows.
    """
    begun = clock()
    labels, photos, of_photos = features.labels, features, groups
    if candidate.mirrored:
        # A mirrored photo is in the fold of the photo.
        own = np.arange(len(labels)) if groups is None else groups
        photos, of_photos = joined([features, mirrored]), np.concatenate([own, own])
    rows = photos.joined if candidate.patches else photos.pooled
    given = (candidate.kind, rows, photos.labels, classes)
    probe = probes.fit(*given, groups=of_photos)
    if (1 + _FOLDS) * (clock() - begun) > seconds:
        return None
    logits = probes.out_of_fold_logits(*given, groups=of_photos)[: len(labels)]
    cooling = temperature(logits, labels, groups)
    return probe.scaled(1 / cooling), logits / cooling


def judged(
    name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    seconds: float,
    judge: Judge = EVEN,
) -> Tried:
    """Returns the row of a candidate, by its logits for held-out photos."""
    return Tried(
        name,
        photos=len(labels),
        accuracy=judge.accuracy(logits, labels),
        log_loss=float(judge.losses(logits, labels).mean()),
        seconds=seconds,
        is_balanced=judge.shift is not None,
    )


def _together(fitted, features, groups, judge, photos_per_class):
    """Returns the `Probed` of those that answer, whose shares are noted."""
    labels = features.labels
    linear = [one for one in fitted if isinstance(one.probe, probes.Linear)]
    perceptrons = [one for one in fitted if isinstance(one.probe, probes.Mlp)]
    losses = [judge.losses(one.held_out, labels) for one in linear]
    parts = [linear[place] for place in chosen(losses, photos_per_class)]
    for one in parts:
        one.row.share = 1 / len(parts)
    patches = any(one.candidate.patches for one in parts)
    size = (features.joined if patches else features.pooled).shape[1]
    logits = np.mean([one.held_out for one in parts], axis=0)
    cooling = temperature(logits, labels, groups)
    head = probes.average(
        [one.probe.widened(size).scaled(1 / cooling) for one in parts]
    )
    logits = logits / cooling
    for one in perceptrons:
        share = share_of(one.held_out, logits, labels, judge, errors=FAR)
        one.row.share = share
        for other in parts:
            other.row.share *= 1 - share
        logits = share * one.held_out + (1 - share) * logits
        head = probes.mixed(head, one.probe.widened(size), share)
    return Probed(head, logits, tuple(one.row for one in fitted))
