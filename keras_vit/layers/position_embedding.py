"""Learned embeddings of absolute positions."""

import keras
from keras import ops

from keras_vit.layers.base import Layer, Placed
from keras_vit.layers.initial_values import initializer
from zoo.network import pair


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs(Layer, Placed):
    """Adds a learned embedding to the token at each position.

    Args:
        grid_size: None, int or (rows, columns) of the grid of patches, for resizing
            the embedding to another image size; None is a square grid.
        num_registers: int, how many of the tokens before the patches are registers.
        resizing: str, how `at_image_size` resizes it, see `zoo.resize`.

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

    def __init__(self, grid_size=None, num_registers=0, resizing="released", **kwargs):
        super().__init__(**kwargs)
        self.grid_size = None if grid_size is None else pair(grid_size, "grid_size")
        self.num_registers = num_registers
        self.resizing = resizing

    def build(self, tokens_shape):
        self.find_places(tokens_shape)
        self.position_embedding = self.add_weight(
            name="position_embedding",
            shape=(1, self.length, tokens_shape[-1]),
            initializer=initializer(keras.initializers.RandomNormal(stddev=0.02)),
        )

    def call(self, tokens):
        self.check_places(tokens)
        return ops.add(tokens, self.position_embedding)

    def table(self):
        """Returns the embeddings, a tensor (tokens, hidden_size)."""
        return ops.convert_to_tensor(self.position_embedding)[0]


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs2D(Layer, Placed):
    """Adds a learned embedding of the row and of the column of each patch.

    The first half of what is added to a patch is its column's embedding, the second
    its row's. The class token has an embedding of its own.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.

    Call arguments:
        tokens: as `AddPositionEmbs` takes them, the patches row by row.

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

    def __init__(self, grid_size, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")

    def build(self, tokens_shape):
        hidden_size = tokens_shape[-1]
        rows, columns = self.grid_size
        self.find_places(tokens_shape)
        if hidden_size % 2:
            raise ValueError(
                f"{self.name} adds a column's embedding to one half of a token and a "
                f"row's to the other, got tokens of size {hidden_size}: pass an even "
                "hidden_size."
            )
        shapes = {
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

    def call(self, tokens):
        self.check_places(tokens)
        return ops.add(tokens, self.table())

    def table(self):
        """Returns what is added, a tensor (tokens, hidden_size)."""
        rows, columns = self.grid_size
        half = self.row_embedding.shape[-1]
        halves = [
            ops.broadcast_to(embedding, (rows, columns, half))
            for embedding in (self.column_embedding, self.row_embedding)
        ]
        table = ops.reshape(ops.concatenate(halves, axis=-1), (-1, 2 * half))
        if self.num_prefix_tokens:
            table = ops.concatenate([self.class_token_embedding, table], axis=0)
        return table
