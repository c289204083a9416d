"""Layer normalisation."""

import keras
from keras import ops

from keras_vit.layers.base import Layer


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerNorm(Layer):
    """Shifts and scales each token to mean zero and variance one, then learns both.

    Mean and variance are taken in float32 at least, whatever the compute dtype.

    Args:
        epsilon: float, added to the variance.

    Call arguments:
        tokens: float tensor (..., hidden_size).

    Returns:
        Float tensor of the same shape.

    Source:
        Paper section 3.1, equations 2 to 4; Ba et al., arXiv 1607.06450;
        `LayerNorm_0`, `LayerNorm_2` and `encoder_norm` in the released files.

    Example:
        >>> tuple(LayerNorm()(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, tokens_shape):
        for name, initializer in (("gamma", "ones"), ("beta", "zeros")):
            weight = self.add_weight(
                name=name,
                shape=(tokens_shape[-1],),
                initializer=initializer,
                # Autocast would round it to half precision before it is used.
                autocast=False,
            )
            setattr(self, name, weight)

    def call(self, tokens):
        dtype = keras.backend.result_type(tokens.dtype, "float32")
        tokens = ops.cast(tokens, dtype)
        centred = tokens - ops.mean(tokens, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        normalised = centred * ops.rsqrt(variance + self.epsilon)
        output = ops.add(normalised * self.gamma, self.beta)
        return ops.cast(output, self.compute_dtype)
