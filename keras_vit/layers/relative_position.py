"""Learned biases of the offsets between patches."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Shape, Tensor
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.patch_grid import at_grid, namespace_of, resampled_map
from keras_vit.layers.positions import AttentionPositions
from zoo.network import pair
from zoo.network.position_embedding import (
    GEOMETRIC,
    offset_places,
    offset_weights,
    relative_positions,
)


@functools.lru_cache(maxsize=8)
def _known_rows(grid_size, num_prefix_tokens):
    """Returns the rows of a known grid, an int32 array, for all blocks."""
    return offset_places(grid_size, num_prefix_tokens).astype("int32")


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositionBias(AttentionPositions):
    """Adds a learned bias for the offset between two patches to each attention score.

    Each head has its own biases: one per offset, query's row and column less key's,
    and three for tokens before the patches: from them to a patch, from a patch to
    them, and among them.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.
        num_registers: int, how many of the tokens before the patches are registers.
        resizing: str, how the biases are resized to another grid, a method of
            `zoo.network.position_embedding.resize_relative`.
        num_prefix_tokens: None, or int: for images of any size, how many tokens come
            before the patches. Known from the tokens of others.

    Call arguments:
        None: it is the `positions` of `SelfAttention` or `TransformerBlock`.

    Returns:
        Nothing of its own.

    Raises:
        ValueError: the number of tokens is unknown, or does not fit `grid_size`.

    Source:
        `RelativePositionBias` of BEiT (Bao et al., arXiv 2106.08254, section 2.4);
        `gen_relative_position_index` of timm; Raffel et al., arXiv 1910.10683, section
        2.1.

    Example:
        >>> positions = RelativePositionBias(grid_size=(2, 3))
        >>> attention = SelfAttention(4, positions=positions)
        >>> tuple(attention(keras.random.normal((2, 7, 24))).shape)
        (2, 7, 24)
    """

    def __init__(
        self,
        grid_size: int | tuple[int, int],
        num_registers: int = 0,
        resizing: str = GEOMETRIC,
        num_prefix_tokens: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.resizing = resizing
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, heads_shape: Shape) -> None:
        self.find_places(heads_shape)
        self.rows = self._rows(*self.grid_size)
        self.table = self.add_weight(
            name="relative_position_bias",
            shape=(
                relative_positions(self.grid_size, self.num_prefix_tokens),
                heads_shape[2],
            ),
            initializer=initializer("zeros"),
        )

    def _rows(self, *grid_size):
        """Returns the row of each pair of tokens in the table of a grid."""
        if namespace_of(*grid_size) is np:
            return _known_rows(grid_size, self.num_prefix_tokens)
        rows = offset_places(grid_size, self.num_prefix_tokens, ops)
        return ops.cast(rows, "int32")

    def biases(self, grid: Tensor | None = None, first_alone: bool = False) -> Tensor:
        """Returns the biases, a tensor (num_heads, queries, tokens)."""
        table, rows = self.table, self.rows
        if grid is not None:
            # Rows are found in no branch: TensorFlow computes once what all blocks
            # compute alike, but for what stands in one.
            rows = self._rows(*ops.shape(grid))
            own = ops.convert_to_tensor(table)
            table = at_grid(grid, self.grid_size, lambda: own, self._resampled)
        rows = rows[:1] if first_alone else rows
        # In this order the tokens of a head lie behind one another.
        return ops.take(ops.transpose(table), rows, axis=1)

    def _resampled(self, *grid_size):
        """Returns the table of another grid: its rows of offsets, then its columns."""
        table = ops.convert_to_tensor(self.table)
        count = relative_positions(self.grid_size, 0)
        weights = [
            offset_weights(old, new, self.resizing, namespace_of(new))
            for old, new in zip(self.grid_size, grid_size, strict=True)
        ]
        offsets = resampled_map(table[:count], *weights)
        return ops.concatenate([offsets, table[count:]])

    def scores(self, query: Tensor, grid: Tensor | None, first_alone: bool) -> Tensor:
        return ops.cast(self.biases(grid, first_alone), query.dtype)
