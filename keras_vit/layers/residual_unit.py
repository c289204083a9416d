"""The bottleneck units of the hybrids' ResNet and of BiT's."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite
from keras_vit.layers.group_norm import GroupNorm
from keras_vit.layers.std_conv import StdConv2D
from zoo.network import pair

_EPSILONS = {"released": 1e-6, "timm": 1e-5, "bit": 1e-5}


@keras.saving.register_keras_serializable(package="keras_vit")
class ResidualUnit(Composite):
    """Bottleneck of three weight-standardised convolutions with group norms.

    The stride is that of the 3x3 convolution. The shortcut is projected where the
    unit changes the size or the number of channels.

    Args:
        filters: int, of the bottleneck; the output has four times as many channels.
        strides: int or (vertical, horizontal).
        groups: int, of the group norms, 32 in the released models.
        padding: see `StdConv2D`.
        epsilons: see `StdConv2D`; that of the group norms is 1e-6 with `"released"`,
            else 1e-5.

    Call arguments:
        features: float tensor (batch, height, width, channels).

    Returns:
        Float tensor (batch, ceil(height / stride), ceil(width / stride), 4 * filters).

    Source:
        Paper section 3.1 "Hybrid Architecture"; `block1/unit1`, ... in the released
        hybrid files; He et al., arXiv 1512.03385.

    Example:
        >>> unit = ResidualUnit(filters=64, strides=2)
        >>> tuple(unit(keras.random.normal((2, 14, 14, 64))).shape)
        (2, 7, 7, 256)
    """

    parts: tuple[str, ...] = (
        "conv1",
        "gn1",
        "conv2",
        "gn2",
        "conv3",
        "gn3",
        "conv_proj",
        "gn_proj",
    )

    def __init__(
        self,
        filters,
        strides: int = 1,
        groups: int = 32,
        padding: str = "same",
        epsilons="released",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = pair(strides, "strides")
        self.groups = groups
        self.padding = padding
        self.epsilons = epsilons

    def build(self, features_shape) -> None:
        batch, height, width, channels = features_shape
        outer = (batch, height, width, self.filters)
        inner = self.compute_output_shape(features_shape)[:3] + (self.filters,)
        output = inner[:3] + (4 * self.filters,)

        self._add_branch("1", features_shape, outer, 1)
        self._add_branch("2", outer, inner, 3, self.strides)
        # As released: a unit starts as its shortcut.
        self._add_branch("3", inner, output, 1, gamma_initializer="zeros")
        self.projects = channels != 4 * self.filters or self.strides != (1, 1)
        if self.projects:
            self._add_branch("_proj", features_shape, output, 1, self.strides)
        self.settle()

    def _add_branch(self, suffix, input_shape, output_shape, size, strides=1, **norm):
        filters = output_shape[-1]
        self._add_conv(f"conv{suffix}", input_shape, filters, size, strides)
        self._add_norm(f"gn{suffix}", output_shape, **norm)

    def _add_conv(self, name, input_shape, filters, size, strides=1):
        self.add_part(
            StdConv2D,
            name,
            filters,
            size,
            input_shape=input_shape,
            strides=strides,
            padding=self.padding,
            epsilons=self.epsilons,
        )

    def _add_norm(self, name, shape, **kwargs):
        self.add_part(
            GroupNorm,
            name,
            self.groups,
            input_shape=shape,
            epsilon=_EPSILONS[self.epsilons],
            **kwargs,
        )

    def call(self, features) -> Any:
        shortcut = features
        if self.projects:
            shortcut = self.gn_proj(self.conv_proj(features))
        features = ops.relu(self.gn1(self.conv1(features)))
        features = ops.relu(self.gn2(self.conv2(features)))
        return ops.relu(shortcut + self.gn3(self.conv3(features)))

    def compute_output_shape(self, features_shape) -> tuple:
        batch, *sides, _ = features_shape
        strided = [
            None if side is None else -(-side // stride)
            for side, stride in zip(sides, self.strides, strict=True)
        ]
        return (batch, *strided, 4 * self.filters)


@keras.saving.register_keras_serializable(package="keras_vit")
class PreActivationUnit(ResidualUnit):
    """Bottleneck of three weight-standardised convolutions, each after a group norm.

    Norm and ReLU come before a convolution, so that nothing but sums lies on the way of
    the shortcut. The stride is that of the 3x3 convolution. Where the unit changes the
    size or the number of channels, the shortcut is projected from what the first norm
    and ReLU give.

    Args:
        filters: see `ResidualUnit`.
        strides: see `ResidualUnit`.
        groups: see `ResidualUnit`.

    Call arguments:
        features: see `ResidualUnit`.

    Returns:
        See `ResidualUnit`.

    Source:
        He et al., Identity mappings in deep residual networks, arXiv 1603.05027;
        Kolesnikov et al., Big Transfer, arXiv 1912.11370, and its released code.

    Example:
        >>> unit = PreActivationUnit(filters=64, strides=2)
        >>> tuple(unit(keras.random.normal((2, 14, 14, 64))).shape)
        (2, 7, 7, 256)
    """

    parts = ("gn1", "conv1", "gn2", "conv2", "gn3", "conv3", "conv_proj")

    def __init__(self, filters, strides: int = 1, groups: int = 32, **kwargs):
        super().__init__(
            filters, strides, groups, padding="symmetric", epsilons="bit", **kwargs
        )

    def build(self, features_shape) -> None:
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

    def call(self, features) -> Any:
        active = ops.relu(self.gn1(features))
        shortcut = self.conv_proj(active) if self.projects else features
        features = self.conv1(active)
        features = self.conv2(ops.relu(self.gn2(features)))
        features = self.conv3(ops.relu(self.gn3(features)))
        return shortcut + features


def group_norm(name: str, epsilons) -> GroupNorm:
    """Returns an unbuilt group normalisation of the released ResNets."""
    return GroupNorm(32, epsilon=_EPSILONS[epsilons], name=name)
