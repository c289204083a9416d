"""Tables and plots of accuracies, which the studies have in common.

An accuracy is a dict of `train.series.spread.spread`, a row one of `rows` in
`study.json`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from train.common import markdown
from train.reports.figures import BLUE, GREEN, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MEASURES = ("test_accuracy", "few_shot_accuracy")
COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "black")


def table(
    results: dict, header: tuple[str, ...], cells: Callable[[dict], tuple]
) -> markdown.Block:
    """Returns a table with `cells(row)`, the parameters and the accuracies of rows."""
    names = _measured(results)
    titles = ("Test accuracy", f"{results['shots']}-shot accuracy")[: len(names)]
    return markdown.table(
        (*header, "Parameters", *titles),
        [
            (
                *cells(row),
                f"{row['parameters']:,}",
                *(as_text(row[name]) for name in names),
            )
            for row in results["rows"]
        ],
    )


def _measured(results):
    """Returns the names of the accuracies that all rows have."""
    return [name for name in MEASURES if results["rows"][0][name]]


def as_text(accuracy: dict) -> str:
    """Returns an accuracy as mean and deviation."""
    text = f"{accuracy['mean']:.2%}"
    if accuracy["deviation"] is not None:
        text += f" ± {accuracy['deviation']:.2%}"
    return text


def panels(figure: "Figure", results: dict) -> Iterator[tuple["Axes", str]]:
    """Yields the axes of one panel per measured accuracy, and the accuracy's name."""
    names = _measured(results)
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for cell, name in zip(axes, names, strict=True):
        label = "Test" if name == MEASURES[0] else f"{results['shots']}-shot linear"
        cell.set_ylabel(f"{label} accuracy")
        in_percent(cell.yaxis)
        yield cell, name


def lines(
    axes: "Axes", results: dict, name: str, across: Callable[[dict], float]
) -> None:
    """Plots an accuracy over `across(row)` on a logarithmic axis, a line per model."""
    for place, model in enumerate(
        dict.fromkeys(row["model"] for row in results["rows"])
    ):
        rows = [row for row in results["rows"] if row["model"] == model]
        rows.sort(key=across)
        color = COLORS[place % len(COLORS)]
        accuracies = [row[name] for row in rows]
        places = [across(row) for row in rows]
        points(axes, places, accuracies, color=color, label=model, fmt="o-", lw=1)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.legend(frameon=False)


def points(
    axes: "Axes", across: Sequence, accuracies: Sequence, fmt: str = "o", **style: Any
) -> None:
    """Plots accuracies as means with their deviations."""
    axes.errorbar(
        across,
        [accuracy["mean"] for accuracy in accuracies],
        yerr=[accuracy["deviation"] or 0 for accuracy in accuracies],
        fmt=fmt,
        capsize=3,
        **style,
    )


def in_percent(axis: "Axis") -> None:
    """Labels the ticks of an axis in percent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))
