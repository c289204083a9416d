"""The paper's figures: arrays in, `matplotlib.figure.Figure` out."""

from keras_vit.explain.figures.alphabets import fit_alphabets
from keras_vit.explain.figures.figure_7 import (
    draw_attention_distance,
    draw_figure_7,
    draw_filters,
    draw_position_similarity,
)
from keras_vit.explain.figures.overlays import (
    draw_attention,
    draw_features,
    draw_heads,
    draw_layers,
    draw_overlay,
)

__all__ = [
    "draw_attention", "draw_attention_distance", "draw_features", "draw_figure_7",
    "draw_filters", "draw_heads", "draw_layers", "draw_overlay",
    "draw_position_similarity", "fit_alphabets",
]  # fmt: skip
