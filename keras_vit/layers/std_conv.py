"""Weight-standardised convolution."""

import keras
from keras import ops

from keras_vit.layers.initial_values import initializer


@keras.saving.register_keras_serializable(package="keras_vit")
class StdConv2D(keras.layers.Conv2D):
    """2-D convolution whose kernels are standardised before use.

    Each filter is shifted and scaled to mean zero and deviation one over its window
    and its input channels: (w - mean) / (std + 1e-5), in float32.

    Args:
        filters: int, the number of output channels.
        kernel_size: int or (height, width).
        strides: int or (vertical, horizontal).
        padding: `"same"` (as released: what is odd is added at the bottom and right)
            or `"valid"`.
        use_bias: bool.
        kernel_initializer: as released by default.
        **kwargs: the other arguments of `keras.layers.Conv2D`.

    Call arguments:
        inputs: float tensor (batch, height, width, channels).

    Returns:
        Float tensor (batch, new_height, new_width, filters).

    Source:
        Qiao et al., arXiv 1903.10520; `conv_root`, `block1/unit1/conv1`, ... in the
        released hybrid files.

    Example:

    >>> layer = StdConv2D(64, 7, strides=2)
    >>> tuple(layer(keras.random.normal((2, 32, 48, 3))).shape)
    (2, 16, 24, 64)
    """

    def __init__(
        self,
        filters,
        kernel_size,
        strides=1,
        padding="same",
        use_bias=False,
        kernel_initializer="lecun_normal",
        **kwargs,
    ):
        kwargs.setdefault("data_format", "channels_last")
        super().__init__(
            filters,
            kernel_size,
            strides=strides,
            padding=padding,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )

    def add_weight(self, *args, **kwargs):
        if kwargs.get("name") == "kernel":
            # Autocast would round it to half precision before its mean is taken.
            kwargs["autocast"] = False
            kwargs["initializer"] = initializer(kwargs["initializer"])
        return super().add_weight(*args, **kwargs)

    def convolution_op(self, inputs, kernel):
        kernel = ops.cast(kernel, "float32")
        mean = ops.mean(kernel, axis=(0, 1, 2), keepdims=True)
        std = ops.std(kernel, axis=(0, 1, 2), keepdims=True)
        kernel = ops.cast((kernel - mean) / (std + 1e-5), self.compute_dtype)
        return super().convolution_op(inputs, kernel)
