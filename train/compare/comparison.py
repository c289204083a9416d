"""Finished runs of one data set, side by side."""

import itertools
import json
import pathlib
import time

import numpy as np

import keras_vit
from train.common.errors import RunError
from train.common.files import make_folder, whole_file
from train.data.sources.kinds import is_same
from train.engine.loop import explaining_full_memory
from train.inference import given_model
from train.inference.run_directory import RunDirectory
from train.reports import markdown
from train.reports.compute import multiply_adds
from train.reports.markdown import result_text as figure_text
from train.reports.report import TABLE_ROWS

_ROUNDS = 5
_ROUND_SECONDS = 0.5
_NEEDED = (
    "config",
    "per_class",
    "parameters",
    "test_accuracy",
    "test_accuracy_high",
    "test_accuracy_low",
    "test_examples",
    "test_macro_f1",
)


def compare(runs, *, output, measure=False, batch_size=32, command=""):
    """Compares finished runs that were tested on the same images.

    Args:
        runs: sequence of paths of run directories, two or more.
        output: path of the page to write, a `.md`; the numbers go into a `.json` of
            the same name beside it.
        measure: bool, whether to measure how many images a second the models answer
            now, one after another in turns.
        batch_size: int, of that.
        command: str, what was typed, for the page.

    Returns:
        Dict as in the `.json`: `dataset`, `test_examples`, `command`,
        `measured_batch_size` (None unless measured), `classes`, a list of dicts with
        `name` and `examples`, and `runs`, a list of dicts with `run`, `model`,
        `weights`, `image_size`, `test_accuracy` with its 95% interval
        `test_accuracy_low` and `test_accuracy_high`, `test_macro_f1`, `per_class_f1`
        (a list, None of classes without test images), `parameters`, `multiply_adds` of
        one image at the run's size (None where they cannot be counted),
        `training_images_per_second` and `training_seconds` (None where the run does
        not tell), `is_wall_time` (False where these two leave out what was between the
        steps, as in reports of earlier versions), and `measured_images_per_second`
        (None unless measured).

    Raises:
        RunError: a run is not finished or damaged, the runs are of different data or
            tested on different images, or the files cannot be written.

    Example:

    >>> results = compare(["runs/vit", "runs/resnet"], output="compare.md",
    ...                   measure=True)  # doctest: +SKIP
    """
    output = pathlib.Path(output).expanduser()
    if output.suffix != ".md":
        raise RunError(
            f"Cannot write {output}: pass an --output that ends in .md, the numbers go "
            "into a .json beside it."
        )
    reports = {name: _read(path) for name, path in _names(runs).items()}
    _check_same_test(reports)
    rows, models = [], {}
    for name, path in _names(runs).items():
        model = given_model.load(str(path)).model
        rows.append(_row(name, reports[name], model))
        if measure:
            models[name] = model
    if measure:
        rates = images_per_second(models, batch_size)
        for row in rows:
            row["measured_images_per_second"] = rates[row["run"]]
    first = next(iter(reports.values()))
    found = {
        "dataset": first["config"]["dataset"],
        "test_examples": first["test_examples"],
        "command": command,
        "measured_batch_size": batch_size if measure else None,
        "classes": _classes(first),
        "runs": rows,
    }
    make_folder(output.parent, flag="--output")
    for path, text in (
        (output.with_suffix(".json"), json.dumps(found, indent=2, ensure_ascii=False)),
        (output, _page(found)),
    ):
        with whole_file(path) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")
    return found


def images_per_second(models, batch_size):
    """Returns how many images a second models answer, measured in one go.

    The models take turns, so that what else the machine does meets all of them; each
    is compiled before, and the median of the batches counts.

    Args:
        models: dict of name to `keras.Model` of images.
        batch_size: int.

    Returns:
        Dict of name to float.

    Raises:
        RunError: the memory is full.

    Example:

    >>> images = keras_vit.ViT_Ti16(weights=None, image_size=32, classes=3)
    >>> images_per_second({"ViT": images}, batch_size=2)["ViT"] > 0
    True
    """
    times = {name: [] for name in models}
    with explaining_full_memory("lower --batch_size."):
        jobs = {}
        for name, model in models.items():
            images = np.zeros((batch_size, *model.input_shape[1:]), "float32")
            jobs[name] = keras_vit.Predictor(model, batch_size), images
            jobs[name][0](images)
        for _ in range(_ROUNDS):
            for name, (predictor, images) in jobs.items():
                until = time.perf_counter() + _ROUND_SECONDS
                started = 0.0
                while started < until:
                    started = time.perf_counter()
                    predictor(images)
                    times[name].append(time.perf_counter() - started)
    return {name: batch_size / float(np.median(took)) for name, took in times.items()}


def _names(runs):
    """The runs by the shortest names that tell them apart."""
    paths = [pathlib.Path(run).expanduser() for run in runs]
    resolved = [path.resolve() for path in paths]
    for path, place in zip(paths, resolved, strict=True):
        if resolved.count(place) > 1:
            raise RunError(f"The run {path} is given twice: give each run once.")
    short = [place.name for place in resolved]
    if len(set(short)) < len(short):
        short = [str(path) for path in paths]
    return dict(zip(short, paths, strict=True))


def _read(path):
    """What a finished run's `report.json` says."""
    run = RunDirectory(path)
    run.require(run.results, run.model)
    try:
        report = json.loads(run.results.read_text(encoding="utf-8"))
        missing = [name for name in _NEEDED if name not in report]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        report["config"]["dataset"], report["config"]["model"]
        [(row["name"], row["examples"], row["f1"]) for row in report["per_class"]]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise RunError(
            f"{run.results} is not the report of a finished run ({error}): give the "
            "command again that began the run, or check the path."
        ) from error
    return report


def _check_same_test(reports):
    """Refuses runs whose numbers cannot be compared."""
    (first, expected), *others = reports.items()
    for name, report in others:
        pair = f"The runs {first} and {name} cannot be compared: "
        ours, theirs = (each["config"]["dataset"] for each in (expected, report))
        if not is_same(ours, theirs):
            raise RunError(
                f"{pair}their data sets are {ours} and {theirs}. Give runs of one data "
                "set."
            )
        for number, (one, other) in enumerate(
            itertools.zip_longest(_classes(expected), _classes(report)), start=1
        ):
            if one != other:
                raise RunError(
                    f"{pair}class {number} of their tests is {_described(one)} and "
                    f"{_described(other)}. Give runs that were tested on the same "
                    "images."
                )


def _classes(report):
    return [
        {key: row[key] for key in ("name", "examples")} for row in report["per_class"]
    ]


def _described(one):
    return "none" if one is None else "{name!r} with {examples:,} images".format(**one)


def _row(name, report, model):
    config = report["config"]
    try:
        arithmetic = multiply_adds(model)
    except ValueError:
        # Somebody's own layers do not keep the rest from being compared.
        arithmetic = None
    return {
        "run": name,
        "model": config["model"] if isinstance(config["model"], str) else model.name,
        "weights": config.get("weights"),
        "image_size": list(model.input_shape[1:3]),
        **{
            key: report[key]
            for key in _NEEDED
            if key.startswith(("test_accuracy", "test_macro"))
        },
        "per_class_f1": [
            row["f1"] if row["examples"] else None for row in report["per_class"]
        ],
        "parameters": report["parameters"],
        "multiply_adds": arithmetic,
        "training_images_per_second": report.get("images_per_second"),
        "training_seconds": report.get("seconds"),
        # Reports name the loss since their times are wall times.
        "is_wall_time": "loss_function" in report,
        "measured_images_per_second": None,
    }


def _page(found):
    rows = found["runs"]
    names = [markdown.escape(row["run"]) for row in rows]
    tested = f"{found['test_examples']:,} test images"
    parts = [
        f"# {markdown.escape(found['dataset'])}: {len(rows)} runs compared",
        f"Each tested on the same {tested}. In brackets are 95% confidence intervals "
        "of the single runs.",
        markdown.table(("", *names), _results(found)),
        "Multiply-adds are those of products and convolutions for one image at the "
        "run's size; parameters, those of the whole model. " + _about_speed(found),
        "## F1 of each class",
        *_class_section(found, names),
    ]
    if found["command"]:
        parts.append(markdown.code(found["command"]))
    return "\n\n".join(parts)


def _class_section(found, names):
    rows = [
        (one, [row["per_class_f1"][place] for row in found["runs"]])
        for place, one in enumerate(found["classes"])
        if one["examples"]
    ]
    rows.sort(key=lambda row: min(row[1]) - max(row[1]))
    yield markdown.table(
        ("Class", *names, "Test images"),
        [
            (one["name"], *(_text("macro_f1", f1) for f1 in values), one["examples"])
            for one, values in rows[:TABLE_ROWS]
        ],
    )
    shown = f"{TABLE_ROWS} of {len(rows):,} classes; the .json has all. "
    yield (shown if len(rows) > TABLE_ROWS else "") + "Greatest differences first."


def _about_speed(found):
    text = "Training seconds and images a second are by wall time, from the first "
    text += "batch to the end of the last step, on the machine where the run was made."
    timed = [row for row in found["runs"] if row["training_seconds"] is not None]
    if older := [row["run"] for row in timed if not row["is_wall_time"]]:
        text += (
            f" Not so those of {', '.join(map(markdown.escape, older))}, whose "
            "reports are of an earlier version: they are the seconds of the steps "
            "alone, without validations and checkpoints, and the steps' median speed."
        )
    if found["measured_batch_size"] is not None:
        text += (
            " Answered images a second were measured now, the models in turns, in "
            f"batches of {found['measured_batch_size']}."
        )
    return text


def _results(found):
    rows = found["runs"]
    yield "Model", *(row["model"] for row in rows)
    yield "Weights", *(row["weights"] or "random" for row in rows)
    yield "Image size", *("x".join(map(str, row["image_size"])) for row in rows)
    yield (
        "Accuracy",
        *(
            "{} ({} to {})".format(
                *(
                    _text(key, row[key])
                    for key in (
                        "test_accuracy",
                        "test_accuracy_low",
                        "test_accuracy_high",
                    )
                )
            )
            for row in rows
        ),
    )
    for label, key in (
        ("Macro F1", "test_macro_f1"),
        ("Parameters", "parameters"),
        ("Multiply-adds", "multiply_adds"),
        ("Training seconds", "training_seconds"),
        ("Training images/s", "training_images_per_second"),
        ("Answered images/s", "measured_images_per_second"),
    ):
        if key != "measured_images_per_second" or found["measured_batch_size"]:
            yield label, *(_text(f"_{key}", row[key]) for row in rows)


def _text(name, value):
    return "-" if value is None else figure_text(f"_{name}", value)
