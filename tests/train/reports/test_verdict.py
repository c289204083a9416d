"""The sentences of a verdict, each where it is true and where it is absent."""

import dataclasses

import numpy as np
import pytest

from train.engine.metric_log import MetricLog
from train.reports import suggestions, verdict
from train.reports.facts import Facts
from train.reports.training_course import (
    DIVERGED,
    TOO_LONG,
    TOO_SHORT,
    Course,
    course_of,
)
from train.reports.wording import listed, time_text
from train.scoring.learning_curve import Point
from train.scoring.metrics import classification_summary
from train.scoring.ranked import ranked

NAMES = ("day", "night", "dusk")


def facts(counts=(20, 20, 20), hits=(18, 17, 16), **known):
    """Facts of a test in which each class has images, some answered correctly.

    The others are answered by the next class.
    """
    labels = np.repeat([0, 1, 2], counts)
    places = np.concatenate([np.arange(count) for count in counts])
    is_hit = places < np.repeat(hits, counts)
    answers = np.eye(3)[np.where(is_hit, labels, (labels + 1) % 3)]
    summary = classification_summary(ranked(labels, answers), NAMES)
    return Facts(summary=summary, **known)


# The classes have 30, 12 and 5 images, and the largest is always answered.
ALWAYS_DAY = {"counts": (30, 12, 5)}


def always_day(**known):
    labels = np.repeat([0, 1, 2], (30, 12, 5))
    answers = np.tile([1.0, 0, 0], (47, 1))
    summary = classification_summary(ranked(labels, answers), NAMES)
    return Facts(summary=summary, **known)


def one_class(**known):
    answers = ranked(np.zeros(5, int), np.tile([0.9, 0.1], (5, 1)))
    return Facts(summary=classification_summary(answers, ["a", "b"]), **known)


def curve(before, last, images=400):
    """A learning curve of two points with these accuracies."""
    places = np.arange(images) / images
    points = ((50, before), (100, last))
    return [Point(count, (places < share).astype(float)) for count, share in points]


def course(fault, **values):
    numbers = {
        **{"is_validation": True, "step": 300, "last_step": 400},
        **{"then": 0.4, "now": 0.5, "accuracy_then": 0.9, "accuracy_now": 0.85},
    }
    return Course(fault, **(numbers | values))


# Names of sentences: facts with the text that they are told in, and facts without it.
CASES = {
    "accuracy": (
        facts(),
        "The accuracy is 85.00% (95% interval 73.89% to 91.90%) on 60 images.",
        always_day(),
    ),
    "balanced_accuracy": (
        always_day(),
        "The classes are uneven: 30 images of day, 5 of dusk. So the balanced accuracy "
        "comes first, the mean of the accuracies of the classes: 33.33% (95% interval "
        "29.55% to 49.92%). The plain accuracy is 63.83% (95% interval 49.54% to "
        "76.03%).",
        facts(counts=(29, 20, 10), hits=(20, 10, 10)),
    ),
    "largest_class": (
        facts(counts=(25, 20, 15)),
        "Always answering day, the largest class, gives 41.67%.",
        one_class(),
    ),
    "no_better": (always_day(), "The model is no better than that.", facts()),
    "perhaps_better": (
        facts(counts=(30, 12, 5), hits=(28, 4, 2)),
        "That the model is better than that may be chance (McNemar's test: p = 0.29).",
        facts(),
    ),
    "never_answered": (
        always_day(),
        "Never answered: night, dusk (2 of 3 classes, 36.17% of the images).",
        facts(),
    ),
    "probe_is_better": (
        facts(probe=0.95),
        "A linear probe of the frozen model is better: 95.00% on the same images.",
        facts(probe=0.9),
    ),
    "probe_is_as_good": (
        facts(probe=0.9),
        "A linear probe of the frozen model reaches 90.00% on the same images: "
        "training shows no gain over it.",
        facts(probe=0.5),
    ),
    "probe_is_worse": (
        facts(probe=0.5),
        "A linear probe of the frozen model reaches 50.00% on the same images: "
        "training gained 35.0 points.",
        facts(),
    ),
    "diverged": (
        facts(course=course(DIVERGED, is_validation=False)),
        "The training diverged: its loss was 0.4 around step 300 and is 0.5 at the "
        "end.",
        facts(course=course(TOO_LONG)),
    ),
    "too_long": (
        facts(course=course(TOO_LONG)),
        "The training was too long (overfitting): the validation loss was lowest after "
        "step 300, 0.4, and is 0.5 at the end; the validation accuracy was 90.00% then "
        "and is 85.00% now.",
        # The best weights were kept.
        facts(course=course(TOO_LONG), config={"early_stopping": 5}),
    ),
    "too_short": (
        facts(course=course(TOO_SHORT, then=0.5, now=0.4, accuracy_now=0.92)),
        "The training may have been too short: after step 300 of 400 the validation "
        "loss still fell from 0.5 to 0.4, and the validation accuracy rose from 90.00% "
        "to 92.00%.",
        facts(course=Course()),
    ),
    "has_not_learned": (
        facts(course=Course(of_training=0.6)),
        "The training has not learned its own photos: at the end it answered 60.00% of "
        "them correctly, hardly more than of the test: too few steps, or too low a "
        "learning rate.",
        facts(course=Course(of_training=0.6), config={"mixup": 0.2}),
    ),
    "more_photos_help": (
        facts(curve=curve(0.8, 0.9)),
        "More photos would help: 100 training photos instead of 50 brought a "
        "probe +10.0 points (95% interval +7.0 points to +12.9 points).",
        facts(curve=curve(0.8, 0.8)),
    ),
    "more_photos_bring_little": (
        facts(curve=curve(0.8, 0.8)),
        "More photos would bring little: 100 training photos instead of 50 brought a "
        "probe +0.0 points (95% interval -0.5 points to +0.5 points).",
        facts(curve=curve(0.8, 0.8, images=20)),
    ),
    "more_photos_may_help": (
        facts(curve=curve(0.8, 0.85, images=20)),
        "Whether more photos would help is not certain: 100 training photos instead "
        "of 50 brought a probe +5.0 points (95% interval -7.9 points to +17.0 points).",
        facts(curve=curve(0.8, 0.9)),
    ),
}


def test_a_training_that_knows_its_photos_has_learned():
    for known in (facts(course=Course(of_training=0.95)), facts(course=Course())):
        assert not known.has_not_learned
    # Small windows are harder to recognise than the whole images of the test.
    for crop, is_told in (("inception", False), ("gentle", True)):
        known = facts(course=Course(of_training=0.6), config={"crop": crop})
        assert known.has_not_learned == is_told
    assert verdict.SENTENCES["has_not_learned"](facts()) is None


def test_the_table_has_all_sentences():
    assert CASES.keys() == verdict.SENTENCES.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_where_it_is_true_and_where_it_is_not(name):
    known, told, others = CASES[name]
    assert verdict.SENTENCES[name](known) == told
    assert told in verdict.judge(known).sentences
    assert verdict.SENTENCES[name](others) is None
    assert None not in verdict.judge(others).sentences


def test_a_training_whose_accuracy_did_not_fall_was_too_long_by_its_loss_alone():
    known = facts(course=course(TOO_LONG, accuracy_now=0.92))
    told = verdict.SENTENCES["too_long"](known)
    assert told.startswith("By its loss alone the training was too long (overfitting)")


def test_accuracy_comes_first():
    for name in ("accuracy", "balanced_accuracy"):
        known, told, _ = CASES[name]
        found = verdict.judge(known)
        assert found.sentences[0] == told and found.leading == name


def test_the_photos_to_train_on_make_the_classes_of_a_run_uneven():
    known = facts(counts=(4, 3, 1), hits=(4, 2, 1))
    assert verdict.judge(known).leading == "balanced_accuracy"

    def trained_on(*counts: int) -> verdict.Verdict:
        for row, count in zip(known.summary["per_class"], counts, strict=True):
            row["train_examples"] = count
        return verdict.judge(known)

    # A test of few photos makes even classes look uneven.
    even = trained_on(20, 18, 15)
    assert even.leading == "accuracy" and "uneven" not in "".join(even.sentences)
    uneven = trained_on(5, 0, 15)
    assert uneven.leading == "balanced_accuracy"
    told = "The classes are uneven: 15 training images of dusk, 5 of day. So"
    assert uneven.sentences[0].startswith(told)


def test_balanced_accuracy_of_the_largest_class():
    assert verdict.judge(always_day()).sentences[1] == (
        "Always answering day, the largest class, gives 63.83%, and 33.33% balanced "
        "accuracy."
    )


def test_the_largest_class_of_equal_ones():
    told = verdict.judge(facts()).sentences[1]
    assert told == "Always answering the same class gives 33.33%."


RUN = {
    "course": Course(),
    "results": {"command": "keras-vit finetune photos/", "seconds": 600.0},
    "config": {"learning_rate": 0.03, "seed": 0, "dataset": "my photos/"},
    "model": "runs/photos",
}
WEIGHTS = {"dataset": "my photos/", "model": "ViT-Ti_16", "weights": "augreg"}
# Names of suggestions: facts, the words behind the command, what is expected, and facts
# without it.
SUGGESTED = {
    "lower_rate": (
        facts(**RUN | {"course": course(DIVERGED)}),
        "--learning_rate=0.01 --run_dir=runs/photos-learning_rate-0.01",
        "a loss of 0.4 or less, as around step 300, instead of 0.5",
        facts(**RUN),
    ),
    "fewer_steps": (
        facts(**RUN | {"course": course(TOO_LONG)}),
        "--steps=300 --run_dir=runs/photos-steps-300",
        "90.00% validation accuracy, as after that step, instead of 85.00%, in 75% of "
        "the time",
        facts(**RUN | {"course": course(TOO_LONG, accuracy_now=0.91)}),
    ),
    "more_steps": (
        facts(**RUN | {"course": course(TOO_SHORT, accuracy_now=0.92)}),
        "--steps=800 --run_dir=runs/photos-steps-800",
        "some of what the steps after 300 brought, 2.0 points of validation accuracy; "
        "takes about 20 minutes",
        facts(**RUN),
    ),
    "frozen": (
        facts(**RUN, probe=0.95),
        "--frozen --run_dir=runs/photos-frozen",
        "95.00% on these images, as the probe",
        facts(**RUN, probe=0.9),
    ),
    "balanced_weights": (
        always_day(**RUN),
        "--class_weights=balanced --run_dir=runs/photos-class_weights-balanced",
        "answers of night, dusk, which now cost 66.7 points of balanced accuracy",
        always_day(**RUN | {"config": {"class_weights": "balanced"}}),
    ),
    "check_labels": (
        facts(**RUN, suspected=6),
        "keras-vit check 'my photos/'",
        "6 doubtful labels: at most 10.0 points of accuracy",
        facts(**RUN),
    ),
    "more_photos": (
        facts(**RUN, curve=curve(0.8, 0.9)),
        "--run_dir=runs/photos-more",
        "once there are more photos: 100 instead of 50 brought 10.0 points, as many "
        "more usually bring less than that",
        facts(**RUN, curve=curve(0.8, 0.8)),
    ),
    "search": (
        facts(**RUN | {"config": WEIGHTS}),
        "keras-vit finetune '--dataset=my photos/' --model=ViT-Ti_16 --weights=augreg "
        "--minutes=10 --run_dir=runs/photos-minutes-10",
        "the best of probes of the frozen model, a training and their average on "
        "held-out photos; takes about 10 minutes, about as long as this run",
        facts(**RUN | {"config": WEIGHTS | {"minutes": 5.0}}),
    ),
    "more_test_photos": (
        facts(**RUN),
        "keras-vit evaluate runs/photos new_photos/",
        "with 240 new photos an interval half as wide as today's 18.0 points",
        facts(),
    ),
    "other_seed": (
        facts(**RUN),
        "--seed=1 --run_dir=runs/photos-seed-1",
        "how much of the result is chance of the training; takes about 10 minutes",
        facts(**RUN | {"course": None}),  # not a run
    ),
}


@pytest.fixture
def checks(monkeypatch):
    """A command that checks data is installed."""
    monkeypatch.setattr(suggestions, "COMMANDS", {"check": "..."})


def test_the_table_has_all_suggestions():
    assert SUGGESTED.keys() == suggestions.SUGGESTIONS.keys()


@pytest.mark.parametrize("name", SUGGESTED)
def test_a_suggestion_where_it_fits_and_where_it_does_not(name, checks):
    known, command, expected, others = SUGGESTED[name]
    if not command.startswith("keras-vit"):
        command = f"keras-vit finetune photos/ {command}"
    found = suggestions.SUGGESTIONS[name](known)
    assert found == suggestions.Suggestion(command, expected)
    assert suggestions.SUGGESTIONS[name](others) is None


def test_weights_of_even_classes_are_not_advised(checks):
    known = facts(hits=(20, 0, 0), **RUN)
    known.summary["per_class"][1]["predictions"] = 0
    assert known.never_answered and not known.is_uneven
    assert suggestions.SUGGESTIONS["balanced_weights"](known) is None


def test_a_poor_model_makes_no_label_doubtful(checks):
    poor = (
        always_day(**RUN, suspected=9),
        facts(**RUN, hits=(12, 12, 12), suspected=9),
    )
    for known in poor:
        assert suggestions.SUGGESTIONS["check_labels"](known) is None


@pytest.mark.parametrize("seconds", [28, 41])
def test_a_search_is_as_long_as_a_run_of_about_a_minute_alone(seconds, checks):
    results = RUN["results"] | {"seconds": seconds}
    known = facts(**RUN | {"results": results, "config": WEIGHTS})
    told = suggestions.SUGGESTIONS["search"](known).expected
    assert "takes about 60 seconds" in told
    assert told.endswith(", about as long as this run") == (seconds > 40)


def test_suggestions_read_the_same_data(checks):
    command = "keras-vit finetune a.csv --label_column=kind --relabel b.csv --steps=9"
    results = RUN["results"] | {"command": command}
    known = facts(**RUN | {"results": results, "config": WEIGHTS}, suspected=6)
    [search, check] = [
        suggestions.SUGGESTIONS[name](known).command
        for name in ("search", "check_labels")
    ]
    assert " --label_column=kind --relabel=b.csv --minutes=10 " in search
    assert check == "keras-vit check 'my photos/' --label_column=kind"
    known = dataclasses.replace(known, weights="W.npz")
    check = suggestions.SUGGESTIONS["check_labels"](known).command
    assert check.endswith(" --label_column=kind --model=W.npz")
    one = suggestions.SUGGESTIONS["check_labels"](facts(**RUN, suspected=1)).expected
    assert one.startswith("1 doubtful label: ")


def test_a_loss_that_exploded_takes_a_much_lower_rate():
    known = facts(**RUN | {"course": course(DIVERGED, then=1.6, now=700.0)})
    found = suggestions.SUGGESTIONS["lower_rate"](known)
    assert "--learning_rate=0.003 " in found.command


def test_at_most_three_suggestions_and_no_command_that_is_not_there(monkeypatch):
    monkeypatch.setattr(suggestions, "COMMANDS", {})
    diverged = always_day(**RUN | {"course": course(DIVERGED)}, suspected=3)
    names = [one.command.split()[3] for one in suggestions.suggest(diverged)]
    assert names[:2] == ["--learning_rate=0.01", "--class_weights=balanced"]
    assert len(names) == 3
    # The command has a flag once.
    typed = (
        "keras-vit finetune 'my photos/' --steps=9 --run_dir=runs/a --learning_rate=9"
    )
    again = dataclasses.replace(diverged, results={"command": typed}, model="runs/a")
    assert suggestions.suggest(again)[0].command == (
        "keras-vit finetune 'my photos/' --steps=9 --learning_rate=0.01 "
        "--run_dir=runs/a-learning_rate-0.01"
    )
    # A run in a program has no command to give again.
    own = dataclasses.replace(diverged, results={})
    (only,) = suggestions.suggest(own)
    assert only.command.startswith("keras-vit evaluate")


def test_a_search_decides_itself_and_may_take_longer():
    def names(known):
        return {one.command.split()[-2] for one in suggestions.suggest(known)}

    search = RUN | {"config": RUN["config"] | {"minutes": 5.0}}
    for fault in (DIVERGED, TOO_LONG):
        known = always_day(**search | {"course": course(fault)}, probe=0.99)
        assert names(known) == {"runs/photos", "--seed=1"}
    short = always_day(**search | {"course": course(TOO_SHORT)})
    assert "--minutes=10" in names(short)


def test_words_of_sentences():
    classes = [{"name": f"class {number}"} for number in range(7)]
    assert listed(classes[:2]) == "class 0, class 1"
    assert listed(classes).endswith(", class 4 and 2 more")
    # A number alone could be read as a count.
    assert listed([{"name": "7"}]) == '"7"'
    assert [time_text(seconds) for seconds in (41.4, 90, 1000, 20_000)] == [
        *("about 41 seconds", "about 1.5 minutes", "about 17 minutes"),
        "about 5.6 hours",
    ]


def logged(path, *, losses=(), accuracies=None, validations=()):
    log = MetricLog(path / "metrics.jsonl")
    accuracies = np.zeros(len(losses)) if accuracies is None else accuracies
    for step, values in enumerate(zip(losses, accuracies, strict=True), start=1):
        log.append(step, loss=values[0], accuracy=values[1])
    for step, loss, accuracy in validations:
        log.append(step, val_loss=loss, val_accuracy=accuracy)
    return log


FALLING = np.linspace(2, 0.1, 200)
NOISE = 0.3 * np.random.default_rng(0).normal(size=200)
COURSES = {
    "falls": ({"losses": FALLING[:160]}, None),
    "flat": ({"losses": 2.3 + NOISE}, None),
    "few steps": ({"losses": [1, 2, 3]}, None),
    "explodes at once": (
        {"losses": [1.6], "validations": [(1, 700.0, 0.2)]},
        DIVERGED,
    ),
    "explodes without validation": ({"losses": [1.6, 2.0, 9.0]}, DIVERGED),
    "begins with a head that fits": ({"losses": [0.01, 0.3, 0.2]}, None),
    "rises": (
        {"losses": np.r_[FALLING, FALLING[::-1]] + np.r_[NOISE, NOISE]},
        DIVERGED,
    ),
    "rises from the start": ({"losses": 1 + FALLING[::-1]}, DIVERGED),
    "rises a little": ({"losses": np.r_[FALLING, np.full(40, 0.5)]}, None),
    "overfits": (
        {"validations": [(100, 0.5, 0.8), (200, 0.4, 0.85), (300, 0.43, 0.86)]},
        TOO_LONG,
    ),
    "overfits by less": (
        {"validations": [(100, 0.5, 0.8), (200, 0.4, 0.85), (300, 0.41, 0.84)]},
        None,
    ),
    "improves": (
        {"validations": [(200, 0.5, 0.8), (300, 0.4, 0.8), (400, 0.3, 0.9)]},
        TOO_SHORT,
    ),
    "is as good as before": (
        {"validations": [(300, 0.4, 0.9), (400, 0.3, 0.9)]},
        None,
    ),
    "has settled": ({"validations": [(300, 0.4, 0.8), (400, 0.39, 0.9)]}, None),
    "a single validation": ({"validations": [(400, 0.3, 0.9)]}, None),
    "improves in training": (
        {"losses": FALLING, "accuracies": np.linspace(0, 1, 200)},
        TOO_SHORT,
    ),
    "nothing": ({}, None),
}


@pytest.mark.parametrize(("history", "fault"), COURSES.values(), ids=COURSES)
def test_the_course_of_a_training(history, fault, tmp_path):
    assert course_of(logged(tmp_path, **history)).fault == fault


def test_the_numbers_of_a_course(tmp_path):
    history, _ = COURSES["overfits"]
    assert course_of(logged(tmp_path, **history)) == Course(
        TOO_LONG, True, 200, 300, 0.4, 0.43, 0.85, 0.86
    )
    (tmp_path / "metrics.jsonl").unlink()
    found = course_of(logged(tmp_path, losses=1 + FALLING[::-1]))
    assert (found.step, found.last_step) == (20, 200)
    assert found.then == pytest.approx((1 + FALLING[::-1])[:20].mean())
