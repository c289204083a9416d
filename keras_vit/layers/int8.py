"""Layers whose kernels are stored as int8, and computed with in float."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.attention_pooling import AttentionPooling
from keras_vit.layers.base import Tensor
from keras_vit.layers.classification_head import ClassificationHead
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

    def add_weight(self, *args: Any, **kwargs: Any) -> Any:
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
    def kernel(self) -> Tensor:
        kernel = ops.cast(self._kernel, "float32") * self.kernel_scale
        return ops.cast(kernel, self.compute_dtype)

    def standardized(self, kernel: Tensor) -> Tensor:
        """Returns the kernel of a `StdConv2D`, which was standardised before."""
        return kernel

    def assign_int8(self, kernel: np.ndarray, scale: np.ndarray) -> None:
        """Takes the values of `keras_vit.weights.quantization.int8_and_scale`."""
        self._kernel.assign(kernel)
        self.kernel_scale.assign(scale)

    def enable_lora(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            f"{self.path} has an int8 kernel, which LoRA does not go with: tune the "
            "float model, and quantise what comes of it."
        )

    # Keras's own layers save `kernel` and `bias` alone.
    def save_own_variables(self, store: dict) -> None:
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: dict) -> None:
        keras.layers.Layer.load_own_variables(self, store)


# A layer's class -> its class with int8 kernels.
INT8_CLASSES = {}


def _int8(kind, *mixins, **members):
    """Adds the class of a layer's int8 form to `INT8_CLASSES`, and returns it."""
    members["__doc__"] = f"`{kind.__name__}` with int8 kernels."
    members["__module__"] = __name__
    form = type(f"Int8{kind.__name__}", (*mixins, kind), members)
    INT8_CLASSES[kind] = keras.saving.register_keras_serializable("keras_vit")(form)
    return form


# Files of models name them by these.
Int8Dense = _int8(keras.layers.Dense, _Int8Kernel)
Int8ClassificationHead = _int8(ClassificationHead, _Int8Kernel)
Int8PatchEncoder = _int8(PatchEncoder, _Int8Kernel)
Int8StdConv2D = _int8(StdConv2D, _Int8Kernel)
Int8SelfAttention = _int8(SelfAttention, part_classes=INT8_CLASSES)
Int8MLP = _int8(MLP, part_classes=INT8_CLASSES)
Int8AttentionPooling = _int8(AttentionPooling, part_classes=INT8_CLASSES)
Int8TransformerBlock = _int8(TransformerBlock, part_classes=INT8_CLASSES)
Int8PostNormBlock = _int8(PostNormBlock, part_classes=INT8_CLASSES)
Int8ResidualUnit = _int8(ResidualUnit, part_classes=INT8_CLASSES)
Int8PreActivationUnit = _int8(PreActivationUnit, part_classes=INT8_CLASSES)
