"""Comparison of finished runs on one data set, as a page and a file of numbers."""

import itertools
import os
import pathlib
from collections.abc import Sequence

import keras_vit
from train.common import markdown
from train.common.errors import RunError, explaining_full_memory
from train.common.files import make_folder, write_json, write_text
from train.data.registry import is_same
from train.models import loaded_model
from train.models.run_directory import RunDirectory
from train.reports.compute import multiply_adds
from train.scoring import predicting
from zoo.common.regular_files import expand_home

_TEMPLATE = pathlib.Path(__file__).with_name("page.md.jinja")
_ROUNDS = 5
_ROUND_SECONDS = 0.5
_MEASURED = (
    "test_accuracy", "test_accuracy_high", "test_accuracy_low", "test_macro_f1",
)  # fmt: skip


def compare(
    runs: Sequence[str | os.PathLike],
    *,
    output: str | os.PathLike,
    measure: bool = False,
    batch_size: int = 32,
    command: str = "",
) -> dict:
    """Compares finished runs that were tested on the same images.

    The arguments are those of `python -m train.compare`, with `runs` the paths of the
    run directories and `command` the command line, for the page.

    Returns:
        Dict as in the `.json`: `dataset`, `test_examples`, `command` and
        `measured_batch_size`; `classes`, dicts with `name` and `examples`; and `runs`,
        dicts of each run's settings and results, None where something was not
        measured or cannot be counted.

    Raises:
        RunError: a run is not finished or damaged, the runs are of different data or
            tested on different images, or the files cannot be written.

    Example:
        >>> results = compare(["runs/vit", "runs/resnet"], output="compare.md",
        ...                   measure=True)  # doctest: +SKIP
    """
    output = expand_home(output)
    if output.suffix != ".md":
        raise RunError(
            f"Cannot write {output}: pass an --output that ends in .md, the numbers go "
            "into a .json beside it."
        )
    paths = _names(runs)
    reports = {
        name: RunDirectory(path).read_results(*_MEASURED)
        for name, path in paths.items()
    }
    _check_same_test(reports)
    rows, predictors = [], {}
    for name, path in paths.items():
        model = loaded_model.load(str(path)).model
        rows.append(_row(name, reports[name], model))
        if measure:
            predictors[name] = keras_vit.Predictor(model, batch_size, engine="keras")
    with explaining_full_memory("lower --batch_size."):
        rates = predicting.images_per_second(
            predictors, rounds=_ROUNDS, seconds=_ROUND_SECONDS
        )
    for row in rows:
        row["measured_images_per_second"] = rates.get(row["run"])
    first = next(iter(reports.values()))
    results = {
        "dataset": first["config"]["dataset"],
        "test_examples": first["test_examples"],
        "command": command,
        "measured_batch_size": batch_size if measure else None,
        "classes": _classes(first),
        "runs": rows,
    }
    make_folder(output.parent, flag="--output")
    write_json(output.with_suffix(".json"), results)
    write_text(output, _page(results))
    return results


def _names(runs):
    """Returns the runs by their folders' names, or by their paths if not unique."""
    paths = [expand_home(run) for run in runs]
    resolved = [path.resolve() for path in paths]
    for path, place in zip(paths, resolved, strict=True):
        if resolved.count(place) > 1:
            raise RunError(f"The run {path} is given twice: give each run once.")
    short = [place.name for place in resolved]
    if len(set(short)) < len(short):
        short = [str(path) for path in paths]
    return dict(zip(short, paths, strict=True))


def _check_same_test(reports):
    """Raises `RunError` unless all runs have the same data set and test images."""
    (first, expected), *others = reports.items()
    for name, report in others:
        pair = f"The runs {first} and {name} cannot be compared: "
        ours, theirs = (each["config"]["dataset"] for each in (expected, report))
        if not is_same(ours, theirs):
            raise RunError(
                f"{pair}their data sets are {ours} and {theirs}. Give runs of one data "
                "set."
            )
        both = itertools.zip_longest(_classes(expected), _classes(report))
        for number, (own, other) in enumerate(both, start=1):
            if own != other:
                raise RunError(
                    f"{pair}class {number} of their tests is {_described(own)} and "
                    f"{_described(other)}. Give runs that were tested on the same "
                    "images."
                )


def _classes(report):
    return [
        {key: row[key] for key in ("name", "examples")} for row in report["per_class"]
    ]


def _described(row):
    return "none" if row is None else "{name!r} with {examples:,} images".format(**row)


def _row(name, report, model):
    config = report["config"]
    try:
        arithmetic = multiply_adds(model)
    except ValueError:
        # A user's own layer is not counted; the rest is compared all the same.
        arithmetic = None
    return {
        "run": name,
        "model": config["model"] if isinstance(config["model"], str) else model.name,
        "weights": config.get("weights"),
        "image_size": list(model.input_shape[1:3]),
        **{key: report[key] for key in _MEASURED},
        "per_class_f1": [
            row["f1"] if row["examples"] else None for row in report["per_class"]
        ],
        "parameters": report["parameters"],
        "multiply_adds": arithmetic,
        "training_images_per_second": report.get("images_per_second"),
        "training_seconds": report.get("seconds"),
    }


def _page(results):
    rows = results["runs"]
    names = [row["run"] for row in rows]
    classes = [
        (each["name"], [row["per_class_f1"][place] for row in rows], each["examples"])
        for place, each in enumerate(results["classes"])
        if each["examples"]
    ]
    classes.sort(key=lambda row: min(row[1]) - max(row[1]))
    return markdown.render(
        _TEMPLATE,
        **results,
        result_table=markdown.table(("", *names), _results(results)),
        class_table=markdown.table(
            ("Class", *names, "Test images"),
            [
                (name, *(_text("test_macro_f1", f1) for f1 in values), examples)
                for name, values, examples in classes[: markdown.TABLE_ROWS]
            ],
        ),
        shown_classes=markdown.TABLE_ROWS,
        tested_classes=len(classes),
    )


def _results(results):
    rows = results["runs"]
    yield "Model", *(row["model"] for row in rows)
    yield "Weights", *(row["weights"] or "random" for row in rows)
    yield "Image size", *("x".join(map(str, row["image_size"])) for row in rows)
    keys = [f"test_accuracy{end}" for end in ("", "_low", "_high")]
    accuracies = ([_text(key, row[key]) for key in keys] for row in rows)
    yield "Accuracy", *("{} ({} to {})".format(*texts) for texts in accuracies)
    for label, key in (
        ("Macro F1", "test_macro_f1"),
        ("Parameters", "parameters"),
        ("Multiply-adds", "multiply_adds"),
        ("Training seconds", "training_seconds"),
        ("Training images/s", "training_images_per_second"),
        ("Images/s now", "measured_images_per_second"),
    ):
        if key != "measured_images_per_second" or results["measured_batch_size"]:
            yield label, *(_text(key, row[key]) for row in rows)


def _text(name, value):
    return "-" if value is None else markdown.result_text(name, value)
