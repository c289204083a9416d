"""Learned biases of the offsets between patches."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Layer, Placed
from keras_vit.layers.initial_values import initializer
from zoo.network import pair
from zoo.position_embedding import GEOMETRIC, relative_positions


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositionBias(Layer, Placed):
    """Adds a learned bias for the offset between two patches to each attention score.

    Each head has its own biases: one per offset, query's row and column less key's,
    and three for tokens before the patches: from them to a patch, from a patch to
    them, and among them.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.
        num_registers: int, how many of the tokens before the patches are registers.
        resizing: str, how `at_image_size` resizes the biases, a method of
            `zoo.position_embedding.resize_relative`.

    Call arguments:
        scores: float tensor (batch, num_heads, queries, tokens) before the softmax;
            queries are the first tokens, or all.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: the number of tokens is unknown, or does not fit `grid_size`.

    Source:
        `RelativePositionBias` of BEiT (Bao et al., arXiv 2106.08254, section 2.4);
        `gen_relative_position_index` of timm; Raffel et al., arXiv 1910.10683, section
        2.1.

    Example:
        >>> add = RelativePositionBias(grid_size=(2, 3))
        >>> tuple(add(keras.random.normal((2, 4, 7, 7))).shape)
        (2, 4, 7, 7)
    """

    def __init__(self, grid_size, num_registers=0, resizing=GEOMETRIC, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.resizing = resizing

    def build(self, scores_shape):
        _, num_heads, _, tokens = scores_shape
        self.find_places((None, tokens))
        count = relative_positions(self.grid_size, self.num_prefix_tokens)
        self.table = self.add_weight(
            name="relative_position_bias",
            shape=(count, num_heads),
            initializer=initializer("zeros"),
        )
        self.rows = self._rows_of_pairs()

    def _rows_of_pairs(self):
        """Returns the row of the table of each pair of tokens (tokens, tokens)."""
        rows, columns = self.grid_size
        places = np.indices(self.grid_size).reshape(2, -1)
        vertical, horizontal = places[:, :, None] - places[:, None, :]
        of_patches = (vertical + rows - 1) * (2 * columns - 1) + horizontal
        of_patches += columns - 1
        prefix = self.num_prefix_tokens
        found = np.pad(of_patches, ((prefix, 0), (prefix, 0)))
        others = relative_positions(self.grid_size, 0)
        found[:prefix, prefix:] = others
        found[prefix:, :prefix] = others + 1
        found[:prefix, :prefix] = others + 2
        return found.astype("int32")

    def biases(self, num_queries=None):
        """Returns the biases, a tensor (num_heads, queries, tokens)."""
        # In this order the tokens of a head lie behind one another.
        return ops.take(ops.transpose(self.table), self.rows[:num_queries], axis=1)

    def call(self, scores):
        self.check_places(scores[:, 0, 0])
        return ops.add(scores, self.biases(scores.shape[2]))
