"""The pictures of a report: learning curve, confusion matrix, predictions."""

import math

import numpy as np

from train.common.files import whole_file
from train.reports.classification import check_predictions, confused_pairs

MATRIX_CLASSES = 30
MATRIX_EXCERPT = 20
PICTURES = 12

# From the palette of Okabe and Ito, told apart with every kind of colour vision.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"


def draw_learning_curve(path, history, loss_function=""):
    """Draw loss, accuracy and learning rate over the steps, where there are any.

    Args:
        path: PNG file to write, in an existing directory.
        history: `MetricLog` of the run. Without "loss", "accuracy",
            "val_loss", "val_accuracy" and "learning_rate" nothing is written.
        loss_function: What the losses are, above their panel.

    Raises:
        RunError: The file cannot be written.
    """
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
        if label == "Loss" and loss_function:
            cell.set_title(_short(loss_function, 80), fontsize=9, parse_math=False)
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


def draw_confusion_matrix(path, summary):
    """Draw which classes were taken for which, of many the most confused ones.

    Args:
        path: PNG file to write, in an existing directory.
        summary: What `train.reports.report.classification_summary` returned.

    Raises:
        RunError: The file cannot be written.
    """
    matrix, classes = summary["confusion_matrix"], len(summary["per_class"])
    shown, title = list(range(classes)), "Examples by true and predicted class"
    if classes > MATRIX_CLASSES:
        confused = np.ravel(confused_pairs(matrix)).astype(int).tolist()
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


def draw_reliability(path, bins):
    """Draw the accuracy over the confidence, and how often each confidence is.

    Args:
        path: PNG file to write, in an existing directory.
        bins: Those of `train.reports.report.calibration`.

    Raises:
        RunError: The file cannot be written.
    """
    figure = _figure(5.5, 6.5)
    upper, lower = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    middles = [(row["low"] + row["high"]) / 2 for row in bins]
    width = bins[0]["high"] - bins[0]["low"]
    upper.bar(
        middles,
        [row["accuracy"] or 0 for row in bins],
        width,
        color=BLUE,
        edgecolor="white",
        label="accuracy",
    )
    filled = [row for row in bins if row["examples"]]
    upper.plot(
        [row["confidence"] for row in filled],
        [row["confidence"] for row in filled],
        ".",
        color=ORANGE,
        label="mean confidence",
    )
    upper.plot([0, 1], [0, 1], "--", color=ORANGE, linewidth=0.8)
    upper.set(ylabel="Accuracy", xlim=(0, 1), ylim=(0, 1))
    upper.legend(frameon=False, loc="upper left")
    counts = [row["examples"] for row in bins]
    lower.bar(middles, counts, width, color=GREEN, edgecolor="white")
    lower.set(xlabel="Confidence", ylabel="Examples")
    for cell in (upper, lower):
        cell.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    _save(figure, path)


def draw_batch(path, images, labels, class_names):
    """Draw the first twelve images of a training batch, as the model sees them.

    Args:
        path: PNG file to write, in an existing directory.
        images: Images in [-1, 1], floats of shape (n, height, width, 3), n at least 1.
        labels: Classes, integers of shape (n,), or their shares, floats of shape (n,
            classes).
        class_names: Names of the classes.

    Raises:
        RunError: The file cannot be written.
    """
    figure, cells = _grid(len(images), "the first training batch")
    for cell, image, label in zip(cells, images, labels, strict=False):
        _show(cell, image)
        cell.set_title(
            "\n".join(_label_lines(label, class_names)), fontsize=9, parse_math=False
        )
    _save(figure, path)


def _label_lines(label, class_names):
    if np.ndim(label) == 0:
        return [_short(str(class_names[label]), 20)]
    largest = np.argsort(-label, kind="stable")[:2]
    return [
        f"{_short(str(class_names[place]), 16)} {label[place]:.0%}"
        for place in largest
        if label[place] > 0
    ]


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
    labels, probabilities = check_predictions(labels, probabilities, class_names)
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
    figure, cells = _grid(len(labels), title)
    for cell, image, label, chances in zip(
        cells, images, labels, probabilities, strict=False
    ):
        guess = chances.argmax()
        colour, sign = (BLUE, "✓") if guess == label else (ORANGE, "✗")
        _show(cell, image)
        cell.spines[:].set(color=colour, linewidth=3)
        cell.set_title(
            f"{sign} {_short(class_names[guess], 16)} ({chances[guess]:.0%})\n"
            f"true: {_short(class_names[label], 16)}",
            fontsize=9,
            color=colour,
            parse_math=False,
        )
    _save(figure, path)


def write_image_table(path, columns):
    """Draw images in rows, with what became of each beside it.

    Args:
        path: PNG file to write, in an existing directory.
        columns: Images in [-1, 1], floats of shape (rows, height, width, 3), by what
            stands above them.

    Raises:
        RunError: The file cannot be written.
    """
    rows = len(next(iter(columns.values())))
    figure = _figure(2.2 * len(columns), 2.2 * rows + 0.4)
    axes = figure.subplots(rows, len(columns), squeeze=False)
    for cells, (name, images) in zip(axes.T, columns.items(), strict=True):
        cells[0].set_title(name, fontsize=10, parse_math=False)
        for cell, image in zip(cells, images, strict=True):
            cell.set_axis_off()
            cell.imshow((np.clip(image, -1, 1) + 1) / 2, interpolation="nearest")
    _save(figure, path)


def _style(steps):
    return "-" if len(steps) > 30 else ".-"


def _moving_average(values, window):
    kernel = np.ones(window)
    counts = np.convolve(np.ones(len(values)), kernel, mode="same")
    return np.convolve(values, kernel, mode="same") / counts


def _grid(count, title):
    """A figure with a cell for each of at most twelve pictures."""
    count = min(count, PICTURES)
    columns = min(4, count)
    rows = math.ceil(count / columns)
    figure = _figure(max(2.3 * columns, 4.6), 2.65 * rows + 0.6)
    figure.suptitle(title, fontsize=12, parse_math=False)
    cells = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell in cells:
        cell.set_axis_off()
    return figure, cells[:count]


def _show(cell, image):
    cell.imshow(
        (np.clip(image, -1, 1) + 1) / 2,
        interpolation="bilinear" if min(image.shape[:2]) > 64 else "nearest",
    )
    cell.set_axis_on()
    cell.set(xticks=[], yticks=[])


def _short(name, length):
    return name if len(name) <= length else name[: length - 1] + "…"


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def _save(figure, path):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with whole_file(path) as temporary:
        FigureCanvasAgg(figure).print_figure(temporary, format="png", dpi=120)
