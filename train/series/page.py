"""What runs with several seeds say: sentences, a table, and the page of both."""

import pathlib

from train.common import markdown
from train.common.markdown import result_text
from train.reports import contents as reports
from train.reports import html
from train.reports.contents import Section, Table
from train.reports.wording import points
from train.series import validation
from zoo.common.safe_text import printable

_TEMPLATE = pathlib.Path(reports.__file__).parent / "templates" / "run.md.jinja"
# Names of the differences between the runs.
_OF_TRAININGS = (
    "the seed alone: the order of the photos, their crops, dropout and new weights"
)
_OF_SEARCHES = (
    "the seed and the clock alone: the order of the photos, their crops and dropout in "
    "training, and what fits the minutes"
)
_COLUMNS = {
    validation.BALANCED: "Held-out balanced accuracy",
    validation.PLAIN: "Held-out accuracy",
    validation.LOSS: "Held-out loss",
    "steps": "Steps",
    "seconds": "Seconds",
}


def sentences(results: dict) -> list[str]:
    """Returns what the results of `train.series.seeds.run` mean, in sentences."""
    leading = f"test_{results['leading_accuracy']}"
    names = dict.fromkeys((leading, "test_accuracy"))
    told = [_mean(name, results[name]) for name in names]
    if results[leading]["deviation"] == 0:
        told.append(
            "All runs have the same accuracy: the seeds show no difference. What is "
            f"left is chance of the {results['test_examples']:,} test photos: the "
            "report of each run has the interval of its test."
        )
    elif results[leading]["deviation"] is not None:
        about = _OF_SEARCHES if "minutes" in results["config"] else _OF_TRAININGS
        told.append(
            f"The interval is about {about}. Other photos to train on, and others than "
            f"these {results['test_examples']:,} to test on, are not in it: the report "
            "of each run has the interval of its test."
        )
    counts = sorted({row["test_examples"] for row in results["runs"]})
    if len(counts) > 1:
        told.append(
            f"The runs were tested on {counts[0]:,} to {counts[-1]:,} photos, so their "
            "accuracies are not of the same ones: pass another --run_dir for runs that "
            "are."
        )
    return [*told, _choice(results)]


def _mean(name, measured):
    text = f"{name.replace('_', ' ').capitalize()} {measured['mean']:.2%}"
    count = len(measured["values"])
    if count == 1:
        return f"{text}, of one run, so how much a seed changes is not known."
    if measured["deviation"] == 0:
        return f"{text} with each of {count} seeds."
    return (
        f"{text}, the mean of {count} seeds (95% interval {measured['low']:.2%} to "
        f"{measured['high']:.2%}, by Student's t); their standard deviation is "
        f"{points(measured['deviation'])}."
    )


def _choice(results):
    use = results["use"]
    if not results["is_chosen"]:
        return (
            f"No photos were held out, by which a run could be chosen: use any, such "
            f"as {use}."
        )
    row = next(row for row in results["runs"] if row["run"] == use)
    name = validation.leading_of(row)
    equal = [one for one in results["runs"] if one[name] == row[name]]
    best = "best"
    if len(equal) > 1:
        alike = len({one[validation.LOSS] for one in equal}) == 1
        best = "as well as any other" if alike else "best by log loss"
    how = f"{row[name]:.2%} of them"
    if name == validation.BALANCED:
        how = f"with a balanced accuracy of {row[name]:.2%}"
    return (
        f"Use {use}, which answers held-out photos {best}, {how}. The test photos "
        "chose nothing."
    )


def summary(results: dict) -> str:
    """Returns what the command prints at its end."""
    table = _table(results)
    rows = [table.header, *table.rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    paths = (f"{name:5} {results[name]}" for name in ("page", "model"))
    return printable("\n".join([*lines, *sentences(results), *paths]), lines=True)


def contents(results: dict) -> dict:
    """Returns the contents of the page, for the template of reports."""
    leading = results["leading_accuracy"]
    mean = results[f"test_{leading}"]["mean"]
    named = (results["config"][key] for key in ("model", "dataset"))
    failed = Table(("Run", "What is wrong"), [*results["failed"].items()], words=2)
    return {
        "kicker": "Report of several seeds",
        "file": "report",
        "title": " on ".join(name for name in named if isinstance(name, str)),
        "accuracy": f"{mean:.2%} {leading.replace('_', ' ')}",
        "about": f"The mean of {len(results['runs'])} runs that differ in their seed.",
        "notes": (),
        "command": results["command"] or None,
        "sections": [
            Section("Verdict", tuple(sentences(results))),
            Section(
                "Runs",
                table=_table(results),
                notes=("Each is a run directory beside this page, with its report.",),
            ),
            *([Section("Not finished", table=failed)] if results["failed"] else []),
        ],
    }


def _table(results):
    leading = f"test_{results['leading_accuracy']}"
    columns = {
        **{
            name: name.replace("_", " ").capitalize()
            for name in dict.fromkeys((leading, "test_accuracy"))
        },
        **{
            key: title
            for key, title in _COLUMNS.items()
            if any(row[key] is not None for row in results["runs"])
        },
    }
    rows = [
        (row["run"], *(_text(key, row[key]) for key in columns))
        for row in results["runs"]
    ]
    return Table(("Run", *columns.values()), rows, is_sortable=True)


def _text(key, value):
    if value is None:
        return "-"
    return f"{value:.2%}" if key.endswith("accuracy") else result_text(key, value)


def markdown_of(contents: dict) -> str:
    """Returns the page as Markdown."""
    return markdown.render(_TEMPLATE, contents=contents)


def html_of(contents: dict) -> str:
    """Returns the page as one HTML file."""
    return html.render("train.reports", "run", contents=contents)
