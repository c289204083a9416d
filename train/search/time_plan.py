"""How the minutes of a search are divided: what its end takes, what is left.

The plan is made of what was measured, and made anew whenever more is known. What does
not fit is left out in this order: steps of the training, the training, test photos,
probes, photos to compute features of. The least is one probe on 64 photos, tested on
100, and its report; where not even that fits, the search says so and takes longer.
"""

import dataclasses
import math

from train.scoring.held_out import KNOWN
from train.search.budget import FEATURES
from train.search.choosing import FEWEST_JUDGES
from train.search.state import State

# Shares of the time for features: of all photos to train on, and of those that judge.
_FEATURES, _JUDGES = 0.25, 0.1
# Other backbones than the first compute what that has, or nothing.
_OTHER_FEATURES = 0.4
# Only some photos of a large set give features: training learns more from all. On all
# of CIFAR-100 probes of 21,000 photos reach 75% and one epoch at 128 82%. In five
# minutes on two slow cores 50 images a class end at 73% with 0.5 of the time for
# features, 75% with 0.2 and 77% with 0.12, which leaves 14, 57 and 72 steps.
_FEATURES_OF_SOME = 0.12
# Shares of the budget for testing the first answer, and the last.
FIRST_TEST, _TEST = 0.02, 0.1
# Each of so many photos counts more than the time that its features take.
_SMALL_SET = 1_000
# Shares of the budget for features of mirrored photos, and of larger ones; the first
# answer does not wait longer than some seconds for the former, which bring little.
_MIRRORED, _LARGER = 0.05, 0.1
_MIRRORED_SECONDS = 10.0
# The share of the budget for probes, and the seconds that they get at least.
_PROBES, _LEAST_PROBES = 0.15, 10.0
# A training of fewer seconds teaches nothing. A step compiles longer than a network for
# photos alone.
LEAST_SECONDS, _COMPILING = 20.0, 2.0
# For fewer steps no photo of a large set goes without features. From a head of zeros
# all weights answer 28% of 100 classes after 23 steps, where probes of a part of the
# photos answer 62%; from a probe they are past that.
_STEPS_FROM_PROBE, _STEPS_FROM_ZEROS = 20, 50
# A step computes as much as three forward passes, and waits for photos too.
PASSES = 3.5
# How much longer than measured the end may take.
CAUTION = 1.2
# Before a report is measured: it takes as long as building so many networks, and more.
_BUILDS, _REPORT_SECONDS = 4.0, 8.0
# So many photos are the first ones of a backbone.
COMPILED = 32
# The least area of images for training is about 128 x 128 of 224 x 224.
_SMALL_AREA = 0.33
# Fewer test photos say too little.
FEWEST_TESTED = 100


@dataclasses.dataclass(frozen=True)
class Costs:
    """What is known of the seconds that parts of a search take.

    Attributes:
        photo: float, of the features of a photo by all backbones.
        longest: float, by the slowest of them.
        report: float, of a report without testing.
        compiling: float, of a network for its first photos.
    """

    photo: float
    longest: float
    report: float
    compiling: float


def costs(search: State) -> Costs:
    """Returns what was measured, on the machine as it is now."""
    facts = search.budget.facts
    backbones = [facts[name] for name in facts if name.startswith(FEATURES)]
    # A first answer has shown how fast photos come once all is converted.
    scale = facts.get("photo_scale", 1.0)
    photos = [scale / one["speed"] for one in backbones if "speed" in one]
    building = _BUILDS * facts.get("build_seconds", 0.0)
    report = facts.get("report_seconds", _REPORT_SECONDS + building)
    each = (
        sum(photos),
        max(photos, default=0.0),
        # The first report was of one network less.
        report + building * search.is_larger,
        max(map(_compiling, backbones), default=0.0),
    )
    return Costs(*(search.slowdown * seconds for seconds in each))


def _compiling(facts):
    """Returns the seconds of compiling a backbone, without its first photos."""
    photos = COMPILED / facts.get("speed", math.inf)
    return max(facts.get("compiling", 0.0) - photos, 0.0)


def for_features(
    search: State, number: int, count: int, used: float, needed: float
) -> float:
    """Returns the seconds that are left for the features by a backbone.

    It is one of `count`, of a number from 0, has `used` some seconds, and needs others
    for all photos. Where no training of enough steps will fit, features may have all
    the time.
    """
    left = search.budget.left
    if not search.trains:
        # They are of larger images: `fits_larger` has planned all that follows.
        return left - least_end(search)
    whole = (left + used) / count
    seconds = (_OTHER_FEATURES if number else _FEATURES) * whole - used
    if not number and needed > seconds:
        seconds = max(_FEATURES_OF_SOME * whole - used, 0.0)
    is_small = search.source.train.num_examples <= _SMALL_SET
    # Both are beyond the least training: the time left, and that of the steps.
    above = _for_training(search) - seconds - _LEAST_PROBES
    if is_small or above < max(_seconds_of_steps(search) - LEAST_SECONDS, 0.0):
        rest = left - least_end(search) - _LEAST_PROBES
        seconds = max(seconds, rest / (count - number))
    return seconds


def _seconds_of_steps(search):
    """Returns about how long the fewest steps take that are worth photos."""
    may_know = search.options.may_begin_as_probe(search.recipe)
    steps = _STEPS_FROM_PROBE if may_know else _STEPS_FROM_ZEROS
    step = search.recipe.batch_size * PASSES * _SMALL_AREA * costs(search).longest
    return steps * step


def fits_mirrored(search: State, photos: int, speed: float) -> bool:
    """Returns whether features of mirrored photos take little time."""
    return photos <= min(_MIRRORED * search.budget.seconds, _MIRRORED_SECONDS) * speed


def fits_larger(search: State, photos: int, area: float, speed: float) -> bool:
    """Returns whether features of larger photos take time that nothing else needs.

    Where a training follows that is little, else all that is left before the end.
    `area` is theirs by that of the photos that come in at this `speed`. Their network
    is built and compiled first, has probes as the others had, and is tested and saved
    in the end.
    """
    build, photo = search.budget.facts.get("build_seconds", 0.0), area / speed
    seconds = build + costs(search).compiling + photos * photo
    end = least_end(search) + _BUILDS * build + FEWEST_TESTED * photo
    end += search.budget.parts.get("probes", 0.0)
    share = _LARGER if search.trains else 1.0
    return seconds <= min(share * search.budget.seconds, search.budget.left - end)


def for_judges(search: State) -> float:
    """Returns the seconds for features of the photos that judge a training."""
    return _JUDGES * search.budget.left


def for_probes(search: State, count: int) -> float:
    """Returns the seconds for the probes of one of `count` backbones."""
    share = max(_PROBES * search.budget.seconds / count, _LEAST_PROBES)
    return min(share, search.budget.left - least_end(search))


def may_train(search: State, area: float) -> bool:
    """Returns whether held-out photos and the time that is left allow a training.

    The smallest images of a training have an area of those of the backbone.
    """
    judges = search.source.validation
    if judges is None or judges.num_examples < FEWEST_JUDGES:
        count = judges.num_examples if judges else 0
        search.because(
            f"No training: {count} held-out photos cannot judge whether it helps; "
            f"a --validation_fraction that holds out {FEWEST_JUDGES} could."
        )
        return False
    if "training" in search.budget.facts:
        return bool(search.budget.facts["training"])
    above = _for_training(search, area)
    if above < 0:
        left = above + least_training(search)
        search.because(f"No training: {max(left, 0):.0f} s would be left for it.")
        return False
    return True


def _for_training(search, area=_SMALL_AREA):
    """Returns the seconds for training after a first report, above the least."""
    cost = costs(search)
    first = cost.report + cost.photo * tested(search, FIRST_TEST)
    end = CAUTION * first + least_training(search)
    return left_for_training(search, area) - end


def least_training(search: State) -> float:
    """Returns the seconds of a training below which it teaches nothing."""
    return LEAST_SECONDS + _COMPILING * costs(search).compiling


def left_for_training(search: State, area: float) -> float:
    """Returns the seconds for training on images of an area of the backbone's."""
    cost, judges = costs(search), search.source.validation
    count = planned_test(search)
    # The network that was trained also computes photos of the training that the report
    # knows; the backbones know these already, and the first answer has tested some. For
    # a network of larger images, and through its size, all are new.
    of_report = min(search.source.train.num_examples, KNOWN)
    known = of_report + count + (judges.num_examples if judges else 0)
    new = max(count - tested(search, FIRST_TEST), 0)
    if search.is_larger:
        new = count + of_report
    end = cost.report + cost.photo * new + area * cost.longest * known
    end += cost.compiling
    return search.budget.left - CAUTION * end


def left_for_tests(search: State) -> float:
    """Returns the seconds for testing, before the report."""
    return search.budget.left - CAUTION * costs(search).report


def tested(search: State, share: float) -> int:
    """Returns how many photos of the test part fit in a share of the budget."""
    cost = costs(search)
    fitting = int(share * search.budget.seconds / (cost.photo + cost.longest))
    return min(search.test.num_examples, max(fitting, FEWEST_TESTED))


def planned_test(search: State) -> int:
    """Returns how many photos of the test part the last answer is to be tested on.

    A search with another seed may have decided it.
    """
    return search.budget.facts.get("tested") or tested(search, _TEST)


def is_short(search: State) -> bool:
    """Returns whether the least work takes longer than the time that is left."""
    return search.budget.left < least_end(search)


def least_end(search: State) -> float:
    """Returns the seconds of the least test and its report."""
    cost = costs(search)
    count = min(search.test.num_examples, FEWEST_TESTED)
    return CAUTION * (cost.report + cost.photo * count)
