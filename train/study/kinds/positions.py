"""Position embeddings (the paper's table D.4)."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.recipes import Recipe
from train.reports.figures import BLUE
from train.run.building import config_of
from train.study import accuracies
from train.study.options import Options
from train.study.runs import Point, Runs, measured_from_scratch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "position embeddings"


def measure(recipe: Recipe, options: Options, settings: dict) -> tuple[Runs, dict]:
    """Makes one run per position embedding."""
    return measured_from_scratch(points_of(recipe, options), recipe, options, settings)


def points_of(recipe: Recipe, options: Options) -> list[Point]:
    """Returns the points, one per position embedding."""
    config = config_of(recipe)
    points = []
    for name in dict.fromkeys(options.positions):
        kind, _, place = name.partition("-")
        model = dataclasses.replace(
            config,
            position_embedding="learned" if kind == "1d" else kind,
            position_embedding_at=place.replace("-", "_") or "stem",
        )
        changed = recipe.override(model=model, dropout_rate=recipe.dropout)
        points.append(Point(name, changed, {"positions": name}))
    return points


def tables(results: dict) -> Iterator[str]:
    """Yields the accuracies by position embedding."""
    yield accuracies.table(
        results, ("Position embedding",), lambda row: (row["positions"],)
    )


def draw(figure: "Figure", results: dict) -> None:
    """Plots the accuracies by position embedding."""
    labels = [row["positions"] for row in results["rows"]]
    for axes, name in accuracies.panels(figure, results):
        values = [row[name] for row in results["rows"]]
        accuracies.points(axes, range(len(labels)), values, color=BLUE)
        rotation = 30 if len(labels) > 4 else 0
        axes.set_xticks(range(len(labels)), labels, rotation=rotation)
        axes.margins(x=0.1)
