"""What a study leaves: study.md with a table, study.png with a plot, study.json."""

import json
import pathlib

from train.common.errors import RunError
from train.common.files import whole_file
from train.reports import markdown
from train.reports.figures import BLUE, GREEN, ORANGE

_TITLES = {
    "learning_rates": "learning rates",
    "examples": "accuracy against the number of training images",
    "compute": "accuracy against the compute of training",
    "positions": "position embeddings",
    "vtab": "VTAB-1k",
}
_PREFIXES = {10**18: "exa", 10**15: "peta", 10**12: "tera", 10**9: "giga"}
_COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "black")
_MEASURES = ("test_accuracy", "few_shot_accuracy")


def claim(run_dir, study):
    """Makes sure that a directory holds no other study.

    Args:
        run_dir: path of the study's directory.
        study: str, its name.

    Raises:
        RunError: it has, or its `study.json` is damaged.
    """
    path = pathlib.Path(run_dir).expanduser() / "study.json"
    if not path.exists():
        return
    try:
        other = json.loads(path.read_text(encoding="utf-8"))["study"]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(
            f"{path} is damaged ({error}): remove it, the runs beside it are kept."
        ) from error
    if other != study:
        raise RunError(
            f"{path.parent} holds the study {other}: pass another --run_dir for "
            f"{study}."
        )


def write(run_dir, found):
    """Writes the three files, each whole.

    Args:
        run_dir: path of the study's directory.
        found: dict, of `train.study.studies.run`.

    Returns:
        `pathlib.Path` of the page.

    Raises:
        RunError: a file cannot be written.
    """
    folder = pathlib.Path(run_dir).expanduser()
    page = folder / "study.md"
    _draw(folder / "study.png", found)
    for path, text in (
        (page, _page(found)),
        (folder / "study.json", json.dumps(found, indent=2, ensure_ascii=False)),
    ):
        with whole_file(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    return page


def tables(found):
    """Returns the tables of a study, a list of str in Markdown.

    Args:
        found: dict, of `train.study.studies.run`.
    """
    return list(_TABLES[found["study"]](found))


def accuracy_text(accuracy):
    """Returns a mean with its deviation as people read it.

    Args:
        accuracy: dict of `train.study.runs.spread`.

    Example:

    >>> accuracy_text({"values": [0.5, 0.52], "mean": 0.51, "deviation": 0.01414})
    '51.00% ± 1.41%'
    """
    text = f"{accuracy['mean']:.2%}"
    if accuracy["deviation"] is not None:
        text += f" ± {accuracy['deviation']:.2%}"
    return text


def unit_of(flops):
    """Returns the unit in which numbers of operations are told.

    Args:
        flops: sequence of ints.

    Returns:
        Tuple of the operations in it, an int, and its name.

    Example:

    >>> unit_of([5 * 10**13, 2 * 10**15])
    (1000000000000000, 'petaFLOPs')
    """
    most = max(flops)
    unit = next((unit for unit in _PREFIXES if unit <= most), min(_PREFIXES))
    return unit, f"{_PREFIXES[unit]}FLOPs"


def _page(found):
    dataset = found["dataset"]
    parts = [f"# {markdown.escape(dataset)}: {_TITLES[found['study']]}"]
    if found["command"]:
        parts.append(markdown.code(found["command"]))
    parts += [*tables(found), markdown.embedded("study.png")]
    if _seeds(found) > 1:
        parts.append(
            f"Means of {_seeds(found)} runs with different seeds, ± their sample "
            "standard deviation."
        )
    if _has_few_shot(found):
        parts.append(
            "Few-shot: a linear classifier on the model's features of "
            f"{found['shots']} training images a class, the mean of three draws "
            "(keras-vit few_shot)."
        )
    if found["failed"]:
        rows = list(found["failed"].items())
        parts += ["## Not finished", markdown.table(("Run", "What is wrong"), rows)]
    links = [
        f"- [{markdown.escape(label)}]({label}/report.md)"
        for row in (*found["rows"], *found.get("chosen", ()))
        for label in row["runs"]
    ]
    parts += ["## Runs", "\n".join(links)]
    return "\n\n".join(parts)


def _seeds(found):
    rows = found.get("chosen") or found["rows"]
    return max((len(row["runs"]) for row in rows), default=0)


def _has_few_shot(found):
    return any(row.get("few_shot_accuracy") for row in found["rows"])


def _learning_rates_tables(found):
    yield markdown.table(
        ("Learning rate", "Validation accuracy", "Validation loss", ""),
        [
            (
                f"{row['learning_rate']:g}",
                f"{row['validation_accuracy']:.2%}",
                f"{row['validation_loss']:.4f}",
                "chosen" if row["learning_rate"] == found["learning_rate"] else "",
            )
            for row in found["rows"]
        ],
    )
    rates = [row["learning_rate"] for row in found["rows"]]
    if len(rates) > 1 and found["learning_rate"] in (min(rates), max(rates)):
        yield (
            "The chosen rate is at the end of those tried: one beyond it may be better "
            "(--learning_rates)."
        )
    yield (
        "Chosen by the validation accuracy, of equal ones by the loss, on images of "
        "train that were held out; the test images had no part in it. Then with the "
        "chosen rate, on all of train unless the runs stop early:"
    )
    yield markdown.table(
        ("Learning rate", "Test accuracy", "Each run"),
        [
            (
                f"{found['learning_rate']:g}",
                accuracy_text(row["test_accuracy"]),
                ", ".join(f"{value:.2%}" for value in row["test_accuracy"]["values"]),
            )
            for row in found["chosen"]
        ],
    )


def _measures_table(found, header, cells):
    """A row for each point: some cells, the parameters, and the accuracies."""
    has_few_shot = _has_few_shot(found)
    header = (*header, "Parameters", "Test accuracy")
    header += (f"{found['shots']}-shot accuracy",) if has_few_shot else ()
    yield markdown.table(
        header,
        [
            (
                *cells(row),
                f"{row['parameters']:,}",
                *(accuracy_text(row[name]) for name in _MEASURES if row[name]),
            )
            for row in found["rows"]
        ],
    )


def _examples_tables(found):
    return _measures_table(
        found,
        ("Model", "Training images"),
        lambda row: (row["model"], f"{row['examples']:,}"),
    )


def _compute_tables(found):
    unit, name = unit_of([row["flops"] for row in found["rows"]])
    yield from _measures_table(
        found,
        ("Model", "Multiply-adds of an image", "Images in training", name),
        lambda row: (
            row["model"],
            f"{row['multiply_adds']:,}",
            f"{row['images']:,}",
            f"{row['flops'] / unit:.4g}",
        ),
    )
    yield (
        f"{name}: two operations a multiply-add of products and convolutions, for the "
        "forward pass and twice that for the backward pass, for all images."
    )


def _positions_tables(found):
    return _measures_table(
        found, ("Position embedding",), lambda row: (row["positions"],)
    )


def _vtab_tables(found):
    yield markdown.table(
        ("Task", "Group", "Test accuracy"),
        [
            (row["task"], row["group"], accuracy_text(row["test_accuracy"]))
            for row in found["rows"]
        ],
    )
    yield markdown.table(
        ("Mean", "Tasks", "Test accuracy"),
        [
            (
                "all tasks" if group == "mean" else group,
                found["tasks"][group],
                f"{m:.2%}",
            )
            for group, m in found["means"].items()
        ],
    )
    if not found["is_benchmark"]:
        yield (
            "**This is not the benchmark's mean**, which is of all its 19 tasks, each "
            "learned from its 1,000 examples and tested on all test images."
        )


_TABLES = {
    "learning_rates": _learning_rates_tables,
    "examples": _examples_tables,
    "compute": _compute_tables,
    "positions": _positions_tables,
    "vtab": _vtab_tables,
}


def _draw(path, found):
    from matplotlib.figure import Figure

    study = found["study"]
    height = 2 + 0.3 * len(found["rows"]) if study == "vtab" else 4.5
    figure = Figure(figsize=(8, height), layout="constrained", facecolor="white")
    if study == "learning_rates":
        axes = [_draw_rates(figure, found)]
    elif study == "vtab":
        axes = [_draw_tasks(figure, found)]
    else:
        names = [name for name in _MEASURES if found["rows"][0][name]]
        axes = figure.subplots(1, len(names), squeeze=False)[0]
        for cell, name in zip(axes, names, strict=True):
            _PANELS[study](cell, found, name)
            label = f"{found['shots']}-shot linear" if name != _MEASURES[0] else "Test"
            cell.set_ylabel(f"{label} accuracy")
            _in_percent(cell.yaxis)
    for cell in axes:
        cell.grid(alpha=0.25)
        cell.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{found['dataset']}: {_TITLES[study]}", parse_math=False)
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _draw_rates(figure, found):
    axes = figure.subplots()
    rows = sorted(found["rows"], key=lambda row: row["learning_rate"])
    rates = [row["learning_rate"] for row in rows]
    values = [row["validation_accuracy"] for row in rows]
    axes.semilogx(rates, values, "o-", color=ORANGE, label="validation, each rate")
    chosen = [found["learning_rate"]]
    for row in found["chosen"]:
        accuracy = row["test_accuracy"]
        _points(axes, chosen, [accuracy], color=BLUE, label="test, the chosen rate")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.set(xlabel="Learning rate", ylabel="Accuracy")
    _in_percent(axes.yaxis)
    axes.legend(frameon=False)
    return axes


def _draw_examples(axes, found, name):
    _lines(axes, found, name, lambda row: row["examples"])
    sizes = sorted({row["examples"] for row in found["rows"]})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("Training images")


def _draw_compute(axes, found, name):
    from matplotlib.ticker import LogLocator

    unit, unit_name = unit_of([row["flops"] for row in found["rows"]])
    _lines(axes, found, name, lambda row: row["flops"] / unit)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.set_xlabel(f"Compute of training, {unit_name}")


def _draw_positions(axes, found, name):
    labels = [row["positions"] for row in found["rows"]]
    _points(axes, range(len(labels)), [row[name] for row in found["rows"]], color=BLUE)
    axes.set_xticks(range(len(labels)), labels, rotation=30 if len(labels) > 4 else 0)
    axes.margins(x=0.1)


_PANELS = {
    "examples": _draw_examples,
    "compute": _draw_compute,
    "positions": _draw_positions,
}


def _draw_tasks(figure, found):
    axes = figure.subplots()
    groups = list(dict.fromkeys(row["group"] for row in found["rows"]))
    places = range(len(found["rows"]))
    axes.barh(
        places,
        [row["test_accuracy"]["mean"] for row in found["rows"]],
        xerr=[row["test_accuracy"]["deviation"] or 0 for row in found["rows"]],
        color=[_COLOURS[groups.index(row["group"])] for row in found["rows"]],
    )
    axes.set_yticks(places, [row["task"] for row in found["rows"]])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="Test accuracy")
    _in_percent(axes.xaxis)
    means = (f"{group} {mean:.1%}" for group, mean in found["means"].items())
    axes.set_title(", ".join(means), fontsize=10)
    return axes


def _lines(axes, found, name, across):
    """A line for each model, on a logarithmic axis."""
    models = list(dict.fromkeys(row["model"] for row in found["rows"]))
    for place, model in enumerate(models):
        rows = [row for row in found["rows"] if row["model"] == model]
        rows.sort(key=across)
        colour = _COLOURS[place % len(_COLOURS)]
        accuracies = [row[name] for row in rows]
        _points(
            axes, [across(row) for row in rows], accuracies, color=colour, label=model
        )
        means = [accuracy["mean"] for accuracy in accuracies]
        axes.plot([across(row) for row in rows], means, color=colour, linewidth=1)
    axes.set_xscale("log")
    axes.legend(frameon=False)


def _points(axes, across, accuracies, **style):
    axes.errorbar(
        across,
        [accuracy["mean"] for accuracy in accuracies],
        yerr=[accuracy["deviation"] or 0 for accuracy in accuracies],
        fmt="o",
        capsize=3,
        **style,
    )


def _in_percent(axis):
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(1))
