"""The class token, and pooling with and without it."""

import keras
from keras import ops

from keras_vit.layers.base import Layer


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassToken(Layer):
    """Prepends a learned token to a sequence of tokens.

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

    # How many tokens it puts before those of the patches.
    num_prefix_tokens = 1

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
class ClassTokenPooling(Layer):
    """Takes the class token's state, the first of the sequence.

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


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchPooling(Layer):
    """Averages the patches' states, without the tokens that come before them.

    Args:
        num_prefix_tokens: int, how many tokens come before those of patches: 1 for
            the class token.

    Call arguments:
        tokens: float tensor (batch, num_prefix_tokens + patches, hidden_size).

    Returns:
        Float tensor (batch, hidden_size).

    Raises:
        ValueError: `num_prefix_tokens` is negative, or there are no other tokens.

    Source:
        `global_pool="avg"` of timm, `pooling="avg"` of Keras.

    Example:
        >>> tuple(PatchPooling()(keras.ops.ones((2, 7, 192))).shape)
        (2, 192)
    """

    def __init__(self, num_prefix_tokens=1, **kwargs):
        super().__init__(**kwargs)
        if num_prefix_tokens < 0:
            raise ValueError(
                f"{self.name}: num_prefix_tokens must not be negative, got "
                f"{num_prefix_tokens}."
            )
        self.num_prefix_tokens = num_prefix_tokens

    def build(self, tokens_shape):
        tokens = tokens_shape[1]
        if tokens is not None and tokens <= self.num_prefix_tokens:
            raise ValueError(
                f"{self.name} averages what comes after {self.num_prefix_tokens} "
                f"tokens, got {tokens}: pass tokens of patches too."
            )

    def call(self, tokens):
        return ops.mean(tokens[:, self.num_prefix_tokens :], axis=1)

    def compute_output_shape(self, tokens_shape):
        return (tokens_shape[0], tokens_shape[2])
