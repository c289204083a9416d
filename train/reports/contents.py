"""The contents of a report, from which `report.md` and `report.html` are made."""

import pathlib
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from train.common.markdown import TABLE_ROWS, flat, result_text
from train.reports import gallery
from train.reports.figures import (
    CONFUSION_MATRIX,
    LEARNING_CURVE,
    MISTAKES,
    RELIABILITY,
)
from train.reports.verdict import Verdict
from train.scoring.label_errors import LEAST_EXAMPLES, LabelErrors
from zoo.common.safe_text import class_text, counted

# These figures have sections of their own.
_FIGURES = {CONFUSION_MATRIX, LEARNING_CURVE, MISTAKES, RELIABILITY}
# Show at most this many other pictures of the folder.
_MOST_PICTURES = 24
# Rows of a table of what was measured of classes.
_MEASURES = 60
_RATIOS = {"precision": "Precision", "recall": "Recall", "f1": "F1"}


@dataclass(frozen=True)
class Table:
    """A table of text; the first `words` columns are words, the others numbers."""

    header: tuple
    rows: list
    words: int = 1
    is_sortable: bool = False


@dataclass(frozen=True)
class Section:
    """A part of a report: paragraphs, photos, a table, notes about it, figures.

    `suggestions` are those of `train.reports.suggestions`.

    `groups` are those of `train.reports.gallery`, and `sheet` a figure of their first
    photos, for pages that cannot show photos themselves; `figures` are files in the
    folder of the report, as `sheet` is.
    """

    title: str
    text: tuple = ()
    groups: tuple = ()
    table: Table | None = None
    notes: tuple = ()
    figures: tuple = ()
    sheet: str | None = None
    suggestions: tuple = ()


def contents(
    folder: pathlib.Path,
    *,
    config: dict,
    summary: dict,
    results: dict,
    split: str,
    judged: Verdict,
    about_images: Iterable[Section] = (),
    more: Iterable[Section] = (),
) -> dict:
    """Returns the contents of the report in a folder with all its figures.

    `about_images` are what `mistakes_section` and `label_errors_section` return, if
    single images are known, and `more` are sections behind them; `judged` is the
    verdict; the rest is as in
    `train.reports.report.write_report`.
    """
    named = [config.get(key) for key in ("model", "dataset")]
    title = " on ".join(name for name in named if isinstance(name, str))
    leading, more = judged.leading, tuple(more)
    sections = [
        Section("Verdict", judged.sentences, suggestions=judged.suggestions),
        *about_images,
        *more,
        *learning_curve(folder, results),
        _classes(summary),
        _confusions(summary),
        _calibration(summary["calibration"]),
        results_section(results),
        settings_section(config),
        *pictures(folder, {name for section in more for name in section.figures}),
    ]
    return {
        "kicker": "Report of a classifier",
        "file": "report",
        "title": title or folder.resolve().name,
        "accuracy": f"{summary[leading]:.2%} {leading.replace('_', ' ')}",
        "about": _about(summary, leading, results, split),
        "notes": summary.get("notes", ()),
        "command": results.get("command"),
        "sections": sections,
    }


def _about(summary, leading, results, split):
    low, high = summary[f"{leading}_low"], summary[f"{leading}_high"]
    count = f"{summary['examples']:,}"
    examples = f"all {count}" if split == "all" else f"{count} {split}"
    text = f"(95% interval {low:.2%} to {high:.2%}) on {examples} examples"
    if "top5_accuracy" in summary:
        text += f" ({summary['top5_accuracy']:.2%} among the first five guesses)"
    if "steps" in results:
        text += f", after {counted(results['steps'], 'step')}"
        if "epochs" in results:
            text += f" ({results['epochs']:,.3g} epochs)"
    if "seconds" in results:
        text += f" in {result_text('seconds', results['seconds'])} seconds"
    return f"{text}."


def mistakes_section(photos: gallery.Gallery) -> Section:
    """Returns the section of mistakes, with photos of a `train.reports.gallery`."""
    answers = photos.answers
    mistakes, correct = answers.mistakes, answers.correct
    text = [f"{len(mistakes):,} of {len(answers.order):,} answers are mistakes."]
    if photos.folder is not None:
        text.append(f"Files are in {photos.folder}.")
    text.append("mistakes.csv has every image with its answer, in the same order.")
    groups = (
        photos.group("Most confident mistakes", mistakes, gallery.MISTAKES),
        photos.group("Least certain correct answers", correct, gallery.UNCERTAIN),
    )
    return Section(
        "Mistakes",
        (" ".join(text),),
        tuple(group for group in groups if group.photos),
        sheet=MISTAKES if photos.pixels else None,
    )


def label_errors_section(
    errors: LabelErrors | None, why_not: str | None, photos: gallery.Gallery
) -> Section:
    """Returns the section of suspected `LabelErrors`, or of why they are not sought.

    `photos` are those of a `train.reports.gallery`.
    """
    title = "Suspected label errors"
    if why_not is not None:
        return Section(title, (f"Not sought: {why_not}",))
    about = (
        "The model contradicts these labels, and is as sure of the other class as it "
        "is on average of images with its label (confident learning, "
        "https://arxiv.org/abs/1911.00068). Check them first: some are labelled "
        "wrongly, some show both classes, the others are mistakes of the model; the "
        "lower its accuracy, the more. A class of fewer than "
        f"{LEAST_EXAMPLES} images is never suggested."
    )
    if not len(errors.places):
        return Section(title, (f"None. {about}",))
    about = f"{about} label_errors.csv has all {len(errors.places):,}."
    shown = photos.group(
        "Suspected", errors.places, gallery.SUSPECTED, errors.suggested
    )
    return Section(title, (about,), (shown,))


def learning_curve(folder: pathlib.Path, results: dict) -> Iterator[Section]:
    """Yields the section of the learning curve in a folder, if there is one."""
    # The curve may be of a training that other results are of.
    if (folder / LEARNING_CURVE).exists():
        text = (about_curve(results),) if "training_only" in results else ()
        yield Section("Learning curve", text, figures=(LEARNING_CURVE,))


def about_curve(results: dict) -> str:
    """Returns what the curves of training and validation loss show, in two sentences.

    The results have those of `train.run.task.about_loss`.
    """
    return (
        f"The loss is the one that was optimized, {results['loss_function']}, in "
        "training and validation alike. Only training has: "
        f"{results['training_only']}."
    )


def _classes(summary):
    tested = [row for row in summary["per_class"] if row["examples"]]
    worst = sorted(tested, key=lambda row: row["f1"])[:TABLE_ROWS]
    counts, text, notes = {"examples": "Examples"}, [], []
    if "train_examples" in tested[0]:
        counts["train_examples"] = "In training"
        text.append(_balance(summary["per_class"]))
    if len(worst) < len(tested):
        notes.append(
            f"The {len(worst)} worst of {len(tested):,} classes; report.json has all."
        )
    if absent := summary["absent_classes"]:
        names = ", ".join(map(class_text, absent[:20]))
        if len(absent) > 20:
            names += f" and {len(absent) - 20:,} more"
        notes.append(
            "Without examples, so in neither the table nor the macro averages: "
            f"{names}."
        )
    return Section(
        "Classes, the worst first",
        tuple(text),
        table=class_table(worst, counts),
        notes=tuple(notes),
    )


def class_table(classes: Iterable[dict], counts: dict[str, str]) -> Table:
    """Returns the `Table` of some classes; `counts` are the titles of their counts."""
    rows = [
        (
            row["name"],
            *(f"{row[key]:.2%}" for key in _RATIOS),
            *(f"{row[key]:,}" for key in counts),
        )
        for row in classes
    ]
    header = ("Class", *_RATIOS.values(), *counts.values())
    return Table(header, rows, is_sortable=True)


def measures_section(
    title: str, kind: str, rows: list[dict], columns: dict[str, str], order: str
) -> Section:
    """Returns the section of what was measured of some classes, the first of `rows`.

    `kind` is what a class is called; `columns` are the titles of the values of a row
    that are shown behind its name, and `order` is the one of the rows, such as "worst".
    """
    shown = rows[:_MEASURES]
    table = Table(
        (kind, *columns.values()),
        [(row["name"], *(_measure(row[key]) for key in columns)) for row in shown],
        is_sortable=True,
    )
    notes = ()
    if len(shown) < len(rows):
        notes = (f"The {len(shown)} {order} of {len(rows):,}; report.json has all.",)
    return Section(title, table=table, notes=notes)


def _measure(value):
    if value is None:
        return "-"
    return f"{value:.2%}" if isinstance(value, float) else f"{value:,}"


def _balance(classes):
    def examples(row: dict) -> int:
        return row["train_examples"]

    fewest, most = min(classes, key=examples), max(classes, key=examples)
    if examples(fewest) == examples(most):
        return f"In training every class has {examples(most):,} examples."
    median = statistics.median(map(examples, classes))
    rare, common = (class_text(row["name"]) for row in (fewest, most))
    return (
        f"In training a class has {examples(fewest):,} ({rare}) to {examples(most):,} "
        f"({common}) examples, in the median {median:,.6g}."
    )


def _confusions(summary):
    rows = [
        (row["true"], row["predicted"], f"{row['count']:,}", f"{row['share']:.2%}")
        for row in summary["confusions"]
    ]
    header = ("True class", "Predicted", "Count", "Share of the true class")
    return Section(
        "Most frequent confusions",
        () if rows else ("No example was taken for another class.",),
        table=Table(header, rows, words=2) if rows else None,
        figures=(CONFUSION_MATRIX,),
    )


def _calibration(measured):
    text = (
        f"The expected calibration error is {measured['error']:.2%}: the mean over the "
        "examples of the difference between accuracy and mean confidence (the largest "
        f"probability) in their bin, of {len(measured['bins'])} bins of equal width. "
        "Confidences that are exactly right would get "
        f"{measured['error_of_exact']:.2%} on as many examples, by chance."
    )
    return Section("Calibration", (text,), figures=(RELIABILITY,))


def results_section(results: dict) -> Section:
    """Returns the section of the table of all results but the command."""
    rows = [
        (key, result_text(key, value))
        for key, value in results.items()
        if key != "command"
    ]
    return Section("Results", table=Table(("Result", "Value"), rows, words=2))


def settings_section(config: dict) -> Section:
    """Returns the section of the table of settings."""
    rows = [tuple(map(str, row)) for row in flat(config)]
    return Section("Settings", table=Table(("Setting", "Value"), rows, words=2))


def pictures(folder: pathlib.Path, elsewhere: set[str]) -> Iterator[Section]:
    """Yields the section of the pictures of a folder that are not `elsewhere`."""
    others = {path.name for path in folder.glob("[!.]*.png")} - _FIGURES - elsewhere
    names = sorted(others)
    shown, notes = names[:_MOST_PICTURES], ()
    if len(names) > len(shown):
        notes = (f"And {len(names) - len(shown):,} more, too many for this page.",)
    if shown:
        yield Section("Pictures", notes=notes, figures=tuple(shown))
