"""Tokens of patches as a map."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchMap(Layer):
    """Puts the tokens of patches where these are in the image.

    Args:
        num_prefix_tokens: int, how many tokens come before those of patches, which are
            left out: 1 for the class token.

    Call arguments:
        tokens: float tensor (batch, num_prefix_tokens + rows * columns, hidden_size).
        grid: what `PatchGrid` gives.

    Returns:
        Float tensor (batch, rows, columns, hidden_size).

    Source:
        `forward_intermediates` of timm.

    Example:
        >>> grid = PatchGrid(patch_size=16)(keras.ops.ones((2, 32, 48, 3)))
        >>> layer = PatchMap(num_prefix_tokens=1)
        >>> tuple(layer(keras.ops.ones((2, 7, 192)), grid=grid).shape)
        (2, 2, 3, 192)
    """

    def __init__(self, num_prefix_tokens: int = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_prefix_tokens = num_prefix_tokens

    def call(self, tokens: Tensor, grid: Tensor) -> Tensor:
        batch, _, hidden_size = ops.shape(tokens)
        patches = tokens[:, self.num_prefix_tokens :]
        return ops.reshape(patches, (batch, *ops.shape(grid), hidden_size))

    def compute_output_shape(self, tokens_shape: Shape, grid_shape: Shape) -> tuple:
        return (tokens_shape[0], *grid_shape, tokens_shape[2])
