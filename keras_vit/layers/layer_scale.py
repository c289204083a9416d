"""Learned factors of a branch."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor
from keras_vit.layers.initial_values import initializer
from zoo.network import finite_float


@keras.saving.register_keras_serializable(package="keras_vit")
class LayerScale(Layer):
    """Multiplies each number of a token by a learned factor of its own.

    Args:
        initial_value: float, what the factors start with.

    Call arguments:
        tokens: float tensor (..., hidden_size).

    Returns:
        Float tensor of the same shape.

    Source:
        Touvron et al., arXiv 2103.17239, equation 4; `ls1.gamma` of timm.

    Example:
        >>> tuple(LayerScale()(keras.random.normal((2, 7, 192))).shape)
        (2, 7, 192)
    """

    def __init__(self, initial_value: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.initial_value = finite_float(initial_value, f"{self.name}: initial_value")

    def build(self, tokens_shape: Shape) -> None:
        self.gamma = self.add_weight(
            name="gamma",
            shape=(tokens_shape[-1],),
            initializer=initializer(keras.initializers.Constant(self.initial_value)),
        )

    def call(self, tokens: Tensor) -> Tensor:
        return ops.multiply(tokens, self.gamma)
