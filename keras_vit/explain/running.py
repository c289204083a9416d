"""Running a model while its layers are watched, and gradients, on every backend."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import structure
from keras_vit.layers import TransformerBlock
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.structure import image_sizes
from keras_vit.structure.numbers import OF_PHOTOS, check_numbers

# The most attention weights of a layer at once: 64 MB in float32.
_NUMBERS_AT_ONCE = 2**24


def check_images(model: keras.Model, images: Any) -> np.ndarray:
    """Returns images as a float array; a ValueError where a model cannot take them."""
    structure.check_graph(model)
    structure.check_no_queries(model)
    images = check_numbers(images, "images", OF_PHOTOS)
    images = ops.convert_to_numpy(images)
    image_sizes.check_images_shape(model, images.shape)
    if images.dtype.kind != "f":
        raise ValueError(
            f"{model.name} takes floats in [-1, 1], got {images.dtype}: pass "
            "keras_vit.preprocess_input(images)."
        )
    structure.warn_of_pixels(model, images, stacklevel=3)
    return images


def indices_of(
    numbers: int | Sequence[int] | None, count: int, what: str, model: keras.Model
) -> list[int]:
    """Returns the numbers of some of `count` layers or heads, None for all, as ints."""
    numbers = np.arange(count) if numbers is None else np.atleast_1d(numbers)
    for number in numbers:
        if (
            not isinstance(number, (int, float, np.number))
            or not -count <= number < count
        ):
            raise ValueError(
                f"The model {model.name} has no {what} {number}: pass numbers from "
                f"{-count} to {count - 1}."
            )
    return [int(number) % count for number in numbers]


def run(
    model: keras.Model,
    images: np.ndarray,
    attention: Callable | None = None,
    pooling: Callable | None = None,
    tokens_of: int | None = None,
) -> tuple[list, list]:
    """Runs a model without gradients, and calls functions with what its layers compute.

    `attention` is called with the index of each layer, the slice of the images and the
    float32 attention weights (images, num_heads, queries, tokens), `pooling` with 0,
    the slice and the weights of an attention pooling (images, num_heads, 1, tokens).
    The images are divided so that the attention weights of a layer are at most 64 MB,
    or one image's. Returns the model's outputs, and those (images, tokens, hidden_size)
    of the block `tokens_of`, one per part of the images.
    """
    without_gradients = contextlib.nullcontext
    if keras.backend.backend() == "torch":
        from torch import no_grad as without_gradients
    count = structure.num_layers(model)
    heads = max(
        block.num_heads for block in structure.layers_of(model, TransformerBlock)
    )
    grid = image_sizes.grid_size(model, images.shape[1:3])
    num_tokens = math.prod(grid) + structure.num_prefix_tokens(model)
    at_once = max(1, _NUMBERS_AT_ONCE // (heads * num_tokens**2))

    def watched(function: Callable | None, part: slice, layers: Iterator) -> Callable:
        def see(values: Any) -> Any:
            layer = next(layers, None)
            if layer is None:
                raise ValueError(
                    f"The model {model.name} calls a TransformerBlock more than once, "
                    "which keras_vit.explain cannot distinguish: pass a model with a "
                    "block per layer."
                )
            if function is not None:
                function(layer, part, values)
            return values

        return see

    outputs, tokens = [], []

    def keep(layer: int, part: slice, values: Any) -> None:
        if layer == tokens_of:
            tokens.append(values)

    for start in range(0, len(images), at_once):
        part = slice(start, min(start + at_once, len(images)))
        watcher = Watcher(
            watched(attention, part, iter(range(count))),
            watched(keep, part, iter(range(count))),
            pooling=watched(pooling, part, itertools.repeat(0)),
        )
        with running(watcher=watcher), without_gradients():
            outputs.append(model(images[part], training=False))
    return outputs, tokens


def gradients(
    function: Callable[[list], Any], arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Returns the gradients of a scalar function of a list of tensors."""
    tensors = [ops.convert_to_tensor(array) for array in arrays]
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensors)
            value = function(tensors)
        derivatives = tape.gradient(value, tensors)
    elif backend == "jax":
        import jax

        derivatives = jax.grad(function)(tensors)
    else:
        import torch

        tensors = [tensor.requires_grad_() for tensor in tensors]
        derivatives = torch.autograd.grad(function(tensors), tensors)
    return [np.array(ops.convert_to_numpy(gradient)) for gradient in derivatives]
