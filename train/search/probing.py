"""Probes on the features of a backbone: which answer, and their one linear head."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from train.data.sources.splits import Split, pick
from train.scoring import probes
from train.scoring.features import Features
from train.scoring.temperature import temperature
from train.search.choosing import chosen, in_turns
from train.search.judging import EVEN, Judge
from train.search.table import Tried

# Kinds of probes, and whether they see the mean of the patches beside the class token.
_PROBES = (
    ("ridge", False),
    ("lda", False),
    ("lda", True),
    ("logistic", False),
    ("logistic", True),
)
# Twice the features take so many times as long.
_WIDER = 5.0
_INPUTS = {False: "class token", True: "class token and patches"}
_TITLES = {"ridge": "Ridge regression", "lda": "LDA", "logistic": "Logistic regression"}
# Features of fewer photos do not show how fast they come.
_FEWEST = 64


@dataclasses.dataclass(frozen=True)
class Probed:
    """The probes of a backbone that answer together, as one linear head.

    Attributes:
        head: `train.scoring.probes.Linear` on the class token or on that and the mean
            of the patches behind it.
        logits: floats (photos, classes), those for photos that the probes were not
            fitted on.
        tried: the probes, all that were fitted.
    """

    head: probes.Linear
    logits: np.ndarray
    tried: tuple[Tried, ...]

    def read(self, features: Features) -> np.ndarray:
        """Returns what the head reads of features, floats (photos, size)."""
        is_pooled = len(self.head.kernel) == features.pooled.shape[1]
        return features.pooled if is_pooled else features.joined


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
    count = min(_FEWEST, len(turns))
    while count:
        begun = clock()
        taken.append(np.sort(turns[done : done + count]))
        parts.append(extract(pick(split, taken[-1])))
        speed, done = count / max(clock() - begun, 1e-6), done + count
        keep(done, speed)
        rest = len(turns) - done
        coming = speed * seconds_left(rest / speed)
        part = min(max(int(coming / 2), _FEWEST), rest)
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
    groups: np.ndarray | None = None,
    judge: Judge = EVEN,
    log: Callable[[str], object] = print,
    number: int | None = None,
) -> Probed:
    """Fits probes on features, and chooses those that answer.

    The first is fitted in any case, others as long as `seconds` are left for one that
    takes as long as the longest before, or as it will on twice the features.

    Args:
        features: of all photos.
        classes: int.
        of: str, which names end in: the backbone, where there are several.
        seconds: float.
        clock: function that returns seconds.
        groups: (photos,), those of photos that are copies of each other, see
            `train.scoring.folds.folds_of`.
        judge: `Judge` of the answers.
        log: called with a line for each probe.
        number: int, how many are fitted whatever their time: those of a run before.
    """
    begun, longest = clock(), 0.0
    tried, linear, held_out, taken = [], [], [], {}
    for kind, patches in _PROBES:
        if patches and features.patch_mean is None:
            continue
        before = clock()
        name = f"{_TITLES[kind]}, {_INPUTS[patches]}{of}"
        coming = max(longest, _WIDER * taken.get(kind, 0.0) if patches else 0.0)
        is_late = before - begun + coming > seconds
        if tried and (is_late if number is None else len(tried) >= number):
            log(f"{name}: left out, as the time is needed for the rest")
            continue
        rows = features.joined if patches else features.pooled
        fitted = (kind, rows, features.labels, classes)
        logits = probes.out_of_fold_logits(*fitted, groups=groups)
        cooling = temperature(logits, features.labels, groups)
        held_out.append(logits / cooling)
        linear.append((probes.fit(*fitted, groups=groups).scaled(1 / cooling), patches))
        taken[kind] = clock() - before
        longest = max(longest, taken[kind])
        tried.append(
            judged(name, held_out[-1], features.labels, clock() - before, judge)
        )
        log(tried[-1].line)
    return _together(tried, linear, held_out, features, groups, judge)


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


def _together(tried, linear, held_out, features, groups, judge):
    """Returns the `Probed` of those that answer, whose shares are noted."""
    labels = features.labels
    losses = [judge.losses(logits, labels) for logits in held_out]
    places = chosen(losses, float(np.median(np.bincount(labels)[np.unique(labels)])))
    for place in places:
        tried[place].share = 1 / len(places)
    logits = np.mean([held_out[place] for place in places], axis=0)
    cooling = temperature(logits, labels, groups)
    patches = any(linear[place][1] for place in places)
    size = (features.joined if patches else features.pooled).shape[1]
    heads = [_wide(linear[place][0], size).scaled(1 / cooling) for place in places]
    return Probed(probes.average(heads), logits / cooling, tuple(tried))


def _wide(head, size):
    """Returns a head of more features, which it does not read."""
    more = size - len(head.kernel)
    return probes.Linear(np.pad(head.kernel, ((0, more), (0, 0))), head.bias)
