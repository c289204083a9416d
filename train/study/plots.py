"""What the plots of the studies have in common."""

from train.reports.figures import BLUE, GREEN, ORANGE
from train.study.tables import MEASURES

COLORS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "black")


def panels(figure, found, draw_panel):
    """Plots one panel per measured accuracy with `draw_panel(axes, name)`."""
    names = [name for name in MEASURES if found["rows"][0][name]]
    axes = figure.subplots(1, len(names), squeeze=False)[0]
    for cell, name in zip(axes, names, strict=True):
        draw_panel(cell, name)
        label = "Test" if name == MEASURES[0] else f"{found['shots']}-shot linear"
        cell.set_ylabel(f"{label} accuracy")
        in_percent(cell.yaxis)
    return axes


def lines(axes, found, name, across):
    """Plots an accuracy over `across(row)` on a logarithmic axis, a line per model."""
    for place, model in enumerate(dict.fromkeys(row["model"] for row in found["rows"])):
        rows = [row for row in found["rows"] if row["model"] == model]
        rows.sort(key=across)
        color = COLORS[place % len(COLORS)]
        accuracies = [row[name] for row in rows]
        places = [across(row) for row in rows]
        points(axes, places, accuracies, color=color, label=model)
        means = [accuracy["mean"] for accuracy in accuracies]
        axes.plot(places, means, color=color, linewidth=1)
    axes.set_xscale("log")
    axes.legend(frameon=False)


def points(axes, across, accuracies, **style):
    """Plots means with their deviations, dicts of `train.study.runs.spread`."""
    axes.errorbar(
        across,
        [accuracy["mean"] for accuracy in accuracies],
        yerr=[accuracy["deviation"] or 0 for accuracy in accuracies],
        fmt="o",
        capsize=3,
        **style,
    )


def in_percent(axis):
    """Labels the ticks of an axis in percent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))
