"""Figures of a report as PNG files: curves, confusion matrix, reliability, images.

Every `path` is a file in an existing directory; all raise `RunError` where it cannot be
written. Images are floats in [-1, 1] of shape (n, height, width, 3), n at least 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.common.files import whole_file
from train.engine.metric_log import MetricLog
from train.reports.answers import Answers
from train.scoring.metrics import confused_pairs
from zoo.common.safe_text import class_text, shorten, width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# A report has these files.
LEARNING_CURVE = "learning_curve.png"
CONFUSION_MATRIX = "confusion_matrix.png"
RELIABILITY = "reliability.png"
MISTAKES = "mistakes.png"

MATRIX_CLASSES = 30
MATRIX_EXCERPT = 20
PICTURES = 12

# Okabe and Ito's palette, distinguishable with every kind of color vision.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


def draw_learning_curve(path: Path, history: MetricLog, loss_function: str) -> None:
    """Plots loss, accuracy and learning rate of a `MetricLog`; without any, no file."""
    panels = []
    for name, label in (("loss", "Loss"), ("accuracy", "Accuracy")):
        lines = (history.series(name), history.series(f"val_{name}"))
        if any(len(steps) for steps, _ in lines):
            panels.append((label, lines))
    rate = history.series("learning_rate")
    heights = [3] * len(panels) + [1] * bool(len(rate[0]))
    if not heights:
        return
    figure = new_figure(6, 1 + sum(heights))
    shape: dict[str, Any] = {"nrows": len(heights), "height_ratios": heights}
    axes = figure.subplots(**shape, sharex=True, squeeze=False)[:, 0]
    for cell, (label, ((steps, values), validation)) in zip(axes, panels, strict=False):
        window = max(1, len(values) // 25)
        if window > 1:
            cell.plot(steps, values, color=BLUE, alpha=0.25, linewidth=0.8)
        if len(values):
            mean = "" if window == 1 else f", mean of {window} records"
            smooth = moving_average(values, window)
            cell.plot(steps, smooth, _style(steps), color=BLUE, label=f"training{mean}")
        if len(validation[0]):
            cell.plot(*validation, "o-", color=ORANGE, markersize=4, label="validation")
        cell.set_ylabel(label)
        cell.legend(frameon=False)
        if label == "Loss" and loss_function:
            cell.set_title(shorten(loss_function, 80), fontsize=9, parse_math=False)
    if len(rate[0]):
        axes[-1].plot(*rate, _style(rate[0]), color=GREEN)
        axes[-1].set_ylabel("Learning rate")
        axes[-1].set_ylim(bottom=0)
        axes[-1].ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    style_axes(axes, grid=True)
    axes[-1].set_xlabel("Step")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    figure.align_ylabels()
    save(figure, path)


def draw_range_test(
    path: Path, rates: Sequence, losses: Sequence, suggestion: dict
) -> None:
    """Plots losses over rates; `suggestion` is of `train.run.learning_rate`."""
    losses = np.array(losses, "float64")
    finite = np.isfinite(losses)
    rates, losses = np.array(rates)[finite], losses[finite]
    figure = new_figure(8, 4)
    axes = figure.subplots()
    axes.semilogx(rates, losses, ".", color=BLUE, alpha=0.35, label="one batch")
    axes.semilogx(rates, suggestion["smoothed"], color=BLUE, label="mean")
    marks = (("suggested", GREEN, "-"), ("diverged", ORANGE, "--"))
    for name, color, style in marks:
        if suggestion[name] is not None:
            label = f"{name}: {suggestion[name]:.2g}"
            axes.axvline(suggestion[name], color=color, linestyle=style, label=label)
    if len(losses):
        # Cut off losses that diverge: they would flatten the rest.
        span = max(losses[0] - losses.min(), 1e-3)
        axes.set_ylim(losses.min() - 0.1 * span, losses[0] + span)
    axes.set(xlabel="Learning rate", ylabel="Loss")
    axes.legend(frameon=False)
    style_axes((axes,), grid=True)
    save(figure, path)


def _style(steps):
    return "-" if len(steps) > 30 else ".-"


def moving_average(values: np.ndarray, window: int) -> np.ndarray:
    """Returns means of `window` values, of fewer at both ends."""
    kernel = np.ones(window)
    counts = np.convolve(np.ones(len(values)), kernel, mode="same")
    return np.convolve(values, kernel, mode="same") / counts


def draw_confusion_matrix(path: Path, summary: dict) -> None:
    """Plots the confusion matrix of a `classification_summary`.

    Only classes that occur are shown, as a label or as an answer; of many, the most
    confused.
    """
    from matplotlib.ticker import StrMethodFormatter

    matrix = summary["confusion_matrix"]
    shown = np.union1d(*matrix.nonzero()).tolist()
    title = "Examples by true and predicted class"
    if len(shown) > MATRIX_CLASSES:
        title = f"The {MATRIX_EXCERPT} most confused of {len(shown):,} classes"
        confused = [place for *pair, _ in confused_pairs(matrix) for place in pair]
        shown = sorted(list(dict.fromkeys(confused + shown))[:MATRIX_EXCERPT])
    names = [shorten(summary["matrix_classes"][index], 24) for index in shown]
    counts = matrix[shown][:, shown].toarray()
    shares = counts / np.maximum(matrix[shown].sum(axis=1), 1)[:, None]

    # Names need room beside the matrix, some 0.075 inches a letter.
    longest = max(map(width, names))
    side = max(4.5, 0.42 * len(shown) + 2) + 0.075 * longest
    figure = new_figure(side + 1, side)
    figure.suptitle(title, fontsize=12)
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    label = "Share of the true class"
    # Matplotlib 3.8 takes the text itself for a format of the operator %.
    percent = StrMethodFormatter("{x:.0%}")
    figure.colorbar(image, label=label, shrink=0.8, format=percent)
    ticks: dict[str, Any] = {"fontsize": 9, "parse_math": False}
    short = max(map(width, names)) <= 3
    axes.set_xticks(range(len(shown)), names, **ticks, rotation=0 if short else 90)
    axes.set_yticks(range(len(shown)), names, **ticks)
    axes.tick_params(length=0)
    axes.set(xlabel="Predicted class", ylabel="True class")
    centered: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
    for row, column in np.argwhere(counts):
        color = "white" if shares[row, column] > 0.5 else "black"
        axes.text(column, row, counts[row, column], color=color, **centered)
    save(figure, path)


def draw_reliability(path: Path, bins: Sequence[dict]) -> None:
    """Plots the bins of `calibration`: accuracy over confidence, and a histogram."""
    figure = new_figure(5.5, 6.5)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    middles = [(row["low"] + row["high"]) / 2 for row in bins]
    wide = bins[0]["high"] - bins[0]["low"]
    accuracies = [row["accuracy"] or 0 for row in bins]
    bars = {"edgecolor": "white", "width": wide}
    upper.bar(middles, accuracies, color=BLUE, label="accuracy", **bars)
    confidences = [row["confidence"] for row in bins if row["examples"]]
    upper.plot(confidences, confidences, ".", color=ORANGE, label="mean confidence")
    upper.plot([0, 1], [0, 1], "--", color=ORANGE, linewidth=0.8)
    upper.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1))
    upper.legend(frameon=False, loc="upper left")
    lower.bar(middles, [row["examples"] for row in bins], color=GREEN, **bars)
    lower.set(xlabel="Confidence", ylabel="Examples")
    style_axes((upper, lower))
    figure.align_ylabels()
    save(figure, path)


def draw_mistakes(path: Path, answers: Answers, photos: dict[int, np.ndarray]) -> None:
    """Draws the first twelve photos of `train.reports.answers.Answers`.

    `photos` are dicts of a place to uint8 (height, width, 3).
    """
    places = [place for place in answers.order.tolist() if place in photos][:PICTURES]
    chances = np.zeros((len(places), len(answers.class_names)))
    answered = np.arange(len(places)), answers.predicted[places]
    chances[answered] = answers.confidence[places]
    write_predictions_picture(
        path,
        [photos[place].astype("float32") / 127.5 - 1 for place in places],
        answers.labels[places],
        chances,
        answers.class_names,
        "Mistakes, the most confident first",
    )


def draw_batch(
    path: Path, images: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
) -> None:
    """Draws the first twelve images of a training batch, after augmentation.

    Labels are classes, integers of shape (n,), or mixed, floats of shape (n, classes).
    """
    titles = [_label_text(label, class_names) for label in labels]
    draw_grid(path, "the first training batch", images, titles)


def _label_text(label, class_names):
    if np.ndim(label) == 0:
        return shorten(class_text(str(class_names[label])), 20)
    largest = np.argsort(-label, kind="stable")[:2]
    return "\n".join(
        f"{shorten(class_text(str(class_names[place])), 16)} {label[place]:.0%}"
        for place in largest
        if label[place] > 0
    )


def write_predictions_picture(
    path: Path,
    images: np.ndarray | list[np.ndarray],
    labels: np.ndarray,
    probabilities: np.ndarray,
    class_names: Sequence[str],
    title: str = "",
) -> None:
    """Draws the first twelve images with their predicted and true classes."""
    titles, colors = [], []
    for label, chances in zip(labels, probabilities, strict=True):
        guess = chances.argmax()
        color, sign = (BLUE, "✓") if guess == label else (ORANGE, "✗")
        answer, true = (
            shorten(class_text(class_names[place]), 16) for place in (guess, label)
        )
        titles.append(f"{sign} {answer} ({chances[guess]:.0%})\ntrue: {true}")
        colors.append(color)
    draw_grid(path, title, images, titles, colors)


def write_image_table(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Draws images in rows; `columns` is a dict of a column's title to its images."""
    rows = len(next(iter(columns.values())))
    figure = new_figure(2.2 * len(columns), 2.2 * rows + 0.4)
    axes = figure.subplots(rows, len(columns), squeeze=False)
    for cells, (name, images) in zip(axes.T, columns.items(), strict=True):
        cells[0].set_title(name, fontsize=10, parse_math=False)
        for cell, image in zip(cells, images, strict=True):
            cell.set_axis_off()
            cell.imshow(_displayed(image), interpolation="nearest")
    save(figure, path)


def draw_grid(
    path: Path,
    heading: str,
    images: Sequence[np.ndarray] | np.ndarray,
    titles: Sequence[str],
    colors: Sequence[str] = (),
) -> None:
    """Draws the first twelve images, each with its title and perhaps a frame."""
    count = min(len(images), PICTURES)
    columns = min(4, count)
    rows = math.ceil(count / columns)
    figure = new_figure(max(2.3 * columns, 4.6), 2.65 * rows + 0.6)
    figure.suptitle(heading, fontsize=12, parse_math=False)
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell in cells[count:]:
        cell.set_axis_off()
    for place, cell in enumerate(cells[:count]):
        frame = {"color": colors[place]} if colors else {}
        smooth = "bilinear" if min(images[place].shape[:2]) > 64 else "nearest"
        cell.imshow(_displayed(images[place]), interpolation=smooth)
        cell.set(xticks=[], yticks=[])
        cell.set_title(titles[place], fontsize=9, parse_math=False, **frame)
        if frame:
            cell.spines[:].set(linewidth=3, **frame)
    save(figure, path)


def _displayed(image):
    return (np.clip(image, -1, 1) + 1) / 2


def new_figure(width: float, height: float) -> Figure:
    """Returns a `matplotlib.figure.Figure` of a size in inches, without pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def style_axes(axes: Iterable[Axes], grid: bool = False) -> None:
    """Removes the upper and right spines of axes, and may add a grid."""
    for cell in axes:
        cell.spines[["top", "right"]].set_visible(False)
        if grid:
            cell.grid(alpha=0.25)


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from keras_vit.explain.figures import fit_alphabets

    fit_alphabets(figure)
    with whole_file(path) as temporary:
        FigureCanvasAgg(figure).print_figure(temporary, format="png", dpi=120)
