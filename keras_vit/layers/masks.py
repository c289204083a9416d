"""Masks as products of queries and of a map of patches."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite, Layer, Shape, Tensor
from keras_vit.layers.initial_values import initializer, uniform
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.mlp import ACTIVATIONS


@keras.saving.register_keras_serializable(package="keras_vit")
class UpscaleBlock(Composite):
    """Doubles the sides of a map: a transposed convolution, GELU, smoothing, a norm.

    Call arguments:
        features: float tensor (batch, rows, columns, hidden_size).
        training: bool, whether a gradient will be taken: the output is the same.

    Returns:
        Float tensor (batch, 2 * rows, 2 * columns, hidden_size).

    Source:
        Kerssies et al., arXiv 2503.19108, section 3.2; `EomtScaleLayer` of
        transformers.

    Example:
        >>> tuple(UpscaleBlock()(keras.random.normal((1, 2, 3, 192))).shape)
        (1, 4, 6, 192)
    """

    parts = ("expand", "smooth", "norm")

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)

    def build(self, features_shape: Shape) -> None:
        hidden_size = features_shape[-1]
        # PyTorch's bound of a convolution: of as many outputs as inputs, and 2 x 2.
        bound = (4 * hidden_size) ** -0.5
        options: dict[str, Any] = {
            "input_shape": (None, None, None, hidden_size),
            "data_format": "channels_last",
        }
        self.add_part(
            keras.layers.Conv2DTranspose,
            "expand",
            hidden_size,
            2,
            strides=2,
            kernel_initializer=initializer(uniform(bound)),
            bias_initializer=initializer(uniform(bound)),
            **options,
        )
        self.add_part(
            keras.layers.DepthwiseConv2D,
            "smooth",
            3,
            padding="same",
            use_bias=False,
            depthwise_initializer=initializer(uniform(1 / 3)),
            **options,
        )
        self.add_part(LayerNorm, "norm", input_shape=(None, hidden_size))
        self.settle()

    def call(self, features: Tensor, training: bool | None = None) -> Tensor:
        features = ACTIVATIONS["gelu"](self.expand(features), training)
        return self.norm(self.smooth(features), training=training)

    def compute_output_shape(self, features_shape: Shape) -> tuple:
        batch, *sides, hidden_size = features_shape
        sides = [None if side is None else 2 * side for side in sides]
        return (batch, *sides, hidden_size)


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskLogits(Layer):
    """Gives each query a mask: its products with the vectors of a map.

    Call arguments:
        queries: float tensor (batch, queries, hidden_size).
        features: float tensor (batch, rows, columns, hidden_size).

    Returns:
        Float tensor (batch, queries, rows, columns), above 0 where a pixel is more
        likely in the mask than not.

    Source:
        Kerssies et al., arXiv 2503.19108, section 3.2; Cheng et al., arXiv 2107.06278,
        section 3.3.

    Example:
        >>> queries, features = keras.ops.ones((1, 5, 8)), keras.ops.ones((1, 2, 3, 8))
        >>> tuple(MaskLogits()(queries, features=features).shape)
        (1, 5, 2, 3)
    """

    def call(self, queries: Tensor, features: Tensor) -> Tensor:
        batch, rows, columns, hidden_size = ops.shape(features)
        pixels = ops.reshape(features, (batch, rows * columns, hidden_size))
        masks = ops.matmul(queries, ops.transpose(pixels, (0, 2, 1)))
        return ops.reshape(masks, (batch, queries.shape[1], rows, columns))

    def compute_output_shape(
        self, queries_shape: Shape, features_shape: Shape
    ) -> tuple[Any, ...]:
        return (*queries_shape[:2], *features_shape[1:3])
