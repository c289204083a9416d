"""What a network computes besides its arrays, where sources differ."""

from __future__ import annotations

import dataclasses
import sys

from zoo.text import brief

ACTIVATIONS = ("gelu_tanh", "gelu")
RESNET_PADDINGS = ("same", "symmetric")
RESNET_EPSILONS = ("released", "timm")
# The inputs aside, these change a network's layers.
COMPUTED = ("activation", "layer_norm_epsilon", "resnet_padding", "resnet_epsilons")


@dataclasses.dataclass(frozen=True)
class Semantics:
    """What the network of a checkpoint computes; the defaults are the released ones.

    Args:
        activation: `"gelu_tanh"`, or `"gelu"` for the exact one of the error function.
        layer_norm_epsilon: float, added to the variance.
        input_mean: three floats, of the channels of images in [0, 1].
        input_std: three floats; the network takes (image - mean) / std.
        resnet_padding: of a hybrid's convolutions and pooling: `"same"`, which adds
            what is odd at the bottom and right, or `"symmetric"`.
        resnet_epsilons: of a hybrid's ResNet: `"released"` for 1e-6 in the group
            norms and 1e-5 added to the deviation of a kernel, or `"timm"` for 1e-5
            and 1e-8 added to the variance of a kernel.

    Raises:
        ValueError: a value is none of these.

    Source: `models_vit.py` and `models_resnet.py` of the released code;
    `ViTConfig` of transformers; `vision_transformer_hybrid.py` of timm.

    Example:
        >>> from zoo.semantics import Semantics
        >>> Semantics(layer_norm_epsilon=1e-12).differences(Semantics())
        {'layer_norm_epsilon': (1e-12, 1e-06)}
    """

    activation: str = "gelu_tanh"
    layer_norm_epsilon: float = 1e-6
    input_mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    input_std: tuple[float, ...] = (0.5, 0.5, 0.5)
    resnet_padding: str = "same"
    resnet_epsilons: str = "released"

    def __post_init__(self):
        for name, choices in (
            ("activation", ACTIVATIONS),
            ("resnet_padding", RESNET_PADDINGS),
            ("resnet_epsilons", RESNET_EPSILONS),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, got "
                    f"{brief(getattr(self, name))}."
                )
        _check_number("layer_norm_epsilon", self.layer_norm_epsilon, positive=True)
        for name in ("input_mean", "input_std"):
            values = getattr(self, name)
            if not isinstance(values, (tuple, list)) or not values:
                raise ValueError(
                    f"{name} must be a float a channel, got {brief(values)}."
                )
            for value in values:
                _check_number(name, value, positive=name == "input_std")
            object.__setattr__(self, name, tuple(map(float, values)))
        if len(self.input_mean) != len(self.input_std):
            raise ValueError(
                f"input_mean has {len(self.input_mean)} channels and input_std has "
                f"{len(self.input_std)}: give both a float a channel."
            )

    @property
    def takes_unit_range(self) -> bool:
        """Whether the network takes images in [-1, 1], as the released ones do."""
        return {*self.input_mean, *self.input_std} == {0.5}

    def differences(self, other: Semantics) -> dict[str, tuple]:
        """Returns what differs: {name: (this one's value, the other's)}."""
        return {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }


def _check_number(name, value, positive):
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # An int can be too large to be a float.
    finite = number and abs(value) <= sys.float_info.max
    if not finite or (positive and value <= 0):
        kind = "a positive number" if positive else "a number"
        raise ValueError(f"{name} must be {kind}, got {brief(value)}.")
