"""The pre-activation bottleneck unit of BiT's ResNet."""

import keras
from keras import ops

from keras_vit.layers.int8 import int8_parts
from keras_vit.layers.residual_unit import ResidualUnit


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(ResidualUnit):
    """Bottleneck of three weight-standardised convolutions, each after a group norm.

    Norm and ReLU come before a convolution, so that nothing but sums lies on the way of
    the shortcut. The stride is that of the 3x3 convolution. Where the unit changes the
    size or the number of channels, the shortcut is projected from what the first norm
    and ReLU give.

    Source:
        He et al., Identity mappings in deep residual networks, arXiv 1603.05027;
        Kolesnikov et al., Big Transfer, arXiv 1912.11370, and its released code.
    """

    parts = ("gn1", "conv1", "gn2", "conv2", "gn3", "conv3", "conv_proj")

    def __init__(self, filters, strides=1, groups=32, **kwargs):
        super().__init__(
            filters, strides, groups, padding="symmetric", epsilons="bit", **kwargs
        )

    def build(self, features_shape):
        batch, height, width, channels = features_shape
        outer = (batch, height, width, self.filters)
        inner = self.compute_output_shape(features_shape)[:3] + (self.filters,)
        wide = 4 * self.filters

        self._add_norm("gn1", features_shape)
        self._add_conv("conv1", features_shape, self.filters, 1)
        self._add_norm("gn2", outer)
        self._add_conv("conv2", outer, self.filters, 3, self.strides)
        self._add_norm("gn3", inner)
        self._add_conv("conv3", inner, wide, 1)
        self.projects = channels != wide or self.strides != (1, 1)
        if self.projects:
            self._add_conv("conv_proj", features_shape, wide, 1, self.strides)
        self.settle()

    def get_config(self):
        config = super().get_config()
        for fixed in ("padding", "epsilons"):
            del config[fixed]
        return config

    def call(self, features):
        active = ops.relu(self.gn1(features))
        shortcut = self.conv_proj(active) if self.projects else features
        features = self.conv1(active)
        features = self.conv2(ops.relu(self.gn2(features)))
        features = self.conv3(ops.relu(self.gn3(features)))
        return shortcut + features


Int8PreActivationUnit = int8_parts(PreActivationUnit, __name__)
