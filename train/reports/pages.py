"""Writes the report of a task: its page, as Markdown and HTML, and its JSON."""

import json
import math
import os
import pathlib
from collections.abc import Sequence

from train.common import markdown
from train.common.files import write_json, write_text
from train.engine.metric_log import MetricLog
from train.reports import contents, figures, html
from train.reports.contents import Section

_TEMPLATE = pathlib.Path(__file__).parent / "templates" / "run.md.jinja"


def write(
    folder: pathlib.Path,
    *,
    kicker: str,
    headline: str,
    about: str,
    verdict: Sequence[str],
    sections: Sequence[Section],
    settings: dict,
    results: dict,
    details: dict,
    notes: Sequence[str] = (),
    history: MetricLog | None = None,
) -> dict:
    """Writes `report.md`, `report.html` and last `report.json`, each whole.

    `headline` is the number that leads, in words, and `about` what it is of; `verdict`
    are sentences, which commands print; `settings` and `results` are tables of the
    page, and `details` are in the JSON alone. `history` is None without training.
    Returns the results, with the verdict and the paths `page` and `report`.
    """
    results, details = json.loads(
        json.dumps([results, details], allow_nan=False, default=os.fspath)
    )
    if history is not None:
        path = folder / figures.LEARNING_CURVE
        figures.draw_learning_curve(path, history, results.get("loss_function", ""))
    shown = {name for section in sections for name in section.figures}
    named = (settings.get(key) for key in ("model", "dataset"))
    title = " on ".join(name for name in named if isinstance(name, str))
    page_contents = {
        "kicker": kicker,
        "file": "report",
        "title": title or folder.resolve().name,
        "accuracy": headline,
        "about": about,
        "notes": tuple(notes),
        "command": results.get("command") or None,
        "sections": [
            Section("Verdict", tuple(verdict)),
            *sections,
            *contents.learning_curve(folder, results),
            contents.results_section(results),
            contents.settings_section(settings),
            *contents.pictures(folder, shown),
        ],
    }
    write_pages(folder, page_contents)
    details = {"config": settings, "verdict": [*verdict], "notes": [*notes], **details}
    write_json(folder / "report.json", results | details)
    return results | {
        "verdict": [*verdict],
        "notes": [*notes],
        "page": str(folder / "report.html"),
        "report": str(folder / "report.md"),
    }


def write_pages(
    folder: pathlib.Path, page_contents: dict, class_names: Sequence[str] = ()
) -> None:
    """Writes `report.md` and `report.html` of the contents of a report.

    `class_names` are those that photos of the page can be given, none of others.
    """
    page = markdown.render(_TEMPLATE, contents=page_contents)
    write_text(folder / "report.md", page)
    page = html.render(
        "train.reports",
        "run",
        ["corrections"],
        contents=page_contents,
        folder=folder,
        class_names=class_names,
    )
    write_text(folder / "report.html", page)


def which(photos: int, split: str) -> str:
    """Returns how many photos a report is of, such as "30 test" or "all 30"."""
    return f"all {photos:,}" if split == "all" else f"{photos:,} {split}"


def finite(measured: dict[str, float]) -> dict[str, float]:
    """Returns the results that are numbers, which alone JSON can have."""
    return {name: one for name, one in measured.items() if math.isfinite(one)}
