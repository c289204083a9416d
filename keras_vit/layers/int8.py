"""The layers with kernels stored as int8 and computed with in float."""

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.pre_activation_unit import PreActivationUnit
from keras_vit.layers.residual_unit import ResidualUnit
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.transformer_block import TransformerBlock


class _Int8Kernel:
    """What the layers share that have a kernel of their own.

    The variable `kernel` is int8 and another, `kernel_scale`, has a float32 for each
    output channel. Their product is the attribute `kernel`, in the compute dtype: a
    scale on the outputs instead costs as much and overflows in float16.
    """

    def add_weight(self, *args, **kwargs):
        if kwargs.get("name") != "kernel":
            return super().add_weight(*args, **kwargs)
        self.kernel_scale = super().add_weight(
            name="kernel_scale",
            shape=kwargs["shape"][-1:],
            initializer="ones",
            dtype="float32",
            trainable=False,
            # Autocast would round it to half precision.
            autocast=False,
        )
        return keras.layers.Layer.add_weight(
            self,
            name="kernel",
            shape=kwargs["shape"],
            initializer="zeros",
            dtype="int8",
            trainable=False,
        )

    @property
    def kernel(self):
        kernel = ops.cast(self._kernel, "float32") * self.kernel_scale
        return ops.cast(kernel, self.compute_dtype)

    def assign_int8(self, kernel, scale):
        """Takes the values of `keras_vit.weights.quantization.int8_and_scale`."""
        self._kernel.assign(kernel)
        self.kernel_scale.assign(scale)

    def enable_lora(self, *args, **kwargs):
        raise ValueError(
            f"{self.path} has an int8 kernel, which LoRA does not go with: tune the "
            "float model, and quantise what comes of it."
        )

    # Keras's own layers save `kernel` and `bias` alone.
    def save_own_variables(self, store):
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store):
        keras.layers.Layer.load_own_variables(self, store)


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8Dense(_Int8Kernel, keras.layers.Dense):
    """`keras.layers.Dense` with an int8 kernel."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8PatchEncoder(_Int8Kernel, PatchEncoder):
    """`PatchEncoder` with an int8 kernel."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8StdConv2D(_Int8Kernel, StdConv2D):
    """`StdConv2D` whose int8 kernel is the standardised one."""

    def standardized(self, kernel):
        return kernel


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8SelfAttention(SelfAttention):
    """`SelfAttention` with int8 projections."""

    dense = Int8Dense


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8MLP(MLP):
    """`MLP` of two int8 layers."""

    dense = Int8Dense


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8TransformerBlock(TransformerBlock):
    """`TransformerBlock` of int8 branches."""

    self_attention = Int8SelfAttention
    perceptron = Int8MLP


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8ResidualUnit(ResidualUnit):
    """`ResidualUnit` of int8 convolutions."""

    convolution = Int8StdConv2D


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8PreActivationUnit(PreActivationUnit):
    """`PreActivationUnit` of int8 convolutions."""

    convolution = Int8StdConv2D
