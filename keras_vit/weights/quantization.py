"""Quantization of weights to int8."""

import keras
import numpy as np
from keras import ops

from keras_vit.layers import StdConv2D
from keras_vit.layers.base import with_parts
from keras_vit.layers.int8 import INT8_CLASSES
from keras_vit.structure import check_model, describe

_MAKERS = "keras_vit.VisionTransformer or one of the variants"


def quantize_weights(model: keras.Model) -> keras.Model:
    """Returns a model that keeps its kernels as int8, a quarter of their size.

    Each output channel of a kernel is divided by its largest magnitude / 127 and
    rounded. The model computes in its dtype policy as before, with kernels of the
    rounded values times these scales. Activations, biases, norms, position embeddings
    and the class token stay as they are. The standardised convolutions of hybrids keep
    their standardised kernels.

    `keras.Model.save` keeps such a model, files of released names do not. Its kernels
    are not trainable: fine-tune before, with `model` itself.

    Args:
        model: a functional `keras.Model`: one of ours, or one with layers of ours or
            `keras.layers.Dense`. It is not changed; other layers are copied.

    Returns:
        A new functional `keras.Model` of the same layers' names, not compiled.

    Raises:
        ValueError: the model is not functional, has no kernels, int8 ones or LoRA's
            that are not merged, or a kernel is not finite.

    Source:
        Symmetric quantisation per channel: Krishnamoorthi, arXiv 1806.08342, section
        3.1. What Keras's own `Model.quantize` does instead is in docs/export.md.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> quantize_weights(model).save("int8.keras")
        >>> keras.saving.load_model("int8.keras").output_shape
        (None, 10)
    """
    check_model(model)
    if not getattr(model, "inputs", None):
        raise ValueError(
            f"{model!r} is not a functional model: pass one made by {_MAKERS}."
        )
    if is_quantized(model):
        raise ValueError(
            f"Model {model.name!r} has int8 weights already: pass the float model."
        )
    if any(weight.name.startswith("lora_kernel") for weight in model.weights):
        raise ValueError(
            f"Model {model.name!r} has LoRA's kernels beside its own: save it with "
            "Model.save, which merges them, and pass the model loaded from there."
        )
    copies = {}

    def quantized_layer(layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = INT8_CLASSES.get(type(layer), type(layer))
        copies[layer] = kind.from_config(layer.get_config())
        return copies[layer]

    quantized = keras.models.clone_model(
        model, clone_function=quantized_layer, recursive=True
    )
    if not is_quantized(quantized):
        raise ValueError(
            f"Model {model.name!r} has no kernels to quantise: pass a model made by "
            f"{_MAKERS}."
        )
    for layer, copy in copies.items():
        if getattr(layer, "weights", ()):  # an operation has none
            _copy_weights(layer, copy)
    return describe(quantized, model)


def is_quantized(model: keras.Model) -> bool:
    """Returns whether a built model has int8 weights."""
    return any(variable.dtype == "int8" for variable in model.weights)


def int8_and_scale(kernel: np.ndarray) -> tuple:
    """Rounds a kernel to int8 in [-127, 127], with a float32 scale per channel.

    Channels are last. The product of both is the kernel to half a scale; a channel of
    zeros is kept exactly.
    """
    kernel = np.asarray(kernel, "float64")
    largest = np.abs(kernel).max(axis=tuple(range(kernel.ndim - 1)))
    scale = (largest / 127).astype("float32")
    # Processors may take a smaller scale for zero: such channels are zeros as well.
    scale[scale < np.finfo("float32").tiny] = 1
    rounded = np.rint(kernel / scale)
    return np.clip(rounded, -127, 127).astype("int8"), scale


def _copy_weights(layer, copy):
    if type(layer) not in INT8_CLASSES:
        copy.set_weights(layer.get_weights())
        return
    for source, target in zip(with_parts(layer), with_parts(copy), strict=True):
        if hasattr(target, "assign_int8"):
            target.assign_int8(*int8_and_scale(_kernel(source)))
    for source, target in zip(_others(layer), _others(copy), strict=True):
        target.assign(source)


def _kernel(layer):
    kernel = layer.kernel
    if isinstance(layer, StdConv2D):
        kernel = layer.standardized(kernel)
    kernel = ops.convert_to_numpy(ops.cast(kernel, "float32"))
    if not np.isfinite(kernel).all():
        raise ValueError(
            f"The kernel of {layer.path} has values that are not finite: load "
            "weights that are."
        )
    return kernel


def _others(layer):
    # Other weights stay as they are, in their own order.
    kernels = ("kernel", "kernel_scale")
    return [weight for weight in layer.weights if weight.name not in kernels]
