"""The bottleneck unit of BiT's ResNet."""

import keras
from keras import ops

from keras_vit.layers.composite import Composite
from keras_vit.layers.residual_unit import bottleneck_shape, group_norm
from keras_vit.layers.sizes import pair
from keras_vit.layers.std_conv import StdConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(Composite):
    """Bottleneck of three weight-standardised convolutions, each after a group norm.

    Norm and ReLU come before a convolution, so that nothing but sums lies on the way of
    the shortcut. The stride is that of the 3x3 convolution. Where the unit changes the
    size or the number of channels, the shortcut is projected from what the first norm
    and ReLU give.

    Args:
        filters: int, of the bottleneck; the output has four times as many channels.
        strides: int or (vertical, horizontal).
        groups: int, of the group norms, 32 in the released models.
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        features: float tensor (batch, height, width, channels).

    Returns:
        Float tensor (batch, ceil(height / stride), ceil(width / stride),
        4 * filters).

    Source:
        He et al., Identity mappings in deep residual networks, arXiv 1603.05027;
        Kolesnikov et al., Big Transfer, arXiv 1912.11370, and its released code.

    Example:

    >>> unit = PreActivationUnit(filters=64, strides=2)
    >>> tuple(unit(keras.random.normal((2, 14, 14, 64))).shape)
    (2, 7, 7, 256)
    """

    parts = ("gn1", "conv1", "gn2", "conv2", "gn3", "conv3", "conv_proj")
    # The class of the convolutions.
    convolution = StdConv2D

    def __init__(self, filters, strides=1, groups=32, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = pair(strides, "strides")
        self.groups = groups

    def build(self, features_shape):
        batch, height, width, channels = features_shape
        outer = (batch, height, width, self.filters)
        inner = self.compute_output_shape(features_shape)[:3] + (self.filters,)
        wide = 4 * self.filters

        self.gn1 = self._norm("gn1", features_shape)
        self.conv1 = self._conv("conv1", features_shape, self.filters, 1)
        self.gn2 = self._norm("gn2", outer)
        self.conv2 = self._conv("conv2", outer, self.filters, 3, self.strides)
        self.gn3 = self._norm("gn3", inner)
        self.conv3 = self._conv("conv3", inner, wide, 1)
        self.projects = channels != wide or self.strides != (1, 1)
        if self.projects:
            self.conv_proj = self._conv(
                "conv_proj", features_shape, wide, 1, self.strides
            )
        self.settle()

    def _conv(self, name, input_shape, filters, size, strides=1):
        conv = self.convolution(
            filters,
            size,
            strides=strides,
            padding="symmetric",
            epsilons="bit",
            dtype=self.dtype_policy,
            name=name,
        )
        conv.build(input_shape)
        return conv

    def _norm(self, name, shape):
        norm = group_norm(name, self.groups, "bit", dtype=self.dtype_policy)
        norm.build(shape)
        return norm

    def call(self, features):
        active = ops.relu(self.gn1(features))
        shortcut = self.conv_proj(active) if self.projects else features
        features = self.conv1(active)
        features = self.conv2(ops.relu(self.gn2(features)))
        features = self.conv3(ops.relu(self.gn3(features)))
        return shortcut + features

    def compute_output_shape(self, features_shape):
        return bottleneck_shape(features_shape, self.strides, self.filters)

    def get_config(self):
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "groups": self.groups,
        }
