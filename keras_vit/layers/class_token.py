"""The learned token whose final state stands for the whole image."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(keras.layers.Layer):
    """Prepends a learned token to a sequence of tokens.

    Args:
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, tokens, hidden_size).

    Returns:
        Float tensor (batch, 1 + tokens, hidden_size), the class token first.

    Source:
        Paper section 3.1, equation 1; `cls` in the released files, zero at first.

    Example:

    >>> tuple(ClassToken()(keras.ops.ones((2, 6, 192))).shape)
    (2, 7, 192)
    """

    def build(self, tokens_shape):
        self.token = self.add_weight(
            name="token", shape=(1, 1, tokens_shape[-1]), initializer="zeros"
        )

    def call(self, tokens):
        batch, _, hidden_size = ops.shape(tokens)
        token = ops.broadcast_to(self.token, (batch, 1, hidden_size))
        return ops.concatenate([token, tokens], axis=1)

    def compute_output_shape(self, tokens_shape):
        batch, tokens, hidden_size = tokens_shape
        return (batch, None if tokens is None else tokens + 1, hidden_size)


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassTokenPooling(keras.layers.Layer):
    """Takes the class token's state, the first of the sequence.

    Args:
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        tokens: float tensor (batch, 1 + tokens, hidden_size).

    Returns:
        Float tensor (batch, hidden_size).

    Source:
        Paper section 3.1, equation 4.

    Example:

    >>> tuple(ClassTokenPooling()(keras.ops.ones((2, 7, 192))).shape)
    (2, 192)
    """

    def call(self, tokens):
        return tokens[:, 0]

    def compute_output_shape(self, tokens_shape):
        return (tokens_shape[0], tokens_shape[2])
