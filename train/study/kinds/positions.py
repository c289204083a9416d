"""Position embeddings (the paper's table D.4)."""

import dataclasses

from train.reports.figures import BLUE
from train.run.building import config_of
from train.study import accuracies
from train.study.runs import Point, check_known, measured_from_scratch

TITLE = "position embeddings"
FROM_SCRATCH = True
# By name: `position_embedding` and `position_embedding_at` of `keras_vit.ViTConfig`.
POSITIONS = {
    "none": ("none", "stem"),
    "1d": ("learned", "stem"),
    "2d": ("2d", "stem"),
    "relative": ("relative", "stem"),
    "1d-every-layer": ("learned", "every_layer"),
    "1d-every-layer-shared": ("learned", "every_layer_shared"),
    "2d-every-layer": ("2d", "every_layer"),
    "2d-every-layer-shared": ("2d", "every_layer_shared"),
}


def measure(recipe, options, settings):
    """Makes one run per position embedding."""
    return measured_from_scratch(points_of(recipe, options), recipe, options, settings)


def points_of(recipe, options):
    """Returns the points, one per position embedding."""
    config = config_of(recipe)
    check_known("position embedding", "--positions", options.positions, POSITIONS)
    points = []
    for name in dict.fromkeys(options.positions):
        kind, place = POSITIONS[name]
        model = dataclasses.replace(
            config, position_embedding=kind, position_embedding_at=place
        )
        changed = recipe.override(model=model, dropout_rate=recipe.dropout)
        points.append(Point(name, changed, {"positions": name}))
    return points


def tables(found):
    """Yields the accuracies by position embedding."""
    yield accuracies.table(
        found, ("Position embedding",), lambda row: (row["positions"],)
    )


def draw(figure, found):
    """Plots the accuracies by position embedding."""
    labels = [row["positions"] for row in found["rows"]]
    for axes, name in accuracies.panels(figure, found):
        values = [row[name] for row in found["rows"]]
        accuracies.points(axes, range(len(labels)), values, color=BLUE)
        rotation = 30 if len(labels) > 4 else 0
        axes.set_xticks(range(len(labels)), labels, rotation=rotation)
        axes.margins(x=0.1)
