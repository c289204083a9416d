"""Accuracy against the compute of training (the paper's figure 5)."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from train.common.errors import RunError
from train.models.keras_files import load_model
from train.recipes import Recipe
from train.reports.compute import multiply_adds
from train.run.building import config_of
from train.study import accuracies
from train.study.options import Options
from train.study.runs import Point, Runs, measured_from_scratch, model_name, models_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "accuracy against the compute of training"
# A step is one pass forward and as much as two backward, to inputs and weights.
_PASSES = 3
_PREFIXES = {10**18: "exa", 10**15: "peta", 10**12: "tera", 10**9: "giga"}


def measure(recipe: Recipe, options: Options, settings: dict) -> tuple[Runs, dict]:
    """Makes one run per model and number of steps, and counts their operations."""
    points = points_of(recipe, options)
    runs, results = measured_from_scratch(points, recipe, options, settings)
    for row in results["rows"]:
        model = load_model(runs.path / row["runs"][0] / "model.keras")
        row["multiply_adds"] = multiply_adds(model)
        row["flops"] = training_flops(row["multiply_adds"], row["images"])
    return runs, results


def points_of(recipe: Recipe, options: Options) -> list[Point]:
    """Returns the points; without --models those of the recipe's at three widths."""
    counts = sorted({*map(int, options.step_counts)}) or [recipe.steps]
    if recipe.epochs is not None:
        raise RunError(
            "--study=compute compares numbers of steps, which "
            f"--epochs={recipe.epochs:g} leaves to the data: pass --step_counts or "
            "--steps."
        )
    models = models_of(recipe, options) if options.models else _widths(recipe)
    return [
        Point(
            f"{name}-{count}-steps",
            of_model.override(steps=count),
            {"model": name, "steps": count},
        )
        for name, of_model in models
        for count in counts
    ]


def _widths(recipe):
    """Yields the recipe with its model at a quarter, a half and all of its width."""
    config = config_of(recipe)
    # The number of heads stays, and half a head is whole for embeddings of two axes.
    step = 2 * config.num_heads
    widths = sorted({max(config.hidden_size // part // step, 1) for part in (4, 2, 1)})
    dropout = {"dropout_rate": recipe.dropout}
    for width in (step * count for count in widths[:-1]):
        mlp_dim = max(config.mlp_dim * width // config.hidden_size, 1)
        small = dataclasses.replace(config, hidden_size=width, mlp_dim=mlp_dim)
        yield f"width-{width}", recipe.override(model=small, **dropout)
    yield model_name(recipe), recipe


def training_flops(multiply_adds_of_image: int, images: int) -> float:
    """Returns the operations of a training; images count each time they are seen."""
    return 2 * _PASSES * multiply_adds_of_image * images


def unit_of(flops: Sequence[float]) -> tuple[int, str]:
    """Returns the size and the name of the unit for some numbers of operations."""
    most = max(flops)
    unit = next((unit for unit in _PREFIXES if unit <= most), min(_PREFIXES))
    return unit, f"{_PREFIXES[unit]}FLOPs"


def tables(results: dict) -> Iterator[str]:
    """Yields the accuracies by model and number of operations."""
    unit, name = unit_of([row["flops"] for row in results["rows"]])
    yield accuracies.table(
        results,
        ("Model", "Multiply-adds per image", "Images in training", name),
        lambda row: (
            row["model"],
            f"{row['multiply_adds']:,}",
            f"{row['images']:,}",
            f"{row['flops'] / unit:.4g}",
        ),
    )
    yield (
        f"{name}: two operations per multiply-add of products and convolutions, for "
        "the forward pass and twice that for the backward pass, for all images."
    )


def draw(figure: "Figure", results: dict) -> None:
    """Plots the accuracies over the number of operations, a line per model."""
    from matplotlib.ticker import LogLocator

    unit, unit_name = unit_of([row["flops"] for row in results["rows"]])

    for axes, name in accuracies.panels(figure, results):
        accuracies.lines(axes, results, name, lambda row: row["flops"] / unit)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(f"Compute of training, {unit_name}")
