"""Learned biases of the offsets between patches."""

import math

import keras
from keras import ops

from keras_vit.layers.base import Layer
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.patch_grid import at_grid, namespace_of
from keras_vit.layers.positions import AttentionPositions
from zoo.network import pair
from zoo.position_embedding import (
    GEOMETRIC,
    offset_places,
    offset_weights,
    relative_positions,
)


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativePositionBias(AttentionPositions):
    """Adds a learned bias for the offset between two patches to each attention score.

    Each head has its own biases: one per offset, query's row and column less key's,
    and three for tokens before the patches: from them to a patch, from a patch to
    them, and among them.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.
        num_registers: int, how many of the tokens before the patches are registers.
        resizing: str, how `at_image_size` resizes the biases, a method of
            `zoo.position_embedding.resize_relative`.
        num_prefix_tokens: None, or int: for images of any size, how many tokens come
            before the patches. Known from the tokens of others.

    Call arguments:
        None: it is the `positions` of `SelfAttention` or `TransformerBlock`, whose
            `grid_positions` is the output of `PatchOffsets` for images of any size.

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
        grid_size,
        num_registers=0,
        resizing=GEOMETRIC,
        num_prefix_tokens=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.resizing = resizing
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, heads_shape):
        _, tokens, num_heads, _ = heads_shape
        if tokens is not None or self.num_prefix_tokens is None:
            self.find_places((None, tokens))
            places = offset_places(self.grid_size, self.num_prefix_tokens)
            self.rows = places.astype("int32")
        count = relative_positions(self.grid_size, self.num_prefix_tokens)
        self.table = self.add_weight(
            name="relative_position_bias",
            shape=(count, num_heads),
            initializer=initializer("zeros"),
        )

    def check(self, tokens, grid_positions):
        super().check(tokens, grid_positions)
        if self.length is None and grid_positions is None:
            raise ValueError(
                f"{self.name} is for images of any size: pass the block or the "
                "attention grid_positions, the output of PatchOffsets."
            )

    def biases(self, num_queries=None, grid_positions=None):
        """Returns the biases, a tensor (num_heads, queries, tokens)."""
        if grid_positions is None:
            table, rows = self.table, self.rows
        else:
            weights, rows = grid_positions
            table = ops.matmul(ops.cast(weights, self.compute_dtype), self.table)
        # In this order the tokens of a head lie behind one another.
        return ops.take(ops.transpose(table), rows[:num_queries], axis=1)

    def scores(self, query, grid_positions):
        biases = self.biases(ops.shape(query)[2], grid_positions)
        return ops.cast(biases, query.dtype)

    def shared(self, method=None):
        """Returns the layer that gives all blocks their `grid_positions`."""
        return PatchOffsets(
            self.grid_size,
            self.num_prefix_tokens,
            method or self.resizing,
            name="offsets",
        )

    def resized(self, grid_size, method=None):
        """Returns the same of another grid, its own for images of any size."""
        changes = {"resizing": method or self.resizing}
        if grid_size != (None, None):
            changes |= {"grid_size": grid_size, "num_prefix_tokens": None}
        return type(self).from_config(self.get_config() | changes)


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchOffsets(Layer):
    """Computes how biases of offsets are resized for images of any size.

    Blocks for images of one size have biases of their grid; here all of a model share
    what is computed from the grid of the images.

    Args:
        grid_size: int or (rows, columns) of the grid of patches that the model is of.
        num_prefix_tokens: int, the tokens before those of the patches.
        resizing: see `RelativePositionBias`.

    Call arguments:
        grid: what `PatchGrid` gives.

    Returns:
        A float32 tensor (biases, biases of `grid_size`), the weights of the table's
        rows, and an int32 tensor (tokens, tokens), the row of each pair of tokens in
        the table that these make.

    Source:
        See `zoo.position_embedding.resize_relative`.

    Example:
        >>> grid = PatchGrid(patch_size=16)(keras.ops.ones((2, 32, 48, 3)))
        >>> weights, rows = PatchOffsets((4, 4), num_prefix_tokens=1)(grid)
        >>> tuple(weights.shape), tuple(rows.shape)
        ((18, 52), (7, 7))
    """

    def __init__(self, grid_size, num_prefix_tokens=0, resizing=GEOMETRIC, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")
        self.num_prefix_tokens = num_prefix_tokens
        self.resizing = resizing

    def call(self, grid):
        def at(*grid_size):
            xp, prefix = namespace_of(*grid_size), self.num_prefix_tokens
            weights = offset_weights(
                self.grid_size, grid_size, prefix > 0, self.resizing, xp
            )
            rows = offset_places(grid_size, prefix, xp)
            return ops.cast(weights, "float32"), ops.cast(rows, "int32")

        def at_own():
            _, rows = at(*self.grid_size)
            count = relative_positions(self.grid_size, self.num_prefix_tokens)
            return ops.eye(count, dtype="float32"), rows

        return at_grid(grid, self.grid_size, at_own, at)

    def compute_output_spec(self, grid):
        count = relative_positions(self.grid_size, self.num_prefix_tokens)
        biases = tokens = None
        if None not in grid.shape:
            biases = relative_positions(grid.shape, self.num_prefix_tokens)
            tokens = self.num_prefix_tokens + math.prod(grid.shape)
        return (
            keras.KerasTensor((biases, count), "float32"),
            keras.KerasTensor((tokens, tokens), "int32"),
        )
