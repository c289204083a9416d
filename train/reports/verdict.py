"""What a result means, in sentences."""

from dataclasses import dataclass

from train.reports.facts import LITTLE, SIGNIFICANT, Facts
from train.reports.suggestions import Suggestion, suggest
from train.reports.training_course import DIVERGED, TOO_LONG, TOO_SHORT
from train.reports.wording import listed, points


@dataclass(frozen=True)
class Verdict:
    """What a result means, the accuracy first, and at most three commands to try.

    `leading` is the name of the accuracy that comes first, a key of the summary.
    """

    sentences: tuple[str, ...]
    suggestions: tuple[Suggestion, ...]
    leading: str


def judge(facts: Facts) -> Verdict:
    """Returns the verdict on a result.

    Example:
        >>> import numpy as np
        >>> from train.scoring.metrics import classification_summary
        >>> from train.scoring.ranked import ranked
        >>> labels, answers = np.repeat([0, 1], [30, 17]), np.tile([0.9, 0.1], (47, 1))
        >>> summary = classification_summary(ranked(labels, answers), ["day", "night"])
        >>> for sentence in judge(Facts(summary=summary)).sentences:
        ...     print(sentence)
        The accuracy is 63.83% (95% interval 49.54% to 76.03%) on 47 images.
        Always answering day, the largest class, gives 63.83%.
        The model is no better than that.
        Never answered: night (1 of 2 classes, 36.17% of the images).
    """
    sentences = (sentence(facts) for sentence in SENTENCES.values())
    told = tuple(text for text in sentences if text)
    return Verdict(told, suggest(facts), facts.leading)


def interval_text(summary: dict, name: str) -> str:
    """Returns an accuracy of a summary with its interval."""
    value, low, high = (summary[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.2%} (95% interval {low:.2%} to {high:.2%})"


def _accuracy(facts: Facts) -> str | None:
    if facts.is_uneven:
        return None
    text = interval_text(facts.summary, "accuracy")
    return f"The accuracy is {text} on {facts.summary['examples']:,} images."


def _balanced_accuracy(facts: Facts) -> str | None:
    if not facts.is_uneven:
        return None
    counted = facts.counted
    present = (row for row in facts.summary["per_class"] if row[counted])
    largest, *_, smallest = sorted(present, key=lambda row: -row[counted])
    images = "images" if counted == "examples" else "training images"
    balanced = interval_text(facts.summary, "balanced_accuracy")
    plain = interval_text(facts.summary, "accuracy")
    return (
        f"The classes are uneven: {largest[counted]:,} {images} of "
        f"{listed([largest])}, {smallest[counted]:,} of {listed([smallest])}. So "
        "the balanced accuracy comes first, the mean of the accuracies of the classes: "
        f"{balanced}. The "
        f"plain accuracy is {plain}."
    )


def _largest_class(facts: Facts) -> str | None:
    if len(facts.tested) < 2:
        return None
    share = facts.tested[0]["examples"] / facts.summary["examples"]
    balanced = ""
    if facts.is_uneven:
        balanced = f", and {1 / len(facts.tested):.2%} balanced accuracy"
    first, second = facts.tested[:2]
    is_largest = first["examples"] > second["examples"]
    name = f"{listed([first])}, the largest class," if is_largest else "the same class"
    return f"Always answering {name} gives {share:.2%}{balanced}."


def _no_better(facts: Facts) -> str | None:
    if facts.beside_largest is None or facts.beside_largest.gain > 0:
        return None
    return "The model is no better than that."


def _perhaps_better(facts: Facts) -> str | None:
    gain = facts.beside_largest
    if gain is None or gain.gain <= 0 or gain.p < SIGNIFICANT:
        return None
    return (
        "That the model is better than that may be chance (McNemar's test: p = "
        f"{gain.p:.2f})."
    )


def _never_answered(facts: Facts) -> str | None:
    never = facts.never_answered
    if not never:
        return None
    share = sum(row["examples"] for row in never) / facts.summary["examples"]
    return (
        f"Never answered: {listed(never)} ({len(never):,} of {len(facts.tested):,} "
        f"classes, {share:.2%} of the images)."
    )


def _probe_is_better(facts: Facts) -> str | None:
    if not facts.probe_is_better:
        return None
    return (
        f"A linear probe of the frozen model is better: {facts.probe:.2%} on the same "
        "images."
    )


def _probe_is_as_good(facts: Facts) -> str | None:
    low, high = (facts.summary[f"accuracy_{end}"] for end in ("low", "high"))
    if facts.probe is None or not low <= facts.probe <= high:
        return None
    return (
        f"A linear probe of the frozen model reaches {facts.probe:.2%} on the same "
        "images: training shows no gain over it."
    )


def _probe_is_worse(facts: Facts) -> str | None:
    if facts.probe is None or facts.probe >= facts.summary["accuracy_low"]:
        return None
    gain = facts.summary["accuracy"] - facts.probe
    return (
        f"A linear probe of the frozen model reaches {facts.probe:.2%} on the same "
        f"images: training gained {points(gain)}."
    )


def _diverged(facts: Facts) -> str | None:
    if not facts.has(DIVERGED):
        return None
    course = facts.course
    return (
        f"The training diverged: its loss was {course.then:.3g} around step "
        f"{course.step:,} and is {course.now:.3g} at the end."
    )


def _too_long(facts: Facts) -> str | None:
    if not facts.has(TOO_LONG):
        return None
    course = facts.course
    by_loss = course.accuracy_now >= course.accuracy_then
    what = "The training" if not by_loss else "By its loss alone the training"
    return (
        f"{what} was too long (overfitting): the validation loss was lowest "
        f"after step {course.step:,}, {course.then:.3g}, and is {course.now:.3g} at "
        f"the end; the validation accuracy was {course.accuracy_then:.2%} then and is "
        f"{course.accuracy_now:.2%} now."
    )


def _too_short(facts: Facts) -> str | None:
    if not facts.has(TOO_SHORT):
        return None
    course = facts.course
    kind = "validation" if course.is_validation else "training"
    return (
        f"The training may have been too short: after step {course.step:,} of "
        f"{course.last_step:,} the {kind} loss still fell from {course.then:.3g} to "
        f"{course.now:.3g}, and the {kind} accuracy rose from "
        f"{course.accuracy_then:.2%} to {course.accuracy_now:.2%}."
    )


def _has_not_learned(facts: Facts) -> str | None:
    if not facts.has_not_learned or facts.has(DIVERGED):
        return None
    return (
        "The training has not learned its own photos: at the end it answered "
        f"{facts.course.of_training:.2%} of them correctly, hardly more than of the "
        "test: too few steps, or too low a learning rate."
    )


def _more_photos_help(facts: Facts) -> str | None:
    if not facts.more_photos_help:
        return None
    return f"More photos would help: {_last_step(facts.gain)}."


def _more_photos_bring_little(facts: Facts) -> str | None:
    if facts.gain is None or facts.gain.high >= LITTLE:
        return None
    return f"More photos would bring little: {_last_step(facts.gain)}."


def _more_photos_may_help(facts: Facts) -> str | None:
    gain = facts.gain
    if gain is None or facts.more_photos_help or gain.high < LITTLE:
        return None
    return f"Whether more photos would help is not certain: {_last_step(gain)}."


def _last_step(gain):
    return (
        f"{gain.examples:,} training photos instead of {gain.fewer:,} brought a probe "
        f"{points(gain.gain, '+')} (95% interval {points(gain.low, '+')} to "
        f"{points(gain.high, '+')})"
    )


SENTENCES = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "largest_class": _largest_class,
    "no_better": _no_better,
    "perhaps_better": _perhaps_better,
    "never_answered": _never_answered,
    "probe_is_better": _probe_is_better,
    "probe_is_as_good": _probe_is_as_good,
    "probe_is_worse": _probe_is_worse,
    "diverged": _diverged,
    "too_long": _too_long,
    "too_short": _too_short,
    "has_not_learned": _has_not_learned,
    "more_photos_help": _more_photos_help,
    "more_photos_bring_little": _more_photos_bring_little,
    "more_photos_may_help": _more_photos_may_help,
}
