"""The report of several labels: mistakes, each label, and which occur together."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from train.common import tables
from train.data.labels import SEPARATOR
from train.data.sources.splits import Split
from train.engine.metric_log import MetricLog
from train.reports import figures, gallery, pages
from train.reports.contents import Section, Table, measures_section
from train.reports.gallery import Answer, Group, Photo
from train.several_labels.metrics import LabelMetrics, label_metrics, mistakes
from zoo.common.safe_text import class_text

# Photos of each kind of mistake, pairs of labels.
_SHOWN, _PAIRS = 24, 20


@dataclasses.dataclass(frozen=True)
class Judged:
    """Photos with their labels, and the answers to them.

    Attributes:
        split: `Split` of the photos.
        class_names: names of the labels.
        scores: probabilities, floats (photos, labels).
        truth: bools (photos, labels).
        thresholds: floats (labels,), from which on a photo is given a label.
        train_counts: integers (labels,), the photos to train on that have each, or
            None.
    """

    split: Split
    class_names: Sequence[str]
    scores: np.ndarray
    truth: np.ndarray
    thresholds: np.ndarray
    train_counts: np.ndarray | None = None

    @property
    def given(self) -> np.ndarray:
        """Bools (photos, labels): which of them the model gives."""
        return self.scores >= self.thresholds

    def names_of(self, row: np.ndarray) -> list[str]:
        """Returns the names of the labels that bools (labels,) have."""
        return names_of(row, self.class_names)


def names_of(row: np.ndarray, class_names: Sequence[str]) -> list[str]:
    """Returns the names of the labels that bools (labels,) have."""
    return [class_names[place] for place in np.flatnonzero(row).tolist()]


def write(
    folder: pathlib.Path,
    judged: Judged,
    *,
    settings: dict,
    results: dict,
    split: str = "test",
    notes: Sequence[str] = (),
    history: MetricLog | None = None,
) -> dict:
    """Writes the report of answers, and a table of all of them; returns all results.

    `split` names the photos in results; the rest is as in `train.reports.pages.write`.
    """
    found = label_metrics(judged.scores, judged.truth, judged.thresholds)
    measured = {
        **found.map_macro.named(f"{split}_mean_average_precision"),
        f"{split}_micro_average_precision": found.map_micro,
        **found.f1_macro.named(f"{split}_macro_f1"),
        **found.f1_micro.named(f"{split}_micro_f1"),
        f"{split}_accuracy": found.subset_accuracy,
        f"{split}_hamming_loss": found.hamming_loss,
        f"{split}_calibration_error": found.calibration["error"],
        f"{split}_examples": found.photos,
    }
    folder.mkdir(parents=True, exist_ok=True)
    names = judged.split.names()
    _write_answers(folder / "answers.csv", judged, names)
    figures.draw_reliability(folder / figures.RELIABILITY, found.calibration["bins"])
    rows = _rows(judged, found)
    low, high = (f"{end:.1%}" for end in (found.map_macro.low, found.map_macro.high))
    which = pages.which(found.photos, split)
    return pages.write(
        folder,
        kicker="Report of several labels",
        headline=f"{found.map_macro.value:.2%} mean average precision",
        about=f"(95% interval {low} to {high}) on {which} photos.",
        verdict=_verdict(judged, found, which),
        sections=[
            _mistakes(judged, names),
            _labels(rows),
            _together(judged, found),
            Section(
                "Calibration",
                (
                    f"The expected calibration error of all labels is "
                    f"{found.calibration['error']:.2%}.",
                ),
                figures=(figures.RELIABILITY,),
            ),
        ],
        settings=settings,
        results=pages.finite(measured) | results,
        details={"per_label": rows},
        notes=notes,
        history=history,
    )


def _verdict(judged: Judged, found: LabelMetrics, which: str) -> list[str]:
    """Returns what the answers are worth, in sentences."""
    present = found.positives > 0
    if not present.any():
        return [
            f"No label is on any of {which} photos, so only wrong labels can be "
            f"counted: {found.wrong.sum():,}."
        ]
    by_chance = float(found.positives[present].mean() / found.photos)
    macro, micro = found.map_macro, found.f1_micro
    told = [
        f"Mean average precision {macro.percent} on {which} photos; answers by chance "
        f"have {by_chance:.2%}.",
        f"F1 of all labels {micro.percent}; all labels of "
        f"{found.subset_accuracy:.2%} of the photos are right.",
    ]
    never = [
        name
        for name, given, is_there in zip(
            judged.class_names,
            np.any(judged.given, axis=0).tolist(),
            present.tolist(),
            strict=True,
        )
        if is_there and not given
    ]
    if never:
        told.append(
            f"Never given: {', '.join(map(class_text, never[:5]))}"
            f"{' and others' if len(never) > 5 else ''} ({len(never):,} of "
            f"{present.sum():,} labels)."
        )
    if absent := int((~present).sum()):
        told.append(f"{absent:,} labels are on none of these photos: not judged.")
    return told


def _rows(judged: Judged, found: LabelMetrics) -> list[dict]:
    """Returns what is known of each label, a list of dicts for JSON."""
    rows = []
    for place, name in enumerate(judged.class_names):
        positives = int(found.positives[place])
        row = {
            "name": name,
            "average_precision": (
                float(found.average_precision[place]) if positives else None
            ),
            "f1": float(found.f1[place]),
            "examples": positives,
            "missed": int(found.missed[place]),
            "wrong": int(found.wrong[place]),
            "threshold": float(judged.thresholds[place]),
        }
        if judged.train_counts is not None:
            row["train_examples"] = int(judged.train_counts[place])
        rows.append(row)
    return rows


def _labels(rows):
    tested = [row for row in rows if row["examples"]]
    columns = {
        "average_precision": "Average precision",
        "f1": "F1",
        "examples": "Photos",
        "missed": "Missed",
        "wrong": "Wrong",
        "threshold": "Threshold",
    }
    if tested and "train_examples" in tested[0]:
        columns["train_examples"] = "In training"
    worst = sorted(tested, key=lambda row: row["average_precision"])
    return measures_section("Labels, the worst first", "Label", worst, columns, "worst")


def _together(judged, found):
    """Returns the section of the labels that are most often on one photo."""
    counts = np.triu(found.together, k=1)
    order = np.argsort(-counts, axis=None, kind="stable")[:_PAIRS]
    pairs = [np.unravel_index(place, counts.shape) for place in order]
    answered = judged.given.T.astype(int) @ judged.given
    rows = [
        (
            *(judged.class_names[place] for place in pair),
            f"{counts[pair]:,}",
            f"{answered[pair]:,}",
        )
        for pair in pairs
        if counts[pair]
    ]
    title = "Labels that occur together"
    if not rows:
        return Section(title, ("No photo has two labels.",))
    header = ("Label", "With", "Photos", "Answered")
    return Section(title, table=Table(header, rows, words=2))


def _mistakes(judged, names):
    """Returns the section of missed and wrong labels, the surest answers first."""
    places = mistakes(judged.scores, judged.truth, judged.thresholds)
    is_missed = judged.truth[tuple(places.T)]
    kinds = {"missed": places[is_missed], "wrong": places[~is_missed]}
    shown = [own[:_SHOWN, 0] for own in kinds.values()]
    pixels, missing = gallery.decoded(judged.split, np.unique(np.concatenate(shown)))
    groups = []
    for kind, own in kinds.items():
        photos = [
            Photo(
                file=names[photo],
                truth=", ".join(judged.names_of(judged.truth[photo])) or "(none)",
                answers=(
                    Answer(
                        judged.class_names[label],
                        float(judged.scores[photo, label]),
                        is_correct=False,
                    ),
                ),
                pixels=pixels.get(photo),
                why_not=missing.get(photo),
            )
            for photo, label in own[:_SHOWN].tolist()
        ]
        title = f"{kind.capitalize()} labels, the surest first"
        groups.append(Group(title, photos, len(own), "Labels", kind.capitalize()))
    text = (
        f"{len(kinds['missed']):,} labels are missed and {len(kinds['wrong']):,} given "
        "wrongly; some are wrong in the data. answers.csv has all photos."
    )
    return Section(
        "Mistakes", (text,), tuple(group for group in groups if group.photos)
    )


def _write_answers(path, judged, names):
    """Writes the labels of every photo and those that it is given, as CSV."""

    def row(name: str, truth: np.ndarray, given: np.ndarray) -> list[str]:
        parts = (truth, given, truth & ~given, given & ~truth)
        return [name, *(SEPARATOR.join(judged.names_of(part)) for part in parts)]

    header = ("file", "labels", "given", "missed", "wrong")
    tables.write(path, header, map(row, names, judged.truth, judged.given))


def draw_predictions(
    path: pathlib.Path,
    images: np.ndarray,
    truth: np.ndarray,
    given: np.ndarray,
    class_names: Sequence[str],
    title: str,
) -> None:
    """Draws images with the labels that they are given, and those that are missed."""

    def text(row: np.ndarray) -> str:
        return ", ".join(names_of(row, class_names)) or "-"

    titles = [
        figures.shorten(class_text(f"{text(own)} (true: {text(true)})"), 40)
        for own, true in zip(given, truth, strict=True)
    ]
    is_right = (truth == given).all(axis=1)
    colors = [figures.BLUE if right else figures.ORANGE for right in is_right]
    figures.draw_grid(path, title, images, titles, colors)
