"""Figures of a model's attention, for TensorBoard while it is trained."""

import keras
import numpy as np

from keras_vit import AddPositionEmbs, explain
from keras_vit.explain.one_pass import inspect
from keras_vit.layers import AddPositionEmbs2D
from keras_vit.structure import layers_of
from keras_vit.structure.image_sizes import grid_size
from train.common.errors import RunError
from train.data import pipeline
from train.data.sources.splits import Split
from train.recipes import Recipe


def choose(recipe: Recipe, model: keras.Model, split: Split) -> np.ndarray | None:
    """Returns images of a split to draw, in [-1, 1], or None if the recipe has none."""
    if not recipe.explained_images:
        return None
    try:
        grid_size(model)
    except ValueError as error:
        raise RunError(
            "--explained_images shows what a Vision Transformer attends to, and this "
            f"model has no attention: leave it out. ({error})"
        ) from error
    _, images, _ = pipeline.samples(
        split, recipe.explained_images, image_size=model.input_shape[1:3]
    )
    return images


def pictures(
    model: keras.Model, images: np.ndarray, step: int
) -> dict[str, np.ndarray]:
    """Draws attention rollout, embedding filters and position embeddings.

    Returns uint8 arrays (height, width, 3) by their names in TensorBoard.
    """
    from keras_vit.explain import figures

    title = f"{model.name}, step {step:,}"
    inspection = inspect(model, images)
    numbers = [f"image {number}" for number in range(1, len(images) + 1)]
    similarity = None
    if layers_of(model, AddPositionEmbs, AddPositionEmbs2D):
        similarity = explain.position_embedding_similarity(model)
    drawn = {
        "attention rollout": figures.draw_attention(
            images, inspection.rollout, numbers, title
        ),
        "figure 7": figures.draw_figure_7(
            explain.embedding_filters(model),
            similarity,
            inspection.distance,
            title,
        ),
    }
    return {name: _pixels(figure) for name, figure in drawn.items()}


def _pixels(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from keras_vit.explain.figures import fit_alphabets

    fit_alphabets(figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]
