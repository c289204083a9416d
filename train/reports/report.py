"""The report of a run or an evaluation: report.json, its pages, tables and figures."""

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.common.files import write_json
from train.engine.metric_log import MetricLog
from train.reports import contents, figures, gallery, pages, verdict
from train.reports.answers import Answers, write_label_errors, write_mistakes
from train.reports.facts import Facts
from train.reports.training_course import course_of
from train.scoring.label_errors import LEAST_EXAMPLES, label_errors
from train.scoring.learning_curve import Point
from zoo.common.regular_files import expand_home


def write_report(
    run_dir: str | os.PathLike,
    *,
    config: dict,
    summary: dict,
    results: dict,
    history: MetricLog | None = None,
    split: str = "test",
    answers: Answers | None = None,
    in_training: np.ndarray | int | str | None = None,
    probe: float | None = None,
    curve: Sequence[Point] = (),
    sections: Sequence[contents.Section] = (),
    model: str | None = None,
    weights: str | None = None,
) -> dict:
    """Writes the report of a run into its directory, and returns all results.

    `report.md` and `report.html`, which is one file with all its pictures, also show
    every other PNG file of the directory; `report.json` is the last. Each file replaces
    its predecessor whole.

    `summary` is the `classification_summary` of the split; `history` is None without
    training. `answers` are those to all images: `mistakes.csv` has them,
    `label_errors.csv` the labels that they make doubtful, and the pages show some.
    `in_training` are the images that the model was trained on, among which no label
    errors are sought: bools (images,), their number, why they are not known, a str, or
    None where nothing is known of any. `probe` is the accuracy of a linear probe on the
    same images, `curve` the `train.scoring.learning_curve`, where they were measured.
    `sections` are more of the pages. `model` is what commands call the model, by
    default the run's directory; `weights` are what its training began from, by default
    those of the `config`.

    Returns the results as in `report.json`, with its verdict.
    """
    run_dir = Path(run_dir)
    shares = {key: value for key, value in summary.items() if "accuracy" in key}
    measured = {
        **{f"{split}_{key}": value for key, value in shares.items()},
        f"{split}_examples": summary["examples"],
        **({} if probe is None else {f"{split}_probe_accuracy": probe}),
        **{f"{split}_macro_{key}": value for key, value in summary["macro"].items()},
        f"{split}_calibration_error": summary["calibration"]["error"],
        f"{split}_calibration_error_of_exact": summary["calibration"]["error_of_exact"],
    }
    bins = summary["calibration"]["bins"]
    names = ("absent_classes", "per_class", "confusions")
    details = {"config": config, **{name: summary[name] for name in names}}
    details["calibration"] = bins
    suspected, why_not = _label_errors(answers, split, in_training)
    if suspected is not None:
        measured[f"{split}_suspected_label_errors"] = len(suspected.places)
    for name in ("other_classes", "notes"):
        if name in summary:
            details[name] = summary[name]
    # The clock decides how long a training in a search is.
    is_search = "budget_seconds" in results
    judged = verdict.judge(
        Facts(
            summary=summary,
            course=None if history is None or is_search else course_of(history),
            results=results,
            config=config,
            model=model or str(run_dir),
            weights=_path_of(weights or config.get("weights")),
            probe=probe,
            curve=curve,
            suspected=0 if suspected is None else len(suspected.places),
        )
    )
    details |= _verdict(judged, curve)
    # Make them what they will be when read back; numbers must be finite.
    results, details = json.loads(
        json.dumps([measured | results, details], allow_nan=False, default=os.fspath)
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    figures.draw_confusion_matrix(run_dir / figures.CONFUSION_MATRIX, summary)
    if history is not None:
        loss = results.get("loss_function", "")
        figures.draw_learning_curve(run_dir / figures.LEARNING_CURVE, history, loss)
    figures.draw_reliability(run_dir / figures.RELIABILITY, bins)
    page_contents = contents.contents(
        run_dir,
        config=details["config"],
        summary=summary,
        results=results,
        split=split,
        judged=judged,
        about_images=_about_images(run_dir, answers, suspected, why_not),
        more=sections,
    )
    pages.write_pages(
        run_dir, page_contents, _correctable(answers, page_contents["sections"])
    )
    write_json(run_dir / "report.json", results | details)
    told = ("leading_accuracy", "verdict", "try_next")
    return results | {name: details[name] for name in told}


def _path_of(weights):
    """Returns weights that are a file or folder, None where they have a name."""
    return weights if weights and expand_home(weights).exists() else None


def _verdict(judged, curve):
    """Returns a verdict as it is in `report.json`."""
    points = [
        {"train_examples": point.examples, "accuracy": point.accuracy}
        for point in curve
    ]
    return {
        "leading_accuracy": judged.leading,
        "verdict": judged.sentences,
        "try_next": [dataclasses.asdict(one) for one in judged.suggestions],
        **({"learning_curve": points} if points else {}),
    }


def _label_errors(answers, split, in_training):
    """Returns `LabelErrors` and None, or None and why they are not sought."""
    if answers is None:
        return None, None
    if isinstance(in_training, str):
        return None, "which of the images the model was trained on is not known."
    is_number = isinstance(in_training, int)
    if is_number or (in_training is None and split == "train"):
        return None, (
            "the model may have been trained on these images, and learned their labels."
        )
    if in_training is None:
        in_training = np.zeros(len(answers.labels), bool)
    is_new = ~in_training
    suspected = label_errors(answers, len(answers.class_names), is_new)
    if suspected is None:
        which = "" if is_new.all() else " that the model was not trained on"
        return None, f"fewer than two classes have {LEAST_EXAMPLES} images{which}."
    return suspected, None


def _about_images(run_dir, answers, suspected, why_not):
    """Writes the tables and figures of single images; returns their sections."""
    if answers is None:
        return []
    names = answers.split.names()
    write_mistakes(run_dir / "mistakes.csv", answers, names)
    shown = [answers.mistakes[: gallery.MISTAKES], answers.correct[: gallery.UNCERTAIN]]
    if suspected is None:
        # An earlier report may have left it.
        (run_dir / "label_errors.csv").unlink(missing_ok=True)
    else:
        write_label_errors(run_dir / "label_errors.csv", answers, suspected, names)
        shown.append(suspected.places[: gallery.SUSPECTED])
    photos = gallery.Gallery(answers, names, np.concatenate(shown))
    if photos.pixels:
        figures.draw_mistakes(run_dir / figures.MISTAKES, answers, photos.pixels)
    else:
        (run_dir / figures.MISTAKES).unlink(missing_ok=True)
    return [
        contents.mistakes_section(photos),
        contents.label_errors_section(suspected, why_not, photos),
    ]


def _correctable(answers, sections):
    """Returns the classes that the photos of a page may have, none without files."""
    groups = [group for section in sections for group in section.groups]
    has_files = any(photo.path for group in groups for photo in group.photos)
    return answers.class_names if has_files else ()
