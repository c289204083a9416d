"""How figures grow with a size: exponents and their picture."""

import numpy as np

BLUE, ORANGE = "#0072B2", "#D55E00"


def exponent(sizes, values):
    """Returns the power of the size that fits the values best."""
    if len(set(sizes)) < 2:
        return None
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def panel(size, points):
    """Returns how speed and memory grow with a size."""
    ran = [(value, record) for value, record in points if record["error"] is None]
    sizes = [value for value, _ in ran]
    speed = [record["images_per_second"] for _, record in ran]
    # At least a page: a small model may fit in what the imports left free.
    memory = [
        max(record["peak_bytes"] - record["import_bytes"], 4096) / 1e6
        for _, record in ran
    ]
    return {
        "size": size,
        "sizes": sizes,
        "images_per_second": speed,
        "megabytes": memory,
        "speed": exponent(sizes, speed),
        "memory": exponent(sizes, memory),
    }


def describe(panel):
    """Returns the exponents of a panel as a sentence."""
    if panel["speed"] is None:
        return f"{panel['size']}: fewer than two points, no growth."
    return (
        f"With {panel['size']}, images/s grow as the power {panel['speed']:.2f}, "
        f"memory as {panel['memory']:.2f}."
    )


def draw(path, panels):
    """Draws one column a size, images a second above and memory below."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    figure = Figure(figsize=(4 * len(panels), 6), layout="constrained")
    axes = figure.subplots(2, len(panels), squeeze=False, sharex="col", sharey="row")
    for column, drawn in zip(axes.T, panels, strict=True):
        rows = (("images_per_second", BLUE), ("megabytes", ORANGE))
        for cell, (name, color) in zip(column, rows, strict=True):
            cell.loglog(drawn["sizes"], drawn[name], "o-", color=color)
            cell.set_xticks(drawn["sizes"], [f"{size:.4g}" for size in drawn["sizes"]])
            cell.minorticks_off()
            cell.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            cell.yaxis.set_major_formatter("{x:g}")
            cell.grid(alpha=0.25)
            cell.spines[["top", "right"]].set_visible(False)
        column[1].set_xlabel(drawn["size"])
    axes[0, 0].set_ylabel("Images a second")
    axes[1, 0].set_ylabel("Memory above the imports, MB")
    figure.savefig(path, dpi=120)
