"""Learned embeddings of absolute positions."""

import math

import keras
from keras import ops

from keras_vit.layers.initial_values import initializer
from keras_vit.layers.sizes import pair


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
        _check_shape(self, tokens_shape)
        self.position_embedding = self.add_weight(
            name="position_embedding",
            shape=(1, tokens, hidden_size),
            initializer=initializer(keras.initializers.RandomNormal(stddev=0.02)),
        )

    def call(self, tokens):
        _check_length(self, tokens, self.position_embedding.shape[1])
        return ops.add(tokens, self.position_embedding)

    def table(self):
        """Returns what is added: a tensor (tokens, hidden_size)."""
        return ops.convert_to_tensor(self.position_embedding)[0]

    def compute_output_shape(self, tokens_shape):
        return tokens_shape

    def get_config(self):
        return {**super().get_config(), "grid_size": self.grid_size}


@keras.saving.register_keras_serializable(package="keras_vit")
class AddPositionEmbs2D(keras.layers.Layer):
    """Adds a learned embedding of the row and of the column of each patch.

    Half of what is added to a patch tells its column and half its row. The class
    token, of which the paper says nothing, is in neither: what is added to it is an
    embedding of its own.

    Args:
        grid_size: int or (rows, columns) of the grid of patches.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size), a class token or none
            before the patches of the grid, row by row.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: the number of tokens does not fit `grid_size`, or the size of a
            token is odd.

    Source:
        Paper appendix D.4, 2-dimensional positional embedding.

    Example:

    >>> tuple(AddPositionEmbs2D(grid_size=(2, 3))(keras.ops.ones((2, 7, 192))).shape)
    (2, 7, 192)
    """

    def __init__(self, grid_size, **kwargs):
        super().__init__(**kwargs)
        self.grid_size = pair(grid_size, "grid_size")

    def build(self, tokens_shape):
        _, tokens, hidden_size = tokens_shape
        rows, columns = self.grid_size
        _check_shape(self, tokens_shape)
        if hidden_size % 2:
            raise ValueError(
                f"{self.name} tells the column in half of a token and the row in the "
                f"other, got tokens of size {hidden_size}: pass an even hidden_size."
            )
        self.length = tokens
        shapes = {
            "column_embedding": (1, columns, hidden_size // 2),
            "row_embedding": (rows, 1, hidden_size // 2),
        }
        if tokens > rows * columns:
            shapes["class_token_embedding"] = (1, hidden_size)
        for name, shape in shapes.items():
            variable = self.add_weight(
                name=name,
                shape=shape,
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
            setattr(self, name, variable)

    def call(self, tokens):
        _check_length(self, tokens, self.length)
        return ops.add(tokens, self.table())

    def table(self):
        """Returns what is added: a tensor (tokens, hidden_size)."""
        rows, columns = self.grid_size
        half = self.row_embedding.shape[-1]
        halves = [
            ops.broadcast_to(embedding, (rows, columns, half))
            for embedding in (self.column_embedding, self.row_embedding)
        ]
        table = ops.reshape(ops.concatenate(halves, axis=-1), (-1, 2 * half))
        if self.length > rows * columns:
            table = ops.concatenate([self.class_token_embedding, table], axis=0)
        return table

    def compute_output_shape(self, tokens_shape):
        return tokens_shape

    def get_config(self):
        return {**super().get_config(), "grid_size": self.grid_size}


def _check_shape(layer, tokens_shape):
    tokens = tokens_shape[1]
    if tokens is None:
        raise ValueError(
            f"{layer.name} needs a known number of tokens, got shape "
            f"{tuple(tokens_shape)}: give the images a fixed height and width."
        )
    if layer.grid_size and tokens - math.prod(layer.grid_size) not in (0, 1):
        rows, columns = layer.grid_size
        raise ValueError(
            f"{layer.name} has a grid of {rows}x{columns} patches and at most one "
            f"class token, got {tokens} tokens: pass the grid of these tokens."
        )


def _check_length(layer, tokens, expected):
    given = tokens.shape[1]
    if given is not None and given != expected:
        raise ValueError(
            f"{layer.name} has positions for {expected} tokens, got {given}: resize "
            "the images to the model's size, or build the model with their image_size."
        )
