"""Learned embeddings of absolute positions."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Placed, Shape, Tensor, check_tokens
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.patch_grid import (
    at_grid,
    namespace_of,
    resampled,
    resampled_map,
)
from zoo.network import pair
from zoo.network.position_embedding import axis_weights


class AddedPositions(Placed):
    """Adds the embedding in `table`, of a subclass, to the token at each place."""

    def call(self, tokens: Tensor, grid: Tensor | None = None) -> Tensor:
        self.check_places(tokens, grid)
        if grid is None:
            return ops.add(tokens, self._own())
        return ops.add(tokens, at_grid(grid, self.grid_size, self.table, self._resized))

    def compute_output_spec(self, tokens: Tensor, grid: Tensor | None = None) -> Tensor:
        self.check_places(tokens, grid)
        return keras.KerasTensor(tokens.shape, self.compute_dtype)

    def _own(self):
        return self.table()


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs(AddedPositions):
    """Adds a learned embedding to the token at each position.

    Args:
        grid_size: None, int or (rows, columns) of the grid of patches, for resizing
            the embedding to another image size; None is a square grid.
        num_registers: int, how many of the tokens before the patches are registers.
        resizing: str, how it is resized to another grid, see `zoo.resize`.
        num_prefix_tokens: int, how many tokens come before those of the patches; None
            finds it out, but for a number of tokens that is not known.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size), a class token or none
            before the patches of the grid.
        grid: None, or for tokens of images of any size what `PatchGrid` gives: the
            embedding of `grid_size` is resized to that grid.

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

    def __init__(
        self,
        grid_size: int | tuple[int, int] | None = None,
        num_registers: int = 0,
        resizing: str = "released",
        num_prefix_tokens: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.grid_size = None if grid_size is None else pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.resizing = resizing
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape: Shape) -> None:
        check_tokens(self, tokens_shape)
        self.find_places(tokens_shape)
        self.position_embedding = self.add_weight(
            name="position_embedding",
            shape=(1, self.length, tokens_shape[-1]),
            initializer=initializer(keras.initializers.RandomNormal(stddev=0.02)),
        )

    def _own(self):
        return self.position_embedding

    def table(self) -> Tensor:
        """Returns the embeddings, a tensor (tokens, hidden_size)."""
        return ops.convert_to_tensor(self.position_embedding)[0]

    def _resized(self, rows, columns):
        table, first = self.table(), self.num_prefix_tokens
        weights = _weights(self, (rows, columns))
        patches = resampled_map(table[first:], *weights)
        return ops.concatenate([table[:first], patches]) if first else patches


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs2D(AddedPositions):
    """Adds a learned embedding of the row and of the column of each patch.

    The first half of what is added to a patch is its column's embedding, the second
    its row's. The class token has an embedding of its own.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.
        resizing: see `AddPositionEmbs`; rows and columns one by one.
        num_prefix_tokens: see `AddPositionEmbs`.

    Call arguments:
        tokens: as `AddPositionEmbs` takes them, the patches row by row.
        grid: see `AddPositionEmbs`.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: the tokens do not fit `grid_size`, or their size is odd.

    Source:
        Paper appendix D.4, 2-dimensional positional embedding.

    Example:
        >>> add = AddPositionEmbs2D(grid_size=(2, 3))
        >>> tuple(add(keras.ops.ones((2, 7, 192))).shape)
        (2, 7, 192)
    """

    def __init__(
        self,
        grid_size: int | tuple[int, int],
        resizing: str = "released",
        num_prefix_tokens: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")
        self.resizing = resizing
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape: Shape) -> None:
        hidden_size = tokens_shape[-1]
        rows, columns = self.grid_size
        check_tokens(self, tokens_shape)
        self.find_places(tokens_shape)
        if hidden_size % 2:
            raise ValueError(
                f"{self.name} adds a column's embedding to one half of a token and a "
                f"row's to the other, got tokens of size {hidden_size}: pass an even "
                "hidden_size."
            )
        shapes: dict[str, tuple] = {
            "column_embedding": (1, columns, hidden_size // 2),
            "row_embedding": (rows, 1, hidden_size // 2),
        }
        if self.num_prefix_tokens:
            shapes["class_token_embedding"] = (self.num_prefix_tokens, hidden_size)
        for name, shape in shapes.items():
            variable = self.add_weight(
                name=name,
                shape=shape,
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
            setattr(self, name, variable)

    def table(self) -> Tensor:
        """Returns what is added, a tensor (tokens, hidden_size)."""
        return self._table(*self.grid_size, self.row_embedding, self.column_embedding)

    def _resized(self, rows, columns):
        down, across = _weights(self, (rows, columns))
        return self._table(
            rows,
            columns,
            resampled(ops.squeeze(self.row_embedding, 1), down)[:, None],
            resampled(ops.squeeze(self.column_embedding, 0), across)[None],
        )

    def _table(self, rows, columns, row_embedding, column_embedding):
        half = row_embedding.shape[-1]
        halves = [
            ops.broadcast_to(embedding, (rows, columns, half))
            for embedding in (column_embedding, row_embedding)
        ]
        table = ops.reshape(ops.concatenate(halves, axis=-1), (-1, 2 * half))
        if self.num_prefix_tokens:
            table = ops.concatenate([self.class_token_embedding, table], axis=0)
        return table


def _weights(layer, grid_size):
    """Returns what resamples the rows and the columns of a layer's grid to another."""
    return [
        axis_weights(old, new, layer.resizing, namespace_of(new))
        for old, new in zip(layer.grid_size, grid_size, strict=True)
    ]
