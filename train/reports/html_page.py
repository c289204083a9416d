"""The page of a run: its results in words, tables and pictures."""

import numpy as np

from train.reports import markdown

TABLE_ROWS = 100


def page(run_dir, config, summary, results, split):
    """Returns the Markdown page of a run.

    Args:
        run_dir: path of the run's directory, whose PNG files the page shows.
        config: dict of settings.
        summary: what `train.reports.report.classification_summary` returned.
        results: dict of results.
        split: str, what was tested.
    """
    named = [config.get(key) for key in ("model", "dataset")]
    title = " on ".join(name for name in named if isinstance(name, str))
    title = title or run_dir.resolve().name
    parts = [f"# {markdown.escape(title)}", _headline(summary, results, split)]
    if "command" in results:
        parts.append(markdown.code(results["command"]))
    figures = [(key, figure_text(key, results[key])) for key in results]
    parts += [
        "## Results",
        markdown.table(
            ("Result", "Value"), [row for row in figures if row[0] != "command"]
        ),
        "## Settings",
        markdown.table(("Setting", "Value"), flat(config)),
    ]
    if "calibration" in summary:
        parts += ["## Calibration", _calibration_section(summary["calibration"])]
        parts.append(markdown.embedded("reliability.png"))
    if (run_dir / "learning_curve.png").exists():
        parts.append("## Learning curve")
        # The curve may be of a training that other results are of.
        if "training_only" in results:
            parts.append(about_curve(results))
        parts.append(markdown.embedded("learning_curve.png"))
    parts += ["## Classes, the worst first", *_class_sections(summary)]
    parts += ["## Most frequent confusions", _confusion_section(summary["confusions"])]
    parts.append(markdown.embedded("confusion_matrix.png"))
    own = {"learning_curve.png", "confusion_matrix.png", "reliability.png"}
    if pictures := sorted({path.name for path in run_dir.glob("[!.]*.png")} - own):
        parts += ["## Pictures", *map(markdown.embedded, pictures)]
    return "\n\n".join(parts) + "\n"


def _headline(summary, results, split):
    low, high = summary["accuracy_low"], summary["accuracy_high"]
    line = f"**{summary['accuracy']:.2%} accuracy** (95% interval {low:.2%} to "
    line += f"{high:.2%}) on {summary['examples']:,} {split} examples"
    if "top5_accuracy" in summary:
        line += f" ({summary['top5_accuracy']:.2%} among the first five guesses)"
    if "steps" in results:
        line += f", after {results['steps']:,} steps"
    if "seconds" in results:
        line += f" in {figure_text('seconds', results['seconds'])} seconds"
    return line + "."


def about_curve(results):
    """Returns what the losses of training and validation are, a sentence or two.

    Args:
        results: dict of results, those of `train.run.task.about_loss` among them.
    """
    return (
        f"The loss is the one that was optimized, {results['loss_function']}, in "
        "training and validation alike. Only training has: "
        f"{results['training_only']}."
    )


def _calibration_section(calibration):
    bins = calibration["bins"]
    return (
        f"The expected calibration error is {calibration['error']:.2%}: the mean over "
        "the examples of the difference between accuracy and mean confidence (the "
        f"largest probability) in their bin, of {len(bins)} bins of equal width."
    )


def _class_sections(summary):
    tested = [row for row in summary["per_class"] if row["examples"]]
    worst = sorted(tested, key=lambda row: row["f1"])[:TABLE_ROWS]
    columns = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
    counted = {"examples": "Examples"}
    if "train_examples" in tested[0]:
        yield _balance(summary["per_class"])
        counted["train_examples"] = "In training"
    yield markdown.table(
        ("Class", *columns.values(), *counted.values()),
        [
            (
                row["name"],
                *(f"{row[key]:.2%}" for key in columns),
                *(f"{row[key]:,}" for key in counted),
            )
            for row in worst
        ],
    )
    if len(worst) < len(tested):
        yield (
            f"The {len(worst)} worst of {len(tested):,} classes; `report.json` has all."
        )
    if absent := summary["absent_classes"]:
        names = ", ".join(markdown.escape(name) for name in absent[:20])
        more = f" and {len(absent) - 20:,} more" if len(absent) > 20 else ""
        yield (
            "Without examples, so in neither the table nor the macro averages: "
            f"{names}{more}."
        )


def _balance(rows):
    fewest, most = (
        choose(rows, key=lambda row: row["train_examples"]) for choose in (min, max)
    )
    if fewest["train_examples"] == most["train_examples"]:
        return f"In training every class has {most['train_examples']:,} examples."
    median = float(np.median([row["train_examples"] for row in rows]))
    return (
        f"In training a class has {fewest['train_examples']:,} "
        f"({markdown.escape(fewest['name'])}) to {most['train_examples']:,} "
        f"({markdown.escape(most['name'])}) examples, in the median {median:,.6g}."
    )


def _confusion_section(confusions):
    if not confusions:
        return "No example was taken for another class."
    return markdown.table(
        ("True class", "Predicted", "Count", "Share of the true class"),
        [
            (row["true"], row["predicted"], row["count"], f"{row['share']:.2%}")
            for row in confusions
        ],
    )


def figure_text(name, value):
    """Returns a result as people read it.

    Args:
        name: str, of the result; shares have `accuracy`, `_macro_` or
            `calibration_error` in theirs.
        value: float, int or str.

    Returns:
        str.

    Example:

    >>> figure_text("test_accuracy", 0.98333)
    '98.33%'
    """
    if isinstance(value, float):
        if any(key in name for key in ("accuracy", "_macro_", "calibration_error")):
            return f"{value:.2%}"
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def flat(settings, prefix=""):
    """Yields pairs of name and value; the names of nested dicts have dots.

    Example:

    >>> list(flat({"model": {"num_layers": 6}, "steps": 10}))
    [('model.num_layers', 6), ('steps', 10)]
    """
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
