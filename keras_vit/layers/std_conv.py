"""Weight-standardised convolution."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.base import Shape, Tensor
from keras_vit.layers.initial_values import initializer

_VARIANCE_EPSILONS = {"timm": 1e-8, "bit": 1e-10}


@keras.saving.register_keras_serializable(package="keras_vit")
class StdConv2D(keras.layers.Conv2D):
    """2-D convolution whose kernels are standardised before use.

    Each filter gets mean zero and deviation one over its window and its input channels,
    in float32.

    Args:
        filters: int, the number of output channels.
        kernel_size: int or (height, width).
        strides: int or (vertical, horizontal).
        padding: `"same"` (as released: what is odd is added at the bottom and right),
            `"symmetric"` (as PyTorch pads) or `"valid"`.
        use_bias: bool.
        kernel_initializer: as released by default.
        epsilons: `"released"` for (w - mean) / (std + 1e-5), `"timm"` for
            (w - mean) / sqrt(variance + 1e-8), or `"bit"` for the same with 1e-10.
        **kwargs: of `keras.layers.Conv2D`.

    Call arguments:
        inputs: float tensor (batch, height, width, channels).

    Returns:
        Float tensor (batch, new_height, new_width, filters).

    Raises:
        ValueError: an argument is unknown.

    Source:
        Qiao et al., arXiv 1903.10520; `conv_root`, `block1/unit1/conv1`, ... in the
        released hybrid files; the released code of BiT, arXiv 1912.11370.

    Example:
        >>> layer = StdConv2D(64, 7, strides=2)
        >>> tuple(layer(keras.random.normal((2, 32, 48, 3))).shape)
        (2, 16, 24, 64)
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int | tuple[int, int] = 1,
        padding: str = "same",
        use_bias: bool = False,
        kernel_initializer: Any = "lecun_normal",
        epsilons: str = "released",
        **kwargs: Any,
    ):
        kwargs.setdefault("data_format", "channels_last")
        symmetric = padding == "symmetric"
        super().__init__(
            filters,
            kernel_size,
            strides=strides,
            padding="valid" if symmetric else padding,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        if epsilons not in ("released", *_VARIANCE_EPSILONS):
            raise ValueError(
                f'{self.name}: epsilons must be "bit", "released" or "timm", got '
                f"{epsilons!r}."
            )
        self.symmetric = symmetric
        self.epsilons = epsilons

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("name") == "kernel":
            # Autocast would round it to half precision before its mean is taken.
            kwargs["autocast"] = False
            kwargs["initializer"] = initializer(kwargs["initializer"])
        return super().add_weight(*args, **kwargs)

    def standardized(self, kernel: Tensor) -> Tensor:
        """Returns the float32 kernel that the inputs are convolved with."""
        kernel = ops.cast(kernel, "float32")
        axes = (0, 1, 2)
        centred = kernel - ops.mean(kernel, axis=axes, keepdims=True)
        if self.epsilons in _VARIANCE_EPSILONS:
            variance = ops.var(kernel, axis=axes, keepdims=True)
            return centred * ops.rsqrt(variance + _VARIANCE_EPSILONS[self.epsilons])
        return centred / (ops.std(kernel, axis=axes, keepdims=True) + 1e-5)

    def convolution_op(self, inputs: Tensor, kernel: Tensor) -> Tensor:
        kernel = ops.cast(self.standardized(kernel), self.compute_dtype)
        if self.symmetric:
            inputs = ops.pad(inputs, self._margins())
        return super().convolution_op(inputs, kernel)

    def _margins(self):
        # (before, after) of each axis.
        height, width = (
            (stride - 1 + dilation * (size - 1)) // 2
            for stride, dilation, size in zip(
                self.strides, self.dilation_rate, self.kernel_size, strict=True
            )
        )
        sides = [(height, height), (width, width)]
        if self.data_format == "channels_last":
            return [(0, 0), *sides, (0, 0)]
        return [(0, 0), (0, 0), *sides]

    def compute_output_shape(self, input_shape: Shape) -> tuple:
        if self.symmetric:
            input_shape = tuple(
                None if side is None else side + sum(margin)
                for side, margin in zip(input_shape, self._margins(), strict=True)
            )
        return super().compute_output_shape(input_shape)

    def get_config(self) -> dict:
        config = {**super().get_config(), "epsilons": self.epsilons}
        return {**config, "padding": "symmetric"} if self.symmetric else config
