"""Layer normalisation."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor
from keras_vit.layers.own_gradient import own_gradient


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(Layer):
    """Shifts and scales each token to mean zero and variance one, then learns both.

    Mean and variance are taken in float32 at least, whatever the compute dtype.

    Args:
        epsilon: float, added to the variance.

    Call arguments:
        tokens: float tensor (..., hidden_size).
        training: bool, whether a gradient will be taken: the output is the same.

    Returns:
        Float tensor of the same shape.

    Source:
        Paper section 3.1, equations 2 to 4; Ba et al., arXiv 1607.06450;
        `LayerNorm_0`, `LayerNorm_2` and `encoder_norm` in the released files.

    Example:
        >>> tuple(LayerNorm()(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs: Any):
        super().__init__(**kwargs)
        self.epsilon = self._positive("epsilon", epsilon)

    def build(self, tokens_shape: Shape) -> None:
        self.add_gamma_and_beta(tokens_shape[-1])

    def call(self, tokens: Tensor, training: bool | None = None) -> Tensor:
        dtype = keras.backend.result_type(tokens.dtype, "float32")
        tokens = ops.cast(tokens, dtype)
        if training and keras.backend.backend() == "tensorflow":
            output = self._lean(tokens)
        else:
            normalised, _ = self._normalised(tokens)
            output = ops.add(normalised * self.gamma, self.beta)
        return ops.cast(output, self.compute_dtype)

    def _normalised(self, tokens):
        """Returns tokens of mean zero and variance one, and their factors."""
        centred = tokens - ops.mean(tokens, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        factors = ops.rsqrt(variance + self.epsilon)
        return centred * factors, factors

    def _lean(self, tokens):
        """Returns the output, whose gradient takes fewer passes than TensorFlow's."""
        import tensorflow as tf

        @own_gradient
        def norm(tokens: Tensor, gamma: Tensor, beta: Tensor) -> tuple:
            normalised, factors = self._normalised(tokens)

            def gradient(upstream: Tensor) -> tuple:
                of_normalised = upstream * gamma
                mean = ops.mean(of_normalised, axis=-1, keepdims=True)
                along = ops.mean(of_normalised * normalised, axis=-1, keepdims=True)
                others = tuple(range(len(tokens.shape) - 1))
                return (
                    factors * (of_normalised - mean - normalised * along),
                    ops.sum(upstream * normalised, axis=others),
                    ops.sum(upstream, axis=others),
                )

            return ops.add(normalised * gamma, beta), gradient

        # Cast, since a custom gradient has to return lists for variables themselves.
        return norm(
            tokens, *(tf.cast(one, tokens.dtype) for one in (self.gamma, self.beta))
        )
