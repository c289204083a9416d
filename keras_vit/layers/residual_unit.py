"""The bottleneck units of the hybrids' ResNet and of BiT's."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Composite, Shape, Tensor
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
        filters: int,
        strides: int | tuple[int, int] = 1,
        groups: int = 32,
        padding: str = "same",
        epsilons: str = "released",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.strides = pair(strides, "strides")
        self.groups = groups
        self.padding = padding
        self.epsilons = epsilons

    def build(self, features_shape: Shape) -> None:
        batch, height, width, channels = features_shape
        outer = (batch, height, width, self.filters)
        inner = self.compute_output_shape(features_shape)[:3] + (self.filters,)
        output = inner[:3] + (4 * self.filters,)
        self.projects = channels != output[-1] or self.strides != (1, 1)

        self._add_branch("1", features_shape, outer, 1)
        self._add_branch("2", outer, inner, 3, self.strides)
        self._add_branch("3", inner, output, 1)
        if self.projects:
            self._add_branch("_proj", features_shape, output, 1, self.strides)
        self.settle()

    def _add_branch(self, suffix, input_shape, output_shape, size, strides=1):
        """Makes a convolution and the norm of what it gives."""
        self._add_conv(suffix, input_shape, output_shape[-1], size, strides)
        # As released: a unit starts as its shortcut.
        self._add_norm(suffix, output_shape, "zeros" if suffix == "3" else "ones")

    def _add_conv(self, suffix, input_shape, filters, size, strides):
        self.add_part(
            StdConv2D,
            f"conv{suffix}",
            filters,
            size,
            input_shape=input_shape,
            strides=strides,
            padding=self.padding,
            epsilons=self.epsilons,
        )

    def _add_norm(self, suffix, shape, gamma="ones"):
        self.add_part(
            GroupNorm,
            f"gn{suffix}",
            self.groups,
            input_shape=shape,
            epsilon=_EPSILONS[self.epsilons],
            gamma_initializer=gamma,
        )

    def call(self, features: Tensor) -> Tensor:
        shortcut = features
        if self.projects:
            shortcut = self.gn_proj(self.conv_proj(features))
        features = ops.relu(self.gn1(self.conv1(features)))
        features = ops.relu(self.gn2(self.conv2(features)))
        return ops.relu(shortcut + self.gn3(self.conv3(features)))

    def compute_output_shape(self, features_shape: Shape) -> tuple:
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

    def __init__(
        self,
        filters: int,
        strides: int | tuple[int, int] = 1,
        groups: int = 32,
        **kwargs: Any,
    ):
        super().__init__(
            filters, strides, groups, padding="symmetric", epsilons="bit", **kwargs
        )

    def _add_branch(self, suffix, input_shape, output_shape, size, strides=1):
        """Makes a convolution and, but for the shortcut's, a norm before it."""
        if suffix != "_proj":
            self._add_norm(suffix, input_shape)
        self._add_conv(suffix, input_shape, output_shape[-1], size, strides)

    def call(self, features: Tensor) -> Tensor:
        active = ops.relu(self.gn1(features))
        shortcut = self.conv_proj(active) if self.projects else features
        features = self.conv1(active)
        features = self.conv2(ops.relu(self.gn2(features)))
        features = self.conv3(ops.relu(self.gn3(features)))
        return shortcut + features


def group_norm(name: str, epsilons: str) -> GroupNorm:
    """Returns an unbuilt group normalisation of the released ResNets."""
    return GroupNorm(32, epsilon=_EPSILONS[epsilons], name=name)


def root_pool(features: keras.KerasTensor, padding: str) -> keras.KerasTensor:
    """Returns what a ResNet's root convolution gives, at half the size."""
    if padding == "symmetric":
        # Zeros win over what is below zero where no ReLU comes before, as in BiT.
        features = keras.layers.ZeroPadding2D(
            1, data_format="channels_last", name="root_pad"
        )(features)
        padding = "valid"
    return keras.layers.MaxPooling2D(
        3, strides=2, padding=padding, data_format="channels_last", name="root_pool"
    )(features)


def stages(
    features: keras.KerasTensor,
    kind: type,
    depths: Sequence[int],
    width: int,
    name: str,
    **options: Any,
) -> keras.KerasTensor:
    """Returns what the units of all stages of a ResNet give, `depths` of them in each.

    A stage after the first has half the size and twice the filters, `width` at first.
    `name` is of a unit, with places for the numbers of its stage and its own.
    """
    for stage, num_units in enumerate(depths, start=1):
        for unit in range(1, num_units + 1):
            features = kind(
                filters=width * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                name=name.format(stage, unit),
                **options,
            )(features)
    return features
