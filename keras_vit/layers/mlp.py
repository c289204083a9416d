"""The two-layer perceptron of a transformer block."""

import keras
from keras import ops

from keras_vit.layers.base import Composite
from keras_vit.layers.gelu import ACTIVATIONS
from keras_vit.layers.initial_values import initializer
from keras_vit.layers.remat import Dropout


@keras.saving.register_keras_serializable(package="keras_vit")
class MLP(Composite):
    """Two dense layers with a GELU between them, applied to each token.

    Args:
        mlp_dim: int, the size of the hidden layer.
        dropout_rate: float in [0, 1), after each of the two layers.
        activation: `"gelu_tanh"`, which is what the released models compute, or
            `"gelu"` for the exact one.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).
        training: bool, whether dropout is on.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: `activation` is neither.

    Source:
        Paper section 3.1, equation 3; `MlpBlock_3` in the released files.

    Example:

    >>> tuple(MLP(mlp_dim=768)(keras.random.normal((2, 7, 192))).shape)
    (2, 7, 192)
    """

    parts = ("expand", "project")

    def __init__(self, mlp_dim, dropout_rate=0.0, activation="gelu_tanh", **kwargs):
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"{self.name}: activation must be one of {', '.join(ACTIVATIONS)}, got "
                f"{activation!r}."
            )
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.activation = activation

    def build(self, tokens_shape):
        hidden_size = tokens_shape[-1]
        for name, units, inputs in (
            ("expand", self.mlp_dim, hidden_size),
            ("project", hidden_size, self.mlp_dim),
        ):
            self.add_part(
                keras.layers.Dense,
                name,
                units,
                input_shape=(None, inputs),
                kernel_initializer=initializer("glorot_uniform"),
                bias_initializer=initializer(
                    keras.initializers.RandomNormal(stddev=1e-6)
                ),
            )
        self.add_part(Dropout, "dropout", self.dropout_rate)
        self.settle()

    def call(self, tokens, training=None):
        shape = ops.shape(tokens)
        tokens = ops.reshape(tokens, (-1, tokens.shape[-1]))
        hidden = ACTIVATIONS[self.activation](self.expand(tokens), training)
        hidden = self.dropout(hidden, training=training)
        output = self.dropout(self.project(hidden), training=training)
        return ops.reshape(output, shape)
