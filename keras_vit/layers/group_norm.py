"""Group normalisation of the hybrids' ResNet."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Layer, Shape, Tensor
from zoo.network import positive_int


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupNorm(Layer):
    """Shifts and scales each group of channels to mean zero and variance one.

    `keras.layers.GroupNormalization` has ten times the rounding error on TensorFlow,
    whose float32 mean over several axes adds thousands of numbers one after another.
    Here each axis has its own mean, of some dozens of numbers, which also is faster.

    Args:
        groups: int, that the channels are divided into, 32 in the released models.
        epsilon: float, added to the variance.
        gamma_initializer: str, such as `"ones"`, or an initializer of Keras.

    Call arguments:
        features: float tensor (batch, height, width, channels).

    Returns:
        Float tensor of the same shape.

    Source:
        Wu and He, arXiv 1803.08494; `gn_root`, `gn1`, ... in the released hybrid files.

    Example:
        >>> tuple(GroupNorm(8)(keras.random.normal((2, 7, 7, 64))).shape)
        (2, 7, 7, 64)
    """

    def __init__(
        self,
        groups: int = 32,
        epsilon: float = 1e-6,
        gamma_initializer: str | keras.initializers.Initializer = "ones",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.groups = positive_int(groups, "groups")
        self.epsilon = self._positive("epsilon", epsilon)
        self.gamma_initializer = gamma_initializer

    def build(self, features_shape: Shape) -> None:
        channels = features_shape[-1]
        if channels % self.groups:
            raise ValueError(
                f"{self.name}: groups={self.groups} does not divide the number of "
                f"channels, {channels}."
            )
        self.add_gamma_and_beta(channels, self.gamma_initializer)

    def call(self, features: Tensor) -> Tensor:
        dtype = keras.backend.result_type(features.dtype, "float32")
        features = ops.cast(features, dtype)
        centred = features - self._means(features)
        inverse = ops.rsqrt(self._means(ops.square(centred)) + self.epsilon)
        outputs = ops.add(centred * ops.multiply(inverse, self.gamma), self.beta)
        return ops.cast(outputs, self.compute_dtype)

    def _means(self, features):
        """Returns the mean of its group for each channel, (batch, 1, 1, channels)."""
        channels = features.shape[-1]
        size = channels // self.groups
        means = ops.mean(ops.mean(features, axis=1), axis=1)
        means = ops.mean(ops.reshape(means, (-1, self.groups, size)), axis=2)
        return ops.reshape(ops.repeat(means, size, axis=1), (-1, 1, 1, channels))
