"""Layers whose kernels are stored as int8, and computed with in float."""

from typing import Any

import keras
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.classification_head import ClassificationHead
from keras_vit.layers.map_head import AttentionPooling
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_encoder import PatchEncoder
from keras_vit.layers.residual_unit import PreActivationUnit, ResidualUnit
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.transformer_block import PostNormBlock, TransformerBlock


class _Int8Kernel:
    """A layer with an int8 variable `kernel`, and a float32 `kernel_scale` per channel.

    Their product is the attribute `kernel`, in the compute dtype: a scale on the
    outputs instead costs as much and overflows in float16.
    """

    def add_weight(self, *args, **kwargs) -> Any:
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
    def kernel(self) -> Any:
        kernel = ops.cast(self._kernel, "float32") * self.kernel_scale
        return ops.cast(kernel, self.compute_dtype)

    def assign_int8(self, kernel, scale) -> None:
        """Takes the values of `keras_vit.weights.quantization.int8_and_scale`."""
        self._kernel.assign(kernel)
        self.kernel_scale.assign(scale)

    def enable_lora(self, *args, **kwargs) -> None:
        raise ValueError(
            f"{self.path} has an int8 kernel, which LoRA does not go with: tune the "
            "float model, and quantise what comes of it."
        )

    # Keras's own layers save `kernel` and `bias` alone.
    def save_own_variables(self, store) -> None:
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store) -> None:
        keras.layers.Layer.load_own_variables(self, store)


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8Dense(_Int8Kernel, keras.layers.Dense):
    """`keras.layers.Dense` with an int8 kernel."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8ClassificationHead(_Int8Kernel, ClassificationHead):
    """`ClassificationHead` with an int8 kernel."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8PatchEncoder(_Int8Kernel, PatchEncoder):
    """`PatchEncoder` with an int8 kernel."""


@keras.saving.register_keras_serializable(package="keras_vit")
class Int8StdConv2D(_Int8Kernel, StdConv2D):
    """`StdConv2D` whose int8 kernel is the standardised one."""

    def standardized(self, kernel) -> Any:
        return kernel


# A layer's class -> its class with int8 kernels.
INT8_CLASSES = {
    ClassificationHead: Int8ClassificationHead,
    keras.layers.Dense: Int8Dense,
    PatchEncoder: Int8PatchEncoder,
    StdConv2D: Int8StdConv2D,
}


def int8_parts(kind: type) -> type:
    """Returns the class of a layer of layers whose parts have int8 kernels."""
    members = {
        "__doc__": f"`{kind.__name__}` whose parts have int8 kernels.",
        "__module__": __name__,
        "part_classes": INT8_CLASSES,
    }
    form = type(f"Int8{kind.__name__}", (kind,), members)
    INT8_CLASSES[kind] = keras.saving.register_keras_serializable("keras_vit")(form)
    return INT8_CLASSES[kind]


# Files of models name them by these.
Int8SelfAttention = int8_parts(SelfAttention)
Int8MLP = int8_parts(MLP)
Int8AttentionPooling = int8_parts(AttentionPooling)
Int8TransformerBlock = int8_parts(TransformerBlock)
Int8PostNormBlock = int8_parts(PostNormBlock)
Int8ResidualUnit = int8_parts(ResidualUnit)
Int8PreActivationUnit = int8_parts(PreActivationUnit)
