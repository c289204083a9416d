"""Learned position embeddings."""

import math

import keras
from keras import ops

from keras_vit.layers.initial_values import initializer
from keras_vit.sizes import pair


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs(keras.layers.Layer):
    """Adds a learned embedding to the token at each position.

    Args:
        grid_size: None, int or (rows, columns) of the grid of patches. The layer
            computes the same without it, but the embedding can be resized to another
            image size only where its grid is known; None is a square grid.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size), a class token or none
            before the patches of the grid.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: the number of tokens is unknown, or does not fit `grid_size`.

    Source:
        Paper section 3.1, equation 1; `posembed_input` in the released files.

    Example:

    >>> tuple(AddPositionEmbs(grid_size=(2, 3))(keras.ops.ones((2, 7, 192))).shape)
    (2, 7, 192)
    """

    def __init__(self, grid_size=None, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = None if grid_size is None else pair(grid_size, "grid_size")

    def build(self, tokens_shape):
        _, tokens, hidden_size = tokens_shape
        if tokens is None:
            raise ValueError(
                f"{self.name} needs a known number of tokens, got shape "
                f"{tuple(tokens_shape)}: give the images a fixed height and width."
            )
        if self.grid_size and tokens - math.prod(self.grid_size) not in (0, 1):
            rows, columns = self.grid_size
            raise ValueError(
                f"{self.name} has a grid of {rows}x{columns} patches and at most one "
                f"class token, got {tokens} tokens: pass the grid of these tokens."
            )
        self.position_embedding = self.add_weight(
            name="position_embedding",
            shape=(1, tokens, hidden_size),
            initializer=initializer(keras.initializers.RandomNormal(stddev=0.02)),
        )

    def call(self, tokens):
        given, expected = tokens.shape[1], self.position_embedding.shape[1]
        if given is not None and given != expected:
            raise ValueError(
                f"{self.name} has positions for {expected} tokens, got {given}: resize "
                "the images to the model's size, or build the model with their "
                "image_size."
            )
        return ops.add(tokens, self.position_embedding)

    def compute_output_shape(self, tokens_shape):
        return tokens_shape

    def get_config(self):
        return {**super().get_config(), "grid_size": self.grid_size}
