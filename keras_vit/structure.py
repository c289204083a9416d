"""What a model is made of, and how it cuts images into patches."""

import math

import keras
import numpy as np

from keras_vit.layers import ClassToken, PatchEncoder, PatchPooling, TransformerBlock
from keras_vit.layers.pre_activation_unit import PreActivationUnit
from keras_vit.layers.residual_unit import ResidualUnit

# What gives images of one size, whatever it takes.
_RESIZING = (
    keras.layers.CenterCrop,
    keras.layers.RandomCrop,
    keras.layers.Resizing,
)
# What makes a feature map smaller.
_STRIDED = (
    keras.layers.Conv2D,
    keras.layers.MaxPooling2D,
    PreActivationUnit,
    ResidualUnit,
)


def layers_of(model, *kinds):
    """Returns a model's layers of some classes, in order, those of models in it too.

    Args:
        model: `keras.Model`.
        *kinds: classes of layers.
    """
    found = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            found += layers_of(layer, *kinds)
        elif isinstance(layer, kinds):
            found.append(layer)
    return found


def num_layers(model):
    """Returns the number of a model's transformer blocks.

    Args:
        model: `keras.Model`.

    Raises:
        ValueError: it has none.

    Example:

    >>> num_layers(VisionTransformer("ViT-Ti_16", image_size=32))
    12
    """
    count = len(layers_of(model, TransformerBlock))
    if not count:
        raise ValueError(
            f"The model {model.name} has no TransformerBlock, and so no attention: "
            "pass a Vision Transformer."
        )
    return count


def check_once(model, layer):
    """Makes sure that a layer has a number of its own.

    Args:
        model: `keras.Model`.
        layer: int, how many of its blocks were called before this one.

    Raises:
        ValueError: all of them were, so one is called again.
    """
    if layer >= num_layers(model):
        raise ValueError(
            f"The model {model.name} calls a TransformerBlock more than once, which "
            "keras_vit.explain cannot tell apart: pass a model with a block a layer."
        )


def resizing_layers(model):
    """Returns the layers that make images one size before they are cut into patches.

    Args:
        model: `keras.Model` with a `PatchEncoder`.

    Raises:
        ValueError: it has none, or several.

    Example:

    >>> resizing_layers(VisionTransformer("ViT-Ti_16", image_size=32))
    []
    """
    return [layer for layer in _stem(model) if isinstance(layer, _RESIZING)]


def patch_stride(model, image_size=None):
    """Returns the pixels from one patch to the next, (vertical, horizontal).

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels of the images given, which count where
            the model resizes them; by default that of the model.

    Returns:
        Tuple of numbers; ints where they are whole.

    Raises:
        ValueError: the model has no `PatchEncoder`, or several; or resizes images of
            any size, and `image_size` is not given.

    Example:

    >>> patch_stride(VisionTransformer("R+ViT-Ti_16", image_size=64))
    (32, 32)
    """
    sides = model.input_shape[1:3] if image_size is None else image_size
    stride = np.array(_patch_encoder(model).patch_size, "float64")
    for layer in _stem(model):
        if isinstance(layer, keras.layers.Resizing):
            _check_known(model, sides)
            scales = np.divide(sides, (layer.height, layer.width))
            if layer.crop_to_aspect_ratio:
                scales = scales.min()
            elif layer.pad_to_aspect_ratio:
                scales = scales.max()
            stride *= scales
        elif not isinstance(layer, _RESIZING):
            stride *= layer.strides
        sides = _sides_after(layer, sides)
    return tuple(int(step) if step == int(step) else float(step) for step in stride)


def grid_size(model, image_size=None):
    """Returns the (rows, columns) of patches that a model cuts images into.

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels; by default that of the model.

    Returns:
        Tuple (rows, columns).

    Raises:
        ValueError: the model has no `PatchEncoder`, or takes images of any size and
            `image_size` is not given.

    Source:
        Paper section 3.1.

    Example:

    >>> grid_size(VisionTransformer("ViT-Ti_16", image_size=(32, 48)))
    (2, 3)
    """
    sides = model.input_shape[1:3] if image_size is None else image_size
    for layer in _stem(model):
        sides = _sides_after(layer, sides)
    _check_known(model, sides)
    encoder = _patch_encoder(model)
    return tuple(
        side // patch for side, patch in zip(sides, encoder.patch_size, strict=True)
    )


def pooling_of(model):
    """Returns what a model answers from, `"token"` or `"gap"`.

    Args:
        model: `keras.Model`.

    Example:

    >>> pooling_of(VisionTransformer("ViT-Ti_16", image_size=32, pooling="gap"))
    'gap'
    """
    if layers_of(model, PatchPooling) or not layers_of(model, ClassToken):
        return "gap"
    return "token"


def num_class_tokens(num_tokens, grid_size):
    """Returns how many tokens come before those of the patches: one, or none.

    Args:
        num_tokens: int.
        grid_size: (rows, columns) of the patches.

    Raises:
        ValueError: the tokens do not fit the grid.

    Example:

    >>> num_class_tokens(197, (14, 14))
    1
    """
    others = num_tokens - math.prod(grid_size)
    if others not in (0, 1):
        raise ValueError(
            f"{num_tokens} tokens are not those of a grid of {grid_size[0]}x"
            f"{grid_size[1]} patches and at most one class token: pass the grid that "
            "keras_vit.explain.grid_size(model) gives."
        )
    return others


def _patch_encoder(model):
    encoders = layers_of(model, PatchEncoder)
    if len(encoders) != 1:
        raise ValueError(
            f"The model {model.name} has {len(encoders)} layers of class PatchEncoder: "
            "pass a Vision Transformer, which has one."
        )
    return encoders[0]


def _stem(model):
    """The layers between the images and the `PatchEncoder` that change their size."""
    encoder = _patch_encoder(model)
    layers = layers_of(model, PatchEncoder, *_STRIDED, *_RESIZING)
    return layers[: layers.index(encoder)]


def _sides_after(layer, sides):
    if isinstance(layer, _RESIZING):
        return (layer.height, layer.width)
    return tuple(
        None if side is None else math.ceil(side / step)
        for side, step in zip(sides, layer.strides, strict=True)
    )


def _check_known(model, sides):
    if None in sides:
        raise ValueError(
            f"The model {model.name} takes images of any size: pass image_size."
        )
