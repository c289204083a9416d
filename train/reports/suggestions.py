"""Commands to try after a result, with what each is expected to bring.

The numbers are those of the result; where none says what to expect, there is no
suggestion.
"""

import shlex
from dataclasses import dataclass

from keras_vit_start import COMMANDS, typed
from train.common.typed_flags import flags_in, without_flags
from train.data import data_flags
from train.reports.facts import Facts
from train.reports.training_course import DIVERGED, TOO_LONG, TOO_SHORT
from train.reports.wording import listed, points, time_text
from zoo.common.safe_text import counted

_MOST = 3
# The doubts of a model that is right less often are mostly its own mistakes.
_GOOD = 0.8
# A search takes a minute at least: shorter runs take less than that.
_SHORT = 40


@dataclass(frozen=True)
class Suggestion:
    """A command to try next, and what it is expected to bring."""

    command: str
    expected: str


def suggest(facts: Facts) -> tuple[Suggestion, ...]:
    """Returns at most three suggestions, the most promising first."""
    suggested = (suggestion(facts) for suggestion in SUGGESTIONS.values())
    return tuple(one for one in suggested if one)[:_MOST]


# A search decides rate, length, what is trained and the weights of classes itself.


def _lower_rate(facts: Facts) -> Suggestion | None:
    if (
        facts.minutes
        or not facts.has(DIVERGED)
        or not facts.config.get("learning_rate")
    ):
        return None
    # A loss that is many times higher needs more than a small step down.
    is_far = facts.course.now > 3 * facts.course.then
    rate = facts.config["learning_rate"] / (10 if is_far else 3)
    return _again(
        facts,
        f"--learning_rate={rate:.2g}",
        f"a loss of {facts.course.then:.3g} or less, as around step "
        f"{facts.course.step:,}, instead of {facts.course.now:.3g}",
    )


def _fewer_steps(facts: Facts) -> Suggestion | None:
    course = facts.course
    if facts.minutes or not facts.has(TOO_LONG):
        return None
    if course.accuracy_then < course.accuracy_now:
        return None
    return _again(
        facts,
        f"--steps={course.step}",
        f"{course.accuracy_then:.2%} validation accuracy, as after that step, instead "
        f"of {course.accuracy_now:.2%}, in {course.step / course.last_step:.0%} of the "
        "time",
    )


def _more_steps(facts: Facts) -> Suggestion | None:
    if not facts.has(TOO_SHORT):
        return None
    course, seconds = facts.course, facts.results.get("seconds")
    gained = course.accuracy_now - course.accuracy_then
    kind = "validation" if course.is_validation else "training"
    time = "twice the time" if seconds is None else time_text(2 * seconds)
    flag = f"--steps={2 * course.last_step}"
    if facts.minutes:
        flag = f"--minutes={2 * facts.minutes:g}"
    return _again(
        facts,
        flag,
        f"some of what the steps after {course.step:,} brought, {points(gained)} of "
        f"{kind} accuracy; takes {time}",
    )


def _frozen(facts: Facts) -> Suggestion | None:
    if facts.minutes or not facts.probe_is_better or facts.config.get("frozen"):
        return None
    return _again(facts, "--frozen", f"{facts.probe:.2%} on these images, as the probe")


def _balanced_weights(facts: Facts) -> Suggestion | None:
    never = facts.never_answered
    if facts.minutes or not never or facts.config.get("class_weights"):
        return None
    # Weights of even classes are all alike.
    if not facts.is_uneven:
        return None
    share = len(never) / len(facts.tested)
    return _again(
        facts,
        "--class_weights=balanced",
        f"answers of {listed(never)}, which now cost {points(share)} of balanced "
        "accuracy",
    )


def _check_labels(facts: Facts) -> Suggestion | None:
    dataset = facts.config.get("dataset")
    if not facts.suspected or "check" not in COMMANDS or not dataset:
        return None
    is_good = facts.summary["accuracy"] >= _GOOD
    if not is_good or not facts.is_surely_better:
        return None
    share = facts.suspected / facts.summary["examples"]
    words = [str(dataset), *_of_data(facts, corrected=False)]
    words += [f"--model={facts.weights}"] if facts.weights else []
    return Suggestion(
        typed("check", words),
        f"{counted(facts.suspected, 'doubtful label')}: at most {points(share)} of "
        "accuracy",
    )


def _more_photos(facts: Facts) -> Suggestion | None:
    if not facts.more_photos_help:
        return None
    gain = facts.gain
    return _again(
        facts,
        "",
        f"once there are more photos: {gain.examples:,} instead of {gain.fewer:,} "
        f"brought {points(gain.gain)}, as many more usually bring less than that",
        name="more",
    )


def _search(facts: Facts) -> Suggestion | None:
    names = ("dataset", "model", "weights")
    given = {name: facts.config.get(name) for name in names}
    seconds = facts.results.get("seconds")
    if facts.minutes or facts.course is None or not (seconds and facts.model):
        return None
    if not all(isinstance(value, str) for value in given.values()):
        return None
    minutes = max(round(seconds / 60), 1)
    words = [f"--{name}={value}" for name, value in given.items()]
    words += _of_data(facts)
    words += [f"--minutes={minutes}", f"--run_dir={facts.model}-minutes-{minutes}"]
    alike = ", about as long as this run" if seconds > _SHORT else ""
    return Suggestion(
        typed("finetune", words),
        "the best of probes of the frozen model, a training and their average on "
        f"held-out photos; takes {time_text(60 * minutes)}{alike}",
    )


def _other_seed(facts: Facts) -> Suggestion | None:
    seed, seconds = facts.config.get("seed", 0), facts.results.get("seconds")
    if seconds is None or flags_in(facts.results.get("command") or "", ["seeds"]):
        return None
    return _again(
        facts,
        f"--seed={seed + 1}",
        f"how much of the result is chance of the training; takes {time_text(seconds)}",
    )


def _more_test_photos(facts: Facts) -> Suggestion | None:
    if not facts.model:
        return None
    name = facts.leading
    low, high = (facts.summary[f"{name}_{end}"] for end in ("low", "high"))
    count = facts.summary["examples"]
    return Suggestion(
        typed("evaluate", [facts.model, "new_photos/"]),
        f"with {4 * count:,} new photos an interval half as wide as today's "
        f"{points(high - low)}",
    )


SUGGESTIONS = {
    "lower_rate": _lower_rate,
    "fewer_steps": _fewer_steps,
    "frozen": _frozen,
    "balanced_weights": _balanced_weights,
    "more_steps": _more_steps,
    "check_labels": _check_labels,
    "more_photos": _more_photos,
    "search": _search,
    "more_test_photos": _more_test_photos,
    "other_seed": _other_seed,
}


def _of_data(facts, corrected=True):
    """Returns the flags by which the command of a result read its data."""
    return data_flags.of_command(facts.results.get("command") or "", corrected)


def _again(facts, flag, expected, name=None):
    """Returns a `Suggestion` of the same run with another flag, in a new directory."""
    command = facts.results.get("command")
    if facts.course is None or not command or not facts.model:
        return None
    name = name or flag.strip("-").replace("=", "-")
    added = [flag, f"--run_dir={facts.model}-{name}"]
    # The suggestion is about this run, one of several with --seeds.
    given = [word.strip("-").partition("=")[0] for word in added if word]
    words = without_flags(command, ["seeds", *given])
    return Suggestion(shlex.join([*words, *filter(None, added)]), expected)
