"""The report of a number: its errors, the worst photos, answers over the truth."""

import pathlib
from collections.abc import Sequence

import numpy as np

from train.common import tables
from train.data.sources.splits import Split
from train.engine.metric_log import MetricLog
from train.numbers.figures import draw_answers
from train.numbers.metrics import NumberMetrics, number_metrics
from train.reports import figures, gallery, pages
from train.reports.contents import Section
from train.reports.gallery import Answer, Group, Photo

_SHOWN = 24
_ANSWERS = "answers_over_truth.png"


def write(
    folder: pathlib.Path,
    part: Split,
    answers: np.ndarray,
    truth: np.ndarray,
    *,
    settings: dict,
    results: dict,
    trained_on: np.ndarray | None = None,
    split: str = "test",
    notes: Sequence[str] = (),
    history: MetricLog | None = None,
) -> dict:
    """Writes the report of answers, and a table of all of them; returns all results.

    `answers` and `truth` are floats (photos,) in the order of the part; `trained_on`
    are the numbers that were trained on, None where they are not known; the rest is as
    in `train.reports.pages.write`.
    """
    found = number_metrics(answers, truth, trained_on)
    measured = {
        **found.mean_absolute_error.named(f"{split}_mean_absolute_error"),
        **found.root_mean_squared_error.named(f"{split}_root_mean_squared_error"),
        **(found.r2.named(f"{split}_r2") if np.isfinite(found.r2.value) else {}),
        f"{split}_absolute_error_of_median": found.absolute_error_of_median,
        f"{split}_examples": found.photos,
    }
    folder.mkdir(parents=True, exist_ok=True)
    names = part.names()
    _write_answers(folder / "answers.csv", names, answers, truth, found.worst)
    draw_answers(folder / _ANSWERS, answers, truth)
    error = found.mean_absolute_error
    which = pages.which(found.photos, split)
    return pages.write(
        folder,
        kicker="Report of a number",
        headline=f"{error.value:.4g} mean absolute error",
        about=f"(95% interval {error.low:.4g} to {error.high:.4g}) on {which} photos.",
        verdict=_verdict(found, which),
        sections=[
            _worst(part, names, answers, truth, found.worst),
            Section("Answers over the truth", figures=(_ANSWERS,)),
        ],
        settings=settings,
        results=pages.finite(measured) | results,
        details={},
        notes=notes,
        history=history,
    )


def _verdict(found: NumberMetrics, which: str) -> list[str]:
    """Returns what the answers are worth, in sentences."""
    error, r2 = found.mean_absolute_error, found.r2
    told = [
        f"Mean absolute error {error.value:.4g} ({error.low:.4g} to {error.high:.4g}) "
        f"on {which} photos; always answering {found.median:.4g} has "
        f"{found.absolute_error_of_median:.4g}."
    ]
    if np.isfinite(r2.value):
        told.append(f"R2 {r2.value:.3f} ({r2.low:.3f} to {r2.high:.3f}).")
    if error.high >= found.absolute_error_of_median:
        told.append(
            "That is not surely better than always the same answer: more photos or a "
            "longer training may help, or nothing in the photos says the number."
        )
    return told


def _worst(part, names, answers, truth, worst):
    """Returns the section of the photos with the largest errors."""
    shown = worst[:_SHOWN]
    pixels, missing = gallery.decoded(part, np.unique(shown))
    photos = [
        Photo(
            file=names[place],
            truth=f"{truth[place]:.6g}",
            answers=(Answer(f"{answers[place]:.6g}", None, is_correct=False),),
            pixels=pixels.get(place),
            why_not=missing.get(place),
        )
        for place in shown.tolist()
    ]
    return Section(
        "Largest errors",
        ("answers.csv has all photos, in the same order.",),
        (Group("Largest errors first", photos, len(worst)),),
    )


def _write_answers(path, names, answers, truth, order):
    def row(place: int) -> tuple:
        numbers = (truth[place], answers[place], answers[place] - truth[place])
        return names[place], *map(_number, numbers)

    header = ("file", "truth", "answer", "error")
    tables.write(path, header, map(row, order.tolist()))


def _number(value):
    return float(f"{value:.6g}")


def draw_predictions(
    path: pathlib.Path,
    images: np.ndarray,
    truth: np.ndarray,
    answers: np.ndarray,
    title: str,
) -> None:
    """Draws images with the numbers that they are answered with, and the true ones."""
    pairs = zip(answers, truth, strict=True)
    titles = [f"{answer:.4g} (true: {true:.4g})" for answer, true in pairs]
    figures.draw_grid(path, title, images, titles)
