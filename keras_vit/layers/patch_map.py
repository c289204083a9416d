"""Tokens of patches as a map."""

import math

import keras
from keras import ops

from keras_vit.layers.base import Layer, Placed
from zoo.network import pair


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchMap(Layer, Placed):
    """Puts the tokens of patches where these are in the image.

    Args:
        grid_size: int or (rows, columns) of the grid of patches; None if it is given
            with the tokens.
        num_prefix_tokens: int, how many tokens come before those of patches, which are
            left out: 1 for the class token.

    Call arguments:
        tokens: float tensor (batch, num_prefix_tokens + rows * columns, hidden_size).
        grid: None, or for tokens of images of any size what `PatchGrid` gives.

    Returns:
        Float tensor (batch, rows, columns, hidden_size).

    Raises:
        ValueError: the number of tokens is another one, or there is no grid.

    Source:
        `forward_intermediates` of timm.

    Example:
        >>> layer = PatchMap(grid_size=(2, 3), num_prefix_tokens=1)
        >>> tuple(layer(keras.ops.ones((2, 7, 192))).shape)
        (2, 2, 3, 192)
    """

    def __init__(self, grid_size=None, num_prefix_tokens=0, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = None if grid_size is None else pair(grid_size, "grid_size")
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape):
        if self.grid_size is None:
            return
        rows, columns = self.grid_size
        expected = self.num_prefix_tokens + math.prod(self.grid_size)
        if tokens_shape[1] not in (None, expected):
            raise ValueError(
                f"{self.name} takes {expected} tokens, {self.num_prefix_tokens} before "
                f"a grid of {rows}x{columns}, got {tokens_shape[1]}: pass the grid of "
                "these tokens."
            )

    def call(self, tokens, grid=None):
        batch, _, hidden_size = ops.shape(tokens)
        patches = tokens[:, self.num_prefix_tokens :]
        grid_size = self._grid_size(None if grid is None else ops.shape(grid))
        return ops.reshape(patches, (batch, *grid_size, hidden_size))

    def compute_output_shape(self, tokens_shape, grid_shape=None):
        grid_size = self._grid_size(grid_shape)
        return (tokens_shape[0], *grid_size, tokens_shape[2])

    def _grid_size(self, given):
        if given is None and self.grid_size is None:
            raise ValueError(
                f"{self.name} has no grid_size: pass it, or call the layer with the "
                "grid that PatchGrid gives."
            )
        return self.grid_size if given is None else given
