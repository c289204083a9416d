"""What a run leaves for its readers: numbers, a page to read, and pictures."""

import json
import math
import os
import re
import urllib.parse
from pathlib import Path

import numpy as np

from train.files import whole_file

CONFUSIONS = 10
TABLE_ROWS = 100
MATRIX_CLASSES = 30
MATRIX_EXCERPT = 20
PICTURES = 12

# From the palette of Okabe and Ito, told apart with every kind of colour vision.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


def classification_summary(labels, probabilities, class_names):
    """Summarise how a classifier did on a test split.

    Ratios whose denominator is zero are 0. Classes without test examples have no
    recall, so the macro averages leave them out and "absent_classes" names them.

    Args:
        labels: True classes, integers of shape (n,).
        probabilities: Predicted probabilities, floats of shape (n, classes).
        class_names: Names of the classes, a sequence of `classes` strings.

    Returns:
        A dict with "examples" and "accuracy"; "top5_accuracy" where there are more
        than five classes; "per_class", a list in the order of the classes of dicts
        with "name", "precision", "recall", "f1", "examples" (with this true class) and
        "predictions" (of this class); "macro", a dict with "precision", "recall" and
        "f1"; "absent_classes", a list of names; "confusions", the most frequent
        mistakes as dicts with "true", "predicted", "count" and "share" (of the examples
        with this true class); and "confusion_matrix", an int64 array of shape
        (classes, classes) that counts true classes in rows, predicted ones in columns.

    Raises:
        ValueError: The arguments do not fit each other, or a probability is not finite.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    class_names = [str(name) for name in class_names]
    labels, probabilities = _checked(labels, probabilities, class_names)
    classes = np.arange(len(class_names))
    predicted = probabilities.argmax(axis=1)
    matrix = confusion_matrix(labels, predicted, labels=classes)
    *ratios, examples = precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    present = examples > 0
    ratios = dict(zip(("precision", "recall", "f1"), ratios, strict=True))
    summary = {
        "examples": len(labels),
        "accuracy": float(np.mean(predicted == labels)),
        "macro": {key: float(ratio[present].mean()) for key, ratio in ratios.items()},
        "per_class": [
            {
                "name": name,
                **{key: float(ratio[index]) for key, ratio in ratios.items()},
                "examples": int(examples[index]),
                "predictions": int(matrix[:, index].sum()),
            }
            for index, name in enumerate(class_names)
        ],
        "absent_classes": [class_names[index] for index in classes[~present]],
        "confusions": [
            {
                "true": class_names[true],
                "predicted": class_names[guess],
                "count": int(matrix[true, guess]),
                "share": float(matrix[true, guess] / examples[true]),
            }
            for true, guess in _confused_pairs(matrix)[:CONFUSIONS]
        ],
        "confusion_matrix": matrix,
    }
    if len(class_names) > 5:
        summary["top5_accuracy"] = float(np.mean(_ranks(labels, probabilities) < 5))
    return summary


def write_report(run_dir, *, config, summary, results, history):
    """Write the report of a run into its directory.

    Writes `confusion_matrix.png`, `learning_curve.png` (where the history holds
    "loss", "accuracy", "val_loss", "val_accuracy" or "learning_rate"), `report.md`,
    which also shows every other PNG file of the directory, and last `report.json`.
    Each file replaces its predecessor whole.

    Args:
        run_dir: Directory of the run; it is made where missing.
        config: Settings of the run by name; dicts in it may nest.
        summary: What `classification_summary` returned for the test split.
        results: Results by name, such as "train_examples", "steps", "seconds",
            "images_per_second" and "parameters"; and "command", the command line that
            reproduces the run.
        history: `train.metrics.MetricLog` of the run.

    Raises:
        RunError: A file cannot be written.
        TypeError: A setting or result is not plain data.
        ValueError: A setting or result is not finite, or a result's name is taken.
    """
    run_dir = Path(run_dir)
    config, results = _plain(config, "config"), _plain(results, "results")
    measured = {
        "test_accuracy": summary["accuracy"],
        "test_examples": summary["examples"],
        **{f"test_macro_{key}": value for key, value in summary["macro"].items()},
    }
    if "top5_accuracy" in summary:
        measured["test_top5_accuracy"] = summary["top5_accuracy"]
    details = {
        "config": config,
        "absent_classes": summary["absent_classes"],
        "per_class": summary["per_class"],
        "confusions": summary["confusions"],
    }
    if taken := sorted(results.keys() & details.keys()):
        raise ValueError(
            f"results of {run_dir} hold {taken}, which report.json needs for itself: "
            "rename them."
        )
    results = measured | results
    report = json.dumps(results | details, indent=2, ensure_ascii=False) + "\n"

    run_dir.mkdir(parents=True, exist_ok=True)
    _draw_confusion_matrix(run_dir / "confusion_matrix.png", summary)
    _draw_learning_curve(run_dir / "learning_curve.png", history)
    page = _page(run_dir, config, summary, results)
    for name, text in (("report.md", page), ("report.json", report)):
        with whole_file(run_dir / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def write_predictions_picture(
    path, images, labels, probabilities, class_names, title=""
):
    """Draw the first twelve images with what the model saw in them.

    Args:
        path: PNG file to write, in an existing directory.
        images: Images in [-1, 1], floats of shape (n, height, width, 3), n at least 1.
        labels: True classes, integers of shape (n,).
        probabilities: Predicted probabilities, floats of shape (n, classes).
        class_names: Names of the classes, a sequence of `classes` strings.
        title: Line above the grid.

    Raises:
        RunError: The file cannot be written.
        ValueError: The arguments do not fit each other, or images leave [-1, 1].
    """
    class_names = [str(name) for name in class_names]
    labels, probabilities = _checked(labels, probabilities, class_names)
    images = np.asarray(images, dtype=np.float32)
    if images.shape[1:] != (*images.shape[1:3], 3) or len(images) != len(labels):
        raise ValueError(
            f"{path}: images must be of shape ({len(labels)}, height, width, 3) to go "
            f"with the labels, got {images.shape}."
        )
    # Resizing with a bicubic or Lanczos kernel overshoots the range a little.
    if not np.abs(images).max() <= 2:
        raise ValueError(
            f"{path}: images must be in [-1, 1], got values from {images.min():g} to "
            f"{images.max():g}: pass them as the model sees them."
        )
    columns = min(4, len(labels))
    rows = math.ceil(min(len(labels), PICTURES) / columns)
    figure = _figure(max(2.3 * columns, 4.6), 2.65 * rows + 0.6)
    figure.suptitle(title, fontsize=12, parse_math=False)
    smooth = min(images.shape[1:3]) > 64
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell in axes:
        cell.set_axis_off()
    for cell, image, label, chances in zip(
        axes, images[:PICTURES], labels, probabilities, strict=False
    ):
        guess = chances.argmax()
        colour, sign = (BLUE, "✓") if guess == label else (ORANGE, "✗")
        cell.imshow(
            (np.clip(image, -1, 1) + 1) / 2,
            interpolation="bilinear" if smooth else "nearest",
        )
        cell.set_axis_on()
        cell.set(xticks=[], yticks=[])
        cell.spines[:].set(color=colour, linewidth=3)
        cell.set_title(
            f"{sign} {_short(class_names[guess], 16)} ({chances[guess]:.0%})\n"
            f"true: {_short(class_names[label], 16)}",
            fontsize=9,
            color=colour,
            parse_math=False,
        )
    _save(figure, path)


def _checked(labels, probabilities, class_names):
    labels, probabilities = np.asarray(labels), np.asarray(probabilities)
    classes = len(class_names)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise ValueError(
            "labels must be class indices, integers of shape (n,) with n at least 1, "
            f"got {labels.dtype} of shape {labels.shape}."
        )
    if probabilities.shape != (len(labels), classes):
        raise ValueError(
            f"probabilities for {len(labels)} labels and {classes} class names must be "
            f"of shape ({len(labels)}, {classes}), got {probabilities.shape}."
        )
    if labels.min() < 0 or labels.max() >= classes:
        row = int(np.argmax((labels < 0) | (labels >= classes)))
        raise ValueError(
            f"labels[{row}] is {labels[row]}, but {classes} class names leave the "
            f"labels 0 to {classes - 1}: pass the names of all classes."
        )
    finite = np.isfinite(probabilities).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{np.sum(~finite)} of {len(labels)} rows of the probabilities are not "
            f"finite, the first of them row {int(np.argmin(finite))}: the model has "
            "diverged, take an earlier checkpoint."
        )
    return labels, probabilities


def _ranks(labels, probabilities):
    """Count the classes before the true one; of equals, argmax takes the first."""
    chances = np.take_along_axis(probabilities, labels[:, None], axis=1)
    earlier = np.arange(probabilities.shape[1]) < labels[:, None]
    ahead = (probabilities > chances) | ((probabilities == chances) & earlier)
    return ahead.sum(axis=1)


def _confused_pairs(matrix):
    mistakes = matrix * ~np.eye(len(matrix), dtype=bool)
    order = np.argsort(-mistakes, axis=None, kind="stable")
    pairs = np.stack(np.unravel_index(order, matrix.shape), axis=1)
    return pairs[: np.count_nonzero(mistakes)].tolist()


def _plain(value, name):
    if isinstance(value, dict):
        return {str(key): _plain(item, f"{name}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{name}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist(), name)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"{name} is {value}, which JSON cannot hold: use None for no value."
        )
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"{name} is a {type(value).__name__}, which JSON cannot hold: pass a number, "
        "a string, None, or lists and dicts of them."
    )


def _page(run_dir, config, summary, results):
    named = [config.get(key) for key in ("model", "dataset")]
    title = " on ".join(name for name in named if isinstance(name, str))
    title = title or run_dir.resolve().name
    parts = [f"# {_escape(title)}", _headline(summary, results)]
    if "command" in results:
        parts.append(f"```sh\n{str(results['command']).strip()}\n```")
    figures = [(key, _figure_text(key, results[key])) for key in results]
    parts += [
        "## Results",
        _table(("Result", "Value"), [row for row in figures if row[0] != "command"]),
        "## Settings",
        _table(("Setting", "Value"), _flat(config)),
    ]
    if (run_dir / "learning_curve.png").exists():
        parts += ["## Learning curve", _embedded("learning_curve.png")]
    parts += ["## Classes, the worst first", *_class_sections(summary)]
    parts += ["## Most frequent confusions", _confusion_section(summary["confusions"])]
    parts.append(_embedded("confusion_matrix.png"))
    own = {"learning_curve.png", "confusion_matrix.png"}
    if pictures := sorted({path.name for path in run_dir.glob("[!.]*.png")} - own):
        parts += ["## Pictures", *map(_embedded, pictures)]
    return "\n\n".join(parts) + "\n"


def _headline(summary, results):
    line = f"**{summary['accuracy']:.2%} accuracy** on {summary['examples']:,} test "
    line += "examples"
    if "top5_accuracy" in summary:
        line += f" ({summary['top5_accuracy']:.2%} among the first five guesses)"
    if "steps" in results:
        line += f", after {results['steps']:,} steps"
    if "seconds" in results:
        line += f" in {_figure_text('seconds', results['seconds'])} seconds"
    return line + "."


def _class_sections(summary):
    tested = [row for row in summary["per_class"] if row["examples"]]
    worst = sorted(tested, key=lambda row: row["f1"])[:TABLE_ROWS]
    columns = ("precision", "recall", "f1")
    yield _table(
        ("Class", "Precision", "Recall", "F1", "Test examples"),
        [
            (row["name"], *(f"{row[key]:.2%}" for key in columns), row["examples"])
            for row in worst
        ],
    )
    if len(worst) < len(tested):
        yield (
            f"The {len(worst)} worst of {len(tested):,} classes; `report.json` has all."
        )
    if absent := summary["absent_classes"]:
        names = ", ".join(_escape(name) for name in absent[:20])
        more = f" and {len(absent) - 20:,} more" if len(absent) > 20 else ""
        yield (
            "Without test examples, so in neither the table nor the macro averages: "
            f"{names}{more}."
        )


def _confusion_section(confusions):
    if not confusions:
        return "No test example was taken for another class."
    return _table(
        ("True class", "Predicted", "Count", "Share of the true class"),
        [
            (row["true"], row["predicted"], row["count"], f"{row['share']:.2%}")
            for row in confusions
        ],
    )


def _figure_text(name, value):
    if isinstance(value, float):
        if "accuracy" in name or name.startswith("test_macro_"):
            return f"{value:.2%}"
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def _flat(settings, prefix=""):
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _table(header, rows):
    lines = [header, ["---"] * len(header)]
    lines += [[_escape(str(cell)) for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escape(text):
    """Make text mean itself in Markdown, inside tables too."""
    text = re.sub(r"([\\`*|<>\[\]&$~#])", r"\\\1", " ".join(text.split()))
    # An underscore between letters or digits is no emphasis.
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)


def _embedded(name):
    caption = _escape(Path(name).stem.replace("_", " "))
    return f"![{caption}]({urllib.parse.quote(name)})"


def _draw_learning_curve(path, history):
    panels = []
    for name, label in (("loss", "Loss"), ("accuracy", "Accuracy")):
        lines = (history.series(name), history.series(f"val_{name}"))
        if any(len(steps) for steps, _ in lines):
            panels.append((label, lines))
    rate = history.series("learning_rate")
    heights = [3] * len(panels) + [1] * bool(len(rate[0]))
    if not heights:
        return
    figure = _figure(8, 1 + sum(heights))
    axes = figure.subplots(
        len(heights), sharex=True, squeeze=False, height_ratios=heights
    )[:, 0]
    for cell, (label, ((steps, values), validation)) in zip(axes, panels, strict=False):
        window = max(1, len(values) // 25)
        if window > 1:
            cell.plot(steps, values, color=BLUE, alpha=0.25, linewidth=0.8)
        if len(values):
            mean = "" if window == 1 else f", mean of {window} records"
            smooth = _moving_average(values, window)
            cell.plot(steps, smooth, _style(steps), color=BLUE, label=f"training{mean}")
        if len(validation[0]):
            cell.plot(*validation, "o-", color=ORANGE, markersize=4, label="validation")
        cell.set_ylabel(label)
        cell.legend(frameon=False)
    if len(rate[0]):
        axes[-1].plot(*rate, _style(rate[0]), color=GREEN)
        axes[-1].set_ylabel("Learning rate")
        axes[-1].set_ylim(bottom=0)
        axes[-1].ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    for cell in axes:
        cell.grid(alpha=0.25)
        cell.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("Step")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    figure.align_ylabels()
    _save(figure, path)


def _style(steps):
    return "-" if len(steps) > 30 else ".-"


def _moving_average(values, window):
    kernel = np.ones(window)
    counts = np.convolve(np.ones(len(values)), kernel, mode="same")
    return np.convolve(values, kernel, mode="same") / counts


def _draw_confusion_matrix(path, summary):
    matrix, classes = summary["confusion_matrix"], len(summary["per_class"])
    shown, title = list(range(classes)), "Test examples by true and predicted class"
    if classes > MATRIX_CLASSES:
        confused = np.ravel(_confused_pairs(matrix)).astype(int).tolist()
        shown = sorted(list(dict.fromkeys(confused + shown))[:MATRIX_EXCERPT])
        title = f"The {MATRIX_EXCERPT} most confused of {classes:,} classes"
    names = [_short(summary["per_class"][index]["name"], 24) for index in shown]
    shares = matrix[shown] / np.maximum(matrix[shown].sum(axis=1, keepdims=True), 1)
    shares, counts = shares[:, shown], matrix[np.ix_(shown, shown)]

    side = max(4.5, 0.42 * len(shown) + 2)
    figure = _figure(side + 1, side)
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(
        image, label="Share of the true class", shrink=0.6, format="{x:.0%}"
    )
    ticks = {"fontsize": 9, "parse_math": False}
    short = max(map(len, names)) <= 3
    axes.set_xticks(range(len(shown)), names, **ticks, rotation=0 if short else 90)
    axes.set_yticks(range(len(shown)), names, **ticks)
    axes.tick_params(length=0)
    axes.set(xlabel="Predicted class", ylabel="True class", title=title)
    for row, column in np.argwhere(counts):
        axes.text(
            column,
            row,
            counts[row, column],
            ha="center",
            va="center",
            fontsize=8,
            color="white" if shares[row, column] > 0.5 else "black",
        )
    _save(figure, path)


def _short(name, length):
    return name if len(name) <= length else name[: length - 1] + "…"


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _save(figure, path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with whole_file(path) as temporary:
        FigureCanvasAgg(figure).print_figure(temporary, format="png", dpi=120)
