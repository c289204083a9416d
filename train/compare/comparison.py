"""Comparison of finished runs on one data set, as a page and a file of numbers."""

import dataclasses
import itertools
import os
from collections.abc import Sequence

import keras_vit
from keras_vit_start import typed
from train.common.errors import RunError, explaining_full_memory
from train.common.files import make_folder, write_json, write_text
from train.compare import answers, page, photos
from train.compare.differences import pair_of
from train.data.registry import is_same
from train.models import loaded_model
from train.models.run_directory import RunDirectory
from train.reports.compute import multiply_adds
from train.scoring import predicting
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import counted

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
    data_dir: str | os.PathLike | None = None,
    command: str = "",
) -> dict:
    """Compares finished runs that were tested on the same images.

    The arguments are those of `python -m train.compare`, with `runs` the paths of the
    run directories and `command` the command line, for the page.

    Returns:
        Dict as in the `.json`: `dataset`, `test_examples`, `command` and
        `measured_batch_size`; `classes`, dicts with `name` and `examples`; `runs`,
        dicts of each run's settings and results, None where something was not
        measured or cannot be counted; and `pairs`, dicts of the first run and each
        other, with the fields of a `train.scoring.paired.Difference` and the images
        on which the answers differ. `why_no_pairs` is None, or why there are none.

    Raises:
        RunError: a run is not finished or damaged, the runs are of different data or
            tested on different images, or the files cannot be written.

    Example:
        >>> results = compare(["runs/vit", "runs/resnet"], output="compare.html",
        ...                   measure=True)  # doctest: +SKIP
    """
    output = expand_home(output)
    if output.suffix not in (".html", ".md"):
        raise RunError(
            f"Cannot write {output}: pass an --output that ends in .html; the same "
            "goes into a .md beside it, and the numbers into a .json."
        )
    paths = _names(runs)
    reports = {
        name: RunDirectory(path).read_results(*_MEASURED)
        for name, path in paths.items()
    }
    _check_same_test(reports, paths)
    models, rows, predictors = {}, [], {}
    for name, path in paths.items():
        models[name] = loaded = loaded_model.load(str(path))
        rows.append(_row(name, reports[name], loaded.model))
        if measure:
            predictors[name] = keras_vit.Predictor(
                loaded.model, batch_size, engine="keras"
            )
    with explaining_full_memory("lower --batch_size."):
        rates = predicting.images_per_second(
            predictors, rounds=_ROUNDS, seconds=_ROUND_SECONDS
        )
    for row in rows:
        row["measured_images_per_second"] = rates.get(row["run"])
    first, *others = paths
    answered, why_not = _answers(paths)
    pairs = [] if why_not else [pair_of(first, name, answered) for name in others]
    results = {
        "dataset": reports[first]["config"]["dataset"],
        "test_examples": reports[first]["test_examples"],
        "command": command,
        "measured_batch_size": batch_size if measure else None,
        "classes": _classes(reports[first]),
        "runs": rows,
        "pairs": [_pair(pair, answered) for pair in pairs],
        "why_no_pairs": why_not,
    }
    make_folder(output.parent, flag="--output")
    write_json(output.with_suffix(".json"), results)
    differing = [
        photos.groups(pair, answered, models[first], data_dir) for pair in pairs
    ]
    contents = page.contents(results, differing, file=output.stem)
    write_text(output.with_suffix(".md"), page.markdown_of(contents))
    write_text(output.with_suffix(".html"), page.html_of(contents))
    return results


def _names(runs):
    """Returns the runs by the shortest ends of their paths that no other has."""
    paths = [expand_home(run) for run in runs]
    resolved = [path.resolve() for path in paths]
    for path, place in zip(paths, resolved, strict=True):
        if resolved.count(place) > 1:
            raise RunError(f"The run {path} is given twice: give each run once.")
    return {
        _short(place, resolved): path
        for path, place in zip(paths, resolved, strict=True)
    }


def _short(place, places):
    for count in range(1, len(place.parts) + 1):
        end = place.parts[-count:]
        if sum(other.parts[-count:] == end for other in places) == 1:
            break
    return "/".join(end)


def _check_same_test(reports, paths):
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
                    f"{_described(other)}. {_remedy(paths[first], paths[name])}"
                )


def _remedy(first, second):
    """Returns what to do with runs that were tested on other images."""
    for run, other in ((first, second), (second, first)):
        file = RunDirectory(other).corrections
        if file.exists():
            words = [str(run), f"--without={file}", f"--relabel={file}"]
            return (
                f"The data of {other} were corrected; what {run} reaches on these: "
                f"{typed('evaluate', words)}"
            )
    return "Give runs that were tested on the same images."


def _classes(report):
    return [
        {key: row[key] for key in ("name", "examples")} for row in report["per_class"]
    ]


def _described(row):
    if row is None:
        return "none"
    return f"{row['name']!r} with {counted(row['examples'], 'image')}"


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


def _answers(paths):
    """Returns the answers of the runs by their names, or why they are not compared."""
    try:
        answered_by = {name: answers.read(path) for name, path in paths.items()}
    except RunError as error:
        return {}, str(error)
    (first, expected), *others = answered_by.items()
    for name, one in others:
        if different := sorted(expected.keys() ^ one.keys()):
            return {}, (
                f"{len(different):,} test images of {first} and {name} have other "
                f"names, such as {different[0][0]}."
            )
    return answered_by, None


def _pair(pair, answered):
    """Returns a pair of runs as in the `.json`."""
    differing = pair.first_only + pair.second_only + pair.both_wrong
    names = pair.first, pair.second
    return {
        "first": pair.first,
        "second": pair.second,
        **dataclasses.asdict(pair.difference),
        "both_wrong_differently": len(pair.both_wrong),
        "images": [
            {
                "file": image[0],
                "truth": image[1],
                "answers": {name: answered[name][image].name for name in names},
            }
            for image in differing
        ],
    }
