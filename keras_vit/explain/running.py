"""Models run while somebody watches, and gradients, on every backend."""

import contextlib
import math

import keras
import numpy as np
from keras import ops

from keras_vit.layers import TransformerBlock
from keras_vit.layers.watching import watched_by
from keras_vit.structure import grid_size, layers_of, num_layers

# Of a layer's attention weights, in float32 numbers: 64 MB.
_NUMBERS_AT_ONCE = 2**24


def checked(model, images):
    """Returns images as an array that a model takes.

    Args:
        model: `keras.Model`.
        images: array or tensor (images, height, width, channels), floats in [-1, 1].

    Returns:
        Float array of the same shape.

    Raises:
        ValueError: they are none, of another shape than the model takes, or integers.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
    >>> checked(model, np.zeros((1, 32, 32, 3), "float32")).shape
    (1, 32, 32, 3)
    """
    images = ops.convert_to_numpy(images)
    expected = model.input_shape
    fits = (
        len(images)
        and images.ndim == len(expected)
        and all(
            side in (None, given)
            for side, given in zip(expected, images.shape, strict=True)
        )
    )
    if not fits:
        raise ValueError(
            f"{model.name} takes images of shape (images, "
            f"{', '.join(map(str, expected[1:]))}) and at least one of them, got "
            f"{images.shape}: resize the images, or build the model with their "
            "image_size."
        )
    if images.dtype.kind != "f":
        raise ValueError(
            f"{model.name} takes floats in [-1, 1], got {images.dtype}: pass "
            "keras_vit.preprocess_input(images)."
        )
    return images


def run(model, images, make_watcher):
    """Runs a model on a few images at a time, without gradients.

    So few that the attention weights of a layer are at most 64 MB, or one.

    Args:
        model: `keras.Model` with a `TransformerBlock`.
        images: array of `checked`.
        make_watcher: function of the slice of the images that comes next, to a
            `keras_vit.layers.watching.Watcher`.

    Raises:
        ValueError: the model has no `TransformerBlock`.
    """
    num_layers(model)
    heads = max(block.num_heads for block in layers_of(model, TransformerBlock))
    tokens = math.prod(grid_size(model, images.shape[1:3])) + 1
    count = max(1, _NUMBERS_AT_ONCE // (heads * tokens**2))
    for start in range(0, len(images), count):
        part = slice(start, min(start + count, len(images)))
        with watched_by(make_watcher(part)), _without_gradients():
            model(images[part], training=False)


def gradients(function, tensors):
    """Returns the gradients of a number.

    Args:
        function: of a list of tensors to a scalar tensor.
        tensors: list of float32 arrays.

    Returns:
        List of arrays, one a tensor.

    Example:

    >>> three = np.array([3.0], "float32")
    >>> gradients(lambda tensors: ops.sum(tensors[0] ** 2), [three])
    [array([6.], dtype=float32)]
    """
    tensors = [ops.convert_to_tensor(tensor) for tensor in tensors]
    found = _GRADIENTS[keras.backend.backend()](function, tensors)
    return [np.array(ops.convert_to_numpy(gradient)) for gradient in found]


def _without_gradients():
    if keras.backend.backend() == "torch":
        import torch

        return torch.no_grad()
    return contextlib.nullcontext()


def _tensorflow(function, tensors):
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(tensors)
        value = function(tensors)
    return tape.gradient(value, tensors)


def _jax(function, tensors):
    import jax

    return jax.grad(function)(tensors)


def _torch(function, tensors):
    import torch

    tensors = [tensor.requires_grad_() for tensor in tensors]
    return torch.autograd.grad(function(tensors), tensors)


_GRADIENTS = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
