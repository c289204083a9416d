"""The report of a run or an evaluation: report.json, report.md and figures."""

import json
import os
import statistics
from pathlib import Path

from train.common.files import write_json, write_text
from train.reports import figures, markdown

_TEMPLATE = Path(__file__).parent / "templates" / "run.md.jinja"
_FIGURES = {"learning_curve.png", "confusion_matrix.png", "reliability.png"}


def write_report(run_dir, *, config, summary, results, history=None, split="test"):
    """Writes the report of a run into its directory, and returns all results.

    `report.md` also shows every other PNG file of the directory; `report.json` is the
    last. Each file replaces its predecessor whole.

    `summary` is the `classification_summary` of the split, perhaps with `calibration`;
    `history` is the run's `MetricLog`, None without training.
    """
    run_dir = Path(run_dir)
    shares = {key: value for key, value in summary.items() if "accuracy" in key}
    measured = {
        **{f"{split}_{key}": value for key, value in shares.items()},
        f"{split}_examples": summary["examples"],
        **{f"{split}_macro_{key}": value for key, value in summary["macro"].items()},
    }
    names = ("absent_classes", "per_class", "confusions")
    details = {"config": config, **{name: summary[name] for name in names}}
    if "calibration" in summary:
        measured[f"{split}_calibration_error"] = summary["calibration"]["error"]
        details["calibration"] = summary["calibration"]["bins"]
    # As they will be when read back; a number that is not finite is an error.
    results, details = json.loads(
        json.dumps([measured | results, details], allow_nan=False, default=os.fspath)
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    figures.draw_confusion_matrix(run_dir / "confusion_matrix.png", summary)
    if history is not None:
        loss = results.get("loss_function", "")
        figures.draw_learning_curve(run_dir / "learning_curve.png", history, loss)
    if "calibration" in summary:
        figures.draw_reliability(
            run_dir / "reliability.png", summary["calibration"]["bins"]
        )
    page = _page(run_dir, details["config"], summary, results, split)
    write_text(run_dir / "report.md", page)
    write_json(run_dir / "report.json", results | details)
    return results


def _page(run_dir, config, summary, results, split):
    named = [config.get(key) for key in ("model", "dataset")]
    title = " on ".join(name for name in named if isinstance(name, str))
    tested = [row for row in summary["per_class"] if row["examples"]]
    worst = sorted(tested, key=lambda row: row["f1"])[: markdown.TABLE_ROWS]
    counts = {"examples": "Examples"}
    median = None
    if "train_examples" in tested[0]:
        counts["train_examples"] = "In training"
        median = statistics.median(
            row["train_examples"] for row in summary["per_class"]
        )
    return markdown.render(
        _TEMPLATE,
        title=title or run_dir.resolve().name,
        config=config,
        summary=summary,
        results=results,
        split=split,
        result_rows=[
            (key, markdown.result_text(key, value))
            for key, value in results.items()
            if key != "command"
        ],
        has_learning_curve=(run_dir / "learning_curve.png").exists(),
        about_curve=about_curve,
        median_in_training=median,
        class_table=markdown.class_table(worst, counts),
        shown_classes=len(worst),
        tested_classes=len(tested),
        confusion_rows=[
            (row["true"], row["predicted"], row["count"], f"{row['share']:.2%}")
            for row in summary["confusions"]
        ],
        pictures=sorted({path.name for path in run_dir.glob("[!.]*.png")} - _FIGURES),
    )


def about_curve(results):
    """Returns what the curves of training and validation loss show, in two sentences.

    The results have those of `train.run.task.about_loss`.
    """
    return markdown.escape(
        f"The loss is the one that was optimized, {results['loss_function']}, in "
        "training and validation alike. Only training has: "
        f"{results['training_only']}."
    )
