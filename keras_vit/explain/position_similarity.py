"""Similarity of position embeddings."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    RelativePositionBias,
    RelativePositionEmbedding,
    RotaryPositions,
    TransformerBlock,
)
from keras_vit.structure import layers_of, prefix_tokens_of
from keras_vit.structure.image_sizes import grid_size

# Messages for models whose positions are not embeddings of places.
_OTHERS = {
    RelativePositionEmbedding: "relative positions: embeddings of the offset between "
    "two tokens, not of places.",
    RotaryPositions: "rotary positions alone: angles by which queries and keys are "
    "turned, not embeddings of places.",
    RelativePositionBias: "relative positions alone: biases of the offset between two "
    "patches, not embeddings of places.",
}


def position_embedding_similarity(model: keras.Model, layer: int = 0) -> np.ndarray:
    """Returns the cosine similarity of the position embeddings of all pairs of patches.

    Args:
        model: `keras.Model` that adds position embeddings.
        layer: int, which of them in a model that adds others before each block.

    Returns:
        float32 array (rows, columns, rows, columns), cosines: [i, j] is the map that
        figure 7 has in row i and column j.

    Raises:
        ValueError: the model has no position embeddings, or fewer.

    Source:
        Paper section 4.5, appendix D.4 and figures 7 (centre) and 10.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> position_embedding_similarity(model).shape
        (2, 3, 2, 3)
    """
    places = layers_of(model, AddPositionEmbs, AddPositionEmbs2D)
    if not places:
        kinds = {type(one.positions) for one in layers_of(model, TransformerBlock)}
        others = [text for kind, text in _OTHERS.items() if kind in kinds]
        others = others or ["no position embeddings."]
        raise ValueError(f"The model {model.name} has {others[0]}")
    if not 0 <= layer < len(places):
        raise ValueError(
            f"The model {model.name} has position embeddings in {len(places)} places: "
            f"pass a layer of 0 to {len(places) - 1}, got {layer}."
        )
    table = ops.convert_to_numpy(ops.cast(places[layer].table(), "float32"))
    rows, columns = places[layer].grid_size or grid_size(model)
    registers = places[layer].num_registers
    first = prefix_tokens_of(table, (rows, columns), 0, registers)
    vectors = table[first:].astype("float64")
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.maximum(lengths, np.finfo("float64").tiny)
    similarity = (vectors @ vectors.T).clip(-1, 1)
    return similarity.reshape(rows, columns, rows, columns).astype("float32")
