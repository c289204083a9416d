"""Layers whose kernels are stored as int8, and computed with in float."""

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.residual_unit import ResidualUnit
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.transformer_block import TransformerBlock


class _Int8Kernel:
    """A layer with an int8 variable `kernel`, and a float32 `kernel_scale` per channel.

    Their product is the attribute `kernel`, in the compute dtype: a scale on the
    outputs instead costs as much and overflows in float16.
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


class Int8Parts:
    """A layer of layers, those of which that have int8 forms are of these."""

    def part_class(self, kind):
        return INT8_CLASSES.get(kind, kind)


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8SelfAttention(Int8Parts, SelfAttention):
    """`SelfAttention` with int8 projections."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8MLP(Int8Parts, MLP):
    """`MLP` of two int8 layers."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8TransformerBlock(Int8Parts, TransformerBlock):
    """`TransformerBlock` with int8 attention and perceptron."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8ResidualUnit(Int8Parts, ResidualUnit):
    """`ResidualUnit` of int8 convolutions."""


# A layer's class -> its class with int8 kernels.
INT8_CLASSES = {
    keras.layers.Dense: Int8Dense,
    PatchEncoder: Int8PatchEncoder,
    StdConv2D: Int8StdConv2D,
    SelfAttention: Int8SelfAttention,
    MLP: Int8MLP,
    TransformerBlock: Int8TransformerBlock,
    ResidualUnit: Int8ResidualUnit,
}
