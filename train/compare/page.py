"""The page of a comparison of runs, as one HTML file and as Markdown."""

import pathlib

from train.common import markdown
from train.common.markdown import TABLE_ROWS, result_text
from train.data.registry import short_name
from train.reports import contents as reports
from train.reports import html
from train.reports.contents import Section, Table
from train.reports.wording import points
from zoo.common.safe_text import counted

_TEMPLATE = pathlib.Path(reports.__file__).parent / "templates" / "run.md.jinja"
_SIGNIFICANT = 0.05
_COSTS = {
    "Parameters": "parameters",
    "Multiply-adds": "multiply_adds",
    "Training seconds": "training_seconds",
    "Training images/s": "training_images_per_second",
    "Images/s now": "measured_images_per_second",
}


def contents(results: dict, shown: list, file: str) -> dict:
    """Returns the contents of the page, for the template of reports.

    `results` are those of `train.compare.comparison.compare`, `shown` what
    `train.compare.photos.groups` returned for each of the pairs, `file` the stem of the
    page's name.
    """
    names = [row["run"] for row in results["runs"]]
    sections = [
        Section("Which is better", tuple(sentences(results))),
        _costs(results),
        *(
            _photos(pair, *photos)
            for pair, photos in zip(results["pairs"], shown, strict=True)
        ),
        _classes(results),
    ]
    return {
        "kicker": "Comparison of runs",
        "file": file,
        "title": f"{' and '.join(names)} on {short_name(results['dataset'])}",
        "accuracy": _headline(results),
        "about": f"Each was tested on the same {results['test_examples']:,} images.",
        "notes": (),
        "command": results["command"] or None,
        "sections": sections,
    }


def _headline(results):
    if len(results["pairs"]) == 1:
        (pair,) = results["pairs"]
        if not _differ(pair):
            return "No difference"
        return f"{points(pair['gain'], '+')} by {pair['second']}"
    best = max(row["test_accuracy"] for row in results["runs"])
    return f"{best:.2%} accuracy at best"


def sentences(results: dict) -> list[str]:
    """Returns how the first run compares with each other, in sentences."""
    if results["why_no_pairs"]:
        return [
            "Not compared image by image, so only the intervals of the single runs are "
            f"known: {results['why_no_pairs']}"
        ]
    told = [_sentence(pair) for pair in results["pairs"]]
    if len(told) > 1:
        told.append(
            "Of several comparisons some differ by chance: each test stands for itself."
        )
    return told


def _differ(pair):
    """Returns whether one of two runs is right where the other one is not."""
    return pair["first_only"] or pair["second_only"]


def _sentence(pair):
    first, second = pair["first"], pair["second"]
    if not _differ(pair):
        return (
            f"{second} beside {first}: both are right on the same images. The 95% "
            f"interval of their difference is {points(pair['low'], '+')} to "
            f"{points(pair['high'], '+')} of accuracy."
        )
    verdict = (
        "the difference may be chance"
        if pair["p"] >= _SIGNIFICANT
        else f"{second if pair['gain'] > 0 else first} is better"
    )
    own = counted(pair["second_only"], "image")
    return (
        f"{second} beside {first}: {points(pair['gain'], '+')} of accuracy (95% "
        f"interval {points(pair['low'], '+')} to {points(pair['high'], '+')}). Only "
        f"{second} is right on {own}, only {first} on "
        f"{pair['first_only']:,}. McNemar's test: p = {pair['p']:.2g}, so {verdict}."
    )


def _costs(results):
    rows = results["runs"]
    cells = [
        ("Model", *(row["model"] for row in rows)),
        ("Weights", *(row["weights"] or "random" for row in rows)),
        ("Image size", *("x".join(map(str, row["image_size"])) for row in rows)),
        ("Accuracy", *(f"{row['test_accuracy']:.2%}" for row in rows)),
        ("95% interval", *map(_interval, rows)),
        ("Macro F1", *(f"{row['test_macro_f1']:.2%}" for row in rows)),
    ]
    if pairs := results["pairs"]:
        cells.append(("Gain", "-", *(points(pair["gain"], "+") for pair in pairs)))
    for label, key in _COSTS.items():
        if key != "measured_images_per_second" or results["measured_batch_size"]:
            cells.append((label, *(_cost(key, row, rows[0]) for row in rows)))
    notes = [
        "The 95% intervals are those of the single runs. In brackets is how many times "
        "the first run's a number is. Multiply-adds are those of products and "
        "convolutions for one image at the run's size; parameters, those of the whole "
        "model. Training seconds and images per second are by wall time, from the "
        "first batch to the end of the last step, on the machine where the run was "
        "made."
    ]
    if results["measured_batch_size"]:
        notes.append(
            '"Images/s now" was measured for this page, the models in turns, in '
            f"batches of {results['measured_batch_size']}."
        )
    header = ("", *(row["run"] for row in rows))
    table = Table(header, cells)
    return Section("Cost beside gain", table=table, notes=tuple(notes))


def _interval(row):
    return "{:.2%} to {:.2%}".format(
        *(row[f"test_accuracy_{end}"] for end in ("low", "high"))
    )


def _cost(key, row, first):
    if row[key] is None:
        return "-"
    text = result_text(key, row[key])
    if row is first or not first[key]:
        return text
    return f"{text} ({row[key] / first[key]:.2g}x)"


def _photos(pair, groups, why_not):
    count = len(pair["images"])
    text = (
        f"{pair['first']} and {pair['second']} answer {count:,} images differently. "
        "The .json has all."
    )
    if not count:
        text = f"{pair['first']} and {pair['second']} give every image the same answer."
    title = f"Where {pair['first']} and {pair['second']} differ"
    notes = () if why_not is None else (why_not,)
    return Section(title, (text,), tuple(groups), notes=notes)


def _classes(results):
    names = [row["run"] for row in results["runs"]]
    classes = [
        (each["name"], [row["per_class_f1"][place] for row in results["runs"]], each)
        for place, each in enumerate(results["classes"])
        if each["examples"]
    ]
    classes.sort(key=lambda row: min(row[1]) - max(row[1]))
    rows = [
        (name, *(f"{f1:.2%}" for f1 in values), f"{each['examples']:,}")
        for name, values, each in classes[:TABLE_ROWS]
    ]
    notes = ["Greatest differences first."]
    if len(classes) > len(rows):
        notes.append(f"{len(rows)} of {len(classes):,} classes; the .json has all.")
    table = Table(("Class", *names, "Test images"), rows, is_sortable=True)
    return Section("F1 of each class", table=table, notes=tuple(notes))


def markdown_of(contents: dict) -> str:
    """Returns the page as Markdown, without photos."""
    return markdown.render(_TEMPLATE, contents=contents)


def html_of(contents: dict) -> str:
    """Returns the page as one HTML file."""
    return html.render("train.reports", "run", contents=contents)
