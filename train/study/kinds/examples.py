"""Accuracy against the number of training images (the paper's figure 4)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.common.errors import RunError
from train.recipes import Recipe
from train.run import training
from train.study import accuracies
from train.study.options import Options
from train.study.runs import Point, Runs, measured_from_scratch, models_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "accuracy against the number of training images"


def measure(recipe: Recipe, options: Options, settings: dict) -> tuple[Runs, dict]:
    """Makes one run per model and subset."""
    # Every run prints what is logged here.
    source = training.load_source(recipe, settings["data_options"], lambda line: None)
    points = points_of(recipe, options, source.train.num_examples)
    return measured_from_scratch(points, recipe, options, settings)


def points_of(recipe: Recipe, options: Options, total: int) -> list[Point]:
    """Returns the points, for a training set of `total` images."""
    counts = sorted({_subset_size(text, total) for text in options.subsets})
    return [
        Point(
            f"{name}-{count}-images",
            of_model.override(train_examples=count),
            {"model": name, "examples": count},
        )
        for name, of_model in models_of(recipe, options)
        for count in counts
    ]


def _subset_size(text, total):
    is_share = text.endswith("%")
    size = round(float(text[:-1]) / 100 * total) if is_share else int(text)
    if not 1 <= size <= total:
        raise RunError(
            f"--subsets has {text!r}, which is no part of the {total:,} training "
            "images: give percents such as 10%, or numbers of images up to that."
        )
    return size


def tables(results: dict) -> Iterator[str]:
    """Yields the accuracies by model and number of images."""
    yield accuracies.table(
        results,
        ("Model", "Training images"),
        lambda row: (row["model"], f"{row['examples']:,}"),
    )


def draw(figure: "Figure", results: dict) -> None:
    """Plots the accuracies over the number of images, a line per model."""
    for axes, name in accuracies.panels(figure, results):
        accuracies.lines(axes, results, name, lambda row: row["examples"])
        sizes = sorted({row["examples"] for row in results["rows"]})
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xlabel("Training images")
