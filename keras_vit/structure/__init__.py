"""A model's layers, its head and the tokens before those of patches."""

import contextlib
import dataclasses
import warnings
from typing import Any

import keras
import numpy as np

from keras_vit.layers import (
    ClassificationHead,
    ClassToken,
    LayerNorm,
    PatchEncoder,
    QueryPooling,
    RegisterTokens,
    StdConv2D,
    TransformerBlock,
    poolings,
)
from keras_vit.layers.base import prefix_tokens
from keras_vit.structure.architectures import check_one_grid
from zoo.common.safe_text import brief
from zoo.network.head import ONE_CLASS
from zoo.network.preparation import ModelBits, check_bits


def layers_of(model: keras.Model, *kinds: type) -> list:
    """Returns a model's layers of some classes, with those of models in it."""
    layers = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            layers += layers_of(layer, *kinds)
        elif isinstance(layer, kinds):
            layers.append(layer)
    return layers


def describe(copy: keras.Model, model: keras.Model, **changes: Any) -> keras.Model:
    """Hands what a model is, and those in it, to a copy of its layers; returns this.

    Keras's own cloning leaves it out, as the clone may be of another network. `changes`
    are of the `ViTConfig`; another config has them where it has such fields.
    """
    if (description := getattr(model, "description", None)) is not None:
        config, size = description.config, description.image_size
        sides = copy.input_shape[1:3]
        changed = {key: one for key, one in changes.items() if hasattr(config, key)}
        copy.description = dataclasses.replace(
            description,
            config=dataclasses.replace(config, **changed),
            image_size=size if None in sides else sides,
        )
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            describe(copy.get_layer(layer.name), layer, **changes)
    return copy


def last_layer(model: keras.Model) -> keras.layers.Layer:
    """Returns the layer that a model ends in, of a model at its end the last one."""
    while isinstance(model, keras.Model):
        model = model.layers[-1]
    return model


def head_of(model: keras.Model) -> keras.layers.Layer | None:
    """Returns a model's `ClassificationHead`, None without one of its own classes.

    It may be in a model in it, and have other layers behind it, such as a softmax.
    """
    heads, shapes = layers_of(model, ClassificationHead), model.output_shape
    shapes = [shapes] if isinstance(shapes, tuple) else shapes
    fitting = [head for head in heads if head.units in {shape[-1] for shape in shapes}]
    return fitting[-1] if fitting else None


def problem_type_of(model: keras.Model) -> str:
    """Returns what a model's outputs answer, as in `zoo.network.head`."""
    return getattr(head_of(model), "problem_type", ONE_CLASS)


def preparation_of(model: keras.Model) -> str:
    """Returns how photos come to a model's size, see `zoo.photos.prepare`.

    `layer_of_photos` says it.
    """
    return getattr(layer_of_photos(model), "preparation", "squash")


def bits_of(model: keras.Model) -> ModelBits | None:
    """Returns the bits of values in files of 16, see `zoo.photos.decode`, or None.

    `layer_of_photos` says them, as `zoo.network.preparation.ModelBits`.
    """
    bits = getattr(layer_of_photos(model), "bits", None)
    return bits and ModelBits(bits)


def set_bits(model: keras.Model, bits: int | None) -> None:
    """Sets the bits of values in files of 16, of heads and patch embeddings."""
    bits = check_bits(bits)
    for layer in layers_of(model, ClassificationHead, PatchEncoder):
        layer.bits = bits


def layer_of_photos(model: keras.Model) -> keras.layers.Layer | None:
    """Returns the layer that says how photos come to a model, None without one.

    This is the head, and of a model without one its patch embedding.
    """
    head = head_of(model)
    return head or next(iter(layers_of(model, PatchEncoder)), None)


def head_activation(model: keras.Model) -> str | None:
    """Returns the name of the activation that a model ends in, None for features.

    It is `"linear"` for logits.
    """
    last = last_layer(model)
    if isinstance(last, keras.layers.Softmax):
        return "softmax"
    activation = getattr(last, "activation", None)
    is_head = callable(activation) and last.name != "pre_logits"
    return activation.__name__ if is_head else None


def check_model(model: keras.Model) -> None:
    """Raises a `ValueError` if a model is something else, such as the path of one."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            f"model must be a keras.Model, got {brief(model)}: pass it as the first "
            "argument; keras.saving.load_model and keras_vit.load_model read files."
        )


def check_graph(model: keras.Model) -> None:
    """Raises a `ValueError` if a model does not say its inputs and outputs."""
    check_model(model)
    if getattr(model, "inputs", None) is None or model.outputs is None:
        raise ValueError(
            f"{model.name}, a {type(model).__name__}, does not say its inputs and "
            "outputs: pass keras.Model(images, model(images)) with images = "
            "keras.Input((height, width, channels))."
        )


def check_outputs(model: keras.Model) -> None:
    """Raises a `ValueError` unless a model has one input and one output."""
    check_graph(model)
    check_no_queries(model)
    if len(model.inputs) != 1 or len(model.outputs) != 1:
        raise ValueError(
            f"{model.name} has {len(model.inputs)} inputs and {len(model.outputs)} "
            "outputs, not one of each: pass keras.Model(model.inputs[0], "
            "model.outputs[0]), or another part of it."
        )


def check_no_queries(model: keras.Model) -> None:
    """Raises a `ValueError` if some blocks of a model have queries for masks."""
    if layers_of(model, QueryPooling):
        raise ValueError(
            f"{model.name} makes masks of queries, which only calling it gives: pass "
            "its encoder, model.rebuild(include_top=False), or of its file "
            "keras_vit.load_model(file, include_top=False)."
        )


def layer_of_pixels(model: keras.Model) -> keras.layers.Layer | None:
    """Returns a layer that takes a model's images in [0, 255], or None.

    Such as `keras.layers.Rescaling(1 / 255)`, with which Keras's own models begin.
    """
    for layer in model.layers:
        if _takes_pixels(layer) and _reads_images(layer, model):
            return layer
    return None


def _reads_images(layer, model):
    # A layer that is called twice has no single input.
    with contextlib.suppress(AttributeError, ValueError):
        return layer.input is model.inputs[0]
    return False


def _takes_pixels(layer):
    if isinstance(layer, keras.layers.Rescaling):
        return np.abs(layer.scale).max() < 0.1
    return isinstance(layer, keras.layers.Normalization) and np.max(layer.mean) > 2


def takes_unit_range(model: keras.Model) -> bool:
    """Returns whether a model's first layer is ours for images in [-1, 1]."""
    layers = [
        layer
        for layer in model.layers
        if not isinstance(layer, keras.layers.InputLayer)
    ]
    if layers and isinstance(layers[0], keras.Model):
        return takes_unit_range(layers[0])
    return bool(layers) and isinstance(layers[0], (PatchEncoder, StdConv2D))


def warn_of_pixels(model: keras.Model, images: Any, stacklevel: int = 2) -> bool:
    """Warns where images in [-1, 1] seem to be pixels; returns whether it did.

    Of an array the first and the last image are inspected: a maximum of all costs as
    much as a part of a small model.
    """
    highest = max(images[0].max(), images[-1].max())
    # Images scaled by ImageNet's mean and deviation go up to 2.7.
    if highest < 10 or not takes_unit_range(model):
        return False
    warnings.warn(
        f"{model.name} takes images in [-1, 1], and these go up to {highest:g}: pass "
        "keras_vit.preprocess_input(images).",
        stacklevel=stacklevel + 1,
    )
    return True


def num_layers(model: keras.Model) -> int:
    """Returns the number of a model's transformer blocks, at least one."""
    count = len(layers_of(model, TransformerBlock))
    if not count:
        raise ValueError(
            f"The model {model.name} has no TransformerBlock, and so no attention: "
            "pass a Vision Transformer."
        )
    check_one_grid(model)
    return count


def num_prefix_tokens(model: keras.Model) -> int:
    """Returns how many tokens a model puts before those of the patches."""
    layers = layers_of(model, ClassToken, RegisterTokens)
    return sum(layer.num_prefix_tokens for layer in layers)


def num_registers(model: keras.Model) -> int:
    """Returns how many tokens of a model are neither patches nor the class token."""
    return sum(layer.num_registers for layer in layers_of(model, RegisterTokens))


def prefix_tokens_of(
    array: Any, grid_size: tuple[int, int], axis: int = -1, num_registers: int = 0
) -> int:
    """Returns how many tokens of an axis come before those of a grid of patches."""
    remedy = "pass the grid that keras_vit.explain.grid_size(model) gives"
    if not num_registers:
        remedy += ", and num_registers where there are some"
    length = np.shape(array)[axis]
    return prefix_tokens(length, grid_size, "The model", remedy, num_registers)


def pooling_of(model: keras.Model) -> str:
    """Returns whose attention a model's output shows, `"token"` or `"gap"`.

    `"token"` where the output is computed from the class token, among others.
    """
    pooling = poolings.POOLINGS[kind_of_pooling(model)]
    return "token" if pooling.class_token else "gap"


def kind_of_pooling(model: keras.Model) -> str:
    """Returns what a model's output is computed from, see `VisionTransformer`."""
    pooling_layers = layers_of(model, *poolings.layer_classes())
    if pooling_layers:
        return poolings.kind_of_layer(pooling_layers[-1])
    return "token" if layers_of(model, ClassToken) else "gap"


def gives_features(layer: keras.layers.Layer) -> bool:
    """Returns whether a layer's outputs are features, and no answers of a head.

    A norm counts, which may come behind the pooling.
    """
    kinds = (*poolings.layer_classes(), LayerNorm, keras.layers.GlobalAveragePooling1D)
    return isinstance(layer, kinds) or layer.name == "pre_logits"


def pooled_features(model: keras.Model) -> Any:
    """Returns the tensor (batch, size) that a model's head reads, or None.

    Without a head it is the output of the pooling or of `pre_logits`.
    """
    last = model.layers[-1]
    has_head = isinstance(last, keras.layers.Dense) and last.name != "pre_logits"
    features = last.input if has_head else model.outputs[0]
    known = has_head or gives_features(last)
    return features if known and len(features.shape) == 2 else None
