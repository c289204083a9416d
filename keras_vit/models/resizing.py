"""Copies of models for images of another size."""

import math
from typing import Any

import keras
import numpy as np

import zoo
from keras_vit import layers
from keras_vit.layers.base import Placed, with_parts
from keras_vit.layers.position_embedding import AddedPositions
from keras_vit.models.arguments import ANY_SIZE, size_of, takes_own_arguments
from keras_vit.structure import check_model, describe
from keras_vit.structure.architectures import check_one_grid
from keras_vit.structure.image_sizes import grid_size, patch_stride, what_fixes_size
from zoo.network.position_embedding import METHODS, RELATIVE_METHODS, resize_relative

_OF_GRID = (AddedPositions, layers.RelativePositionBias)
_ATTENTIVE = (layers.TransformerBlock, layers.SelfAttention)


@takes_own_arguments
def at_image_size(
    model: keras.Model,
    image_size: int | tuple[int | None, int | None],
    position_embedding_method: str | None = None,
) -> keras.Model:
    """Returns a model that computes the same for images of another size, or of any.

    Only its position embeddings and biases change: they are resized to the new grid of
    patches. A model for images of any size keeps the embeddings that it has, and
    resizes them to the grid of the images that it is given, biases too; rotary
    positions are computed for that grid.

    Args:
        model: a functional or sequential `keras.Model` of `keras_vit`, of its layers,
            or with one of its models inside. Weights, LoRA's too, and what is frozen
            are copied.
        image_size: int or (height, width) in pixels; or (None, None) for images of any
            size whose sides are multiples of the patch size. From such a model it
            leads back to a fixed size.
        position_embedding_method: see `VisionTransformer`; by default the rule of the
            library that the model's weights are of.

    Returns:
        A new `keras.Model` of the same kind and layers' names, not compiled.

    Raises:
        ValueError: the image cannot be cut into whole patches; the model has embeddings
            of relative positions, another layer with weights for one image size, or one
            that resizes all images to one size; with (None, None) also positions in a
            `keras.Sequential`; or the method is unknown.

    Source:
        Paper section 3.2, fine-tuning and higher resolution.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, classes=10)
        >>> at_image_size(model, (48, 64)).input_shape
        (None, 48, 64, 3)
    """
    check_model(model)
    check_one_grid(model)
    image_size = size_of(image_size)
    if not _takes_one_tensor(model):
        raise ValueError(
            f"at_image_size takes a functional or sequential model of one input, got "
            f"{model!r}: pass one made by keras_vit.VisionTransformer or one of the "
            "variants, or one that wraps it."
        )
    known = (None, *METHODS, *RELATIVE_METHODS)
    if position_embedding_method not in known:
        raise ValueError(
            f"position_embedding_method: unknown method {position_embedding_method!r}, "
            f"choose from {METHODS}."
        )
    if fixed := what_fixes_size(model, image_size):
        raise ValueError(
            f"The model {model.name} has the layer {fixed}, which makes "
            "images one size whatever they were: call at_image_size with the model "
            "behind it, and put what comes back behind a layer of the new size."
        )
    copies = _Copies(model, image_size, position_embedding_method)
    with layers.initial_values.left_out():
        images = _input_like(model, (*image_size, model.input_shape[-1]))
        copies.copies[model] = resized = copies.of_model(model, images)
    copies.take_weights()
    of_positions = {
        "position_resizing": METHODS,
        "relative_position_resizing": RELATIVE_METHODS,
    }
    changed = {
        name: position_embedding_method
        for name, methods in of_positions.items()
        if position_embedding_method in methods
    }
    return describe(resized, model, **changed)


def _takes_one_tensor(model):
    # A model of a class with a call of its own has no inputs.
    return len(getattr(model, "inputs", None) or ()) == 1


def _input_like(model, shape):
    [inputs] = model.inputs
    return keras.Input(shape, dtype=inputs.dtype, name=inputs.name)


class _Copies:
    """Copies of a model's layers, made as the graph reaches them."""

    def __init__(self, model, image_size, method):
        self.model, self.image_size, self.method = model, image_size, method
        # The grid of the copies, None for images of any size.
        self.grid = None
        # In a copy for images of any size: the `PatchEncoder` with its input, and
        # {(patch size, id of an input): the output of its one `PatchGrid`}.
        self.encoder = self.images = None
        self.patch_grids = {}
        self.copies = {}

    def of_model(self, model: keras.Model, images: keras.KerasTensor) -> keras.Model:
        """Returns a model of copies that takes `images` instead of its own input."""
        if isinstance(model, keras.Sequential):
            copy = keras.Sequential([images], name=model.name)
            for layer in model.layers:
                if self.image_size == ANY_SIZE and _takes_grid(layer):
                    raise ValueError(
                        f"The layer {layer.name} needs the grid of the images beside "
                        f"its tokens, which the sequential model {model.name} cannot "
                        "hand it: build a functional model of these layers."
                    )
                copy.add(
                    self.of_layer(layer, copy.outputs[0] if copy.layers else images)
                )
            return copy
        return keras.models.clone_model(
            model,
            input_tensors=images,
            clone_function=lambda layer: layer,
            call_function=self._called,
        )

    def _called(self, layer, *args, **kwargs):
        copy = self.of_layer(layer, *args)
        if self.image_size == ANY_SIZE and isinstance(layer, layers.PatchGrid):
            return self._patch_grid(copy, *args)
        if _takes_grid(layer):
            kwargs.pop("grid", None)
            if self.image_size == ANY_SIZE:
                grid = layers.PatchGrid(self.encoder.patch_size, name="patch_grid")
                kwargs["grid"] = self._patch_grid(grid, self.images)
        return copy(*args, **kwargs)

    def _patch_grid(self, layer, images):
        """Returns what a `PatchGrid`, or one like it before, gives for images."""
        key = layer.patch_size, id(images)
        if key not in self.patch_grids:
            self.patch_grids[key] = layer(images)
        return self.patch_grids[key]

    def of_layer(self, layer: keras.layers.Layer, *args: Any) -> keras.layers.Layer:
        """Returns the copy of a layer, made at its first call on some tensors."""
        if layer not in self.copies:
            self.copies[layer] = self._made(layer, *args)
        return self.copies[layer]

    def _made(self, layer, *args):
        if isinstance(layer, keras.Model):
            if not _takes_one_tensor(layer) or not hasattr(args[0], "shape"):
                raise ValueError(
                    f"The model {layer.name} in {self.model.name} is not of one input "
                    "and known layers: call at_image_size with the Vision Transformer "
                    "alone, and build the rest around what comes back."
                )
            return self.of_model(layer, _input_like(layer, args[0].shape[1:]))
        if isinstance(layer, layers.PatchEncoder):
            self.encoder, self.images = layer, args[0]
            if self.image_size != ANY_SIZE:
                self._set_grid(np.divide(args[0].shape[1:3], layer.patch_size))
        if isinstance(layer, Placed):
            copy = layer.resized(self.grid or self._own_grid(layer), self.method)
            if self.grid is None:
                copy.num_prefix_tokens = layer.length - math.prod(copy.grid_size)
            return copy
        config = layer.get_config()
        if (positions := _positions_of(layer)) is not None:
            config["positions"] = positions.resized(self.grid, self.method)
        return type(layer).from_config(config)

    def _own_grid(self, layer):
        return layer.grid_size or grid_size(self.model)

    def _set_grid(self, counts):
        self.grid = tuple(int(count) for count in counts)
        if (counts != self.grid).any():
            steps = patch_stride(self.model, self.image_size)
            missing = np.maximum(counts.round(), 1) - counts
            nearest = np.round(self.image_size + missing * steps).astype(int).tolist()
            raise ValueError(
                f"The model {self.model.name} cannot cut images of "
                f"{_by(self.image_size)} into whole patches of {_by(steps)} pixels: "
                f"pass image_size={tuple(nearest)}."
            )

    def take_weights(self) -> None:
        """Copies weights, LoRA's too, and what is frozen; positions are resized."""
        # A model hands its flag to what is in it, and is noted after that.
        for layer, copy in reversed(self.copies.items()):
            if isinstance(layer, keras.Model):
                copy.trainable = layer.trainable
        for layer, copy in self.copies.items():
            if getattr(layer, "weights", ()) and not isinstance(layer, keras.Model):
                self._take_weights_of(layer, copy)

    def _take_weights_of(self, layer, copy):
        parts = list(zip(with_parts(layer), with_parts(copy), strict=True))
        for part, other in parts:
            if getattr(part, "lora_enabled", False):
                if not other.lora_enabled:
                    other.enable_lora(part.lora_rank)
                # Keras leaves it out of the layer's configuration.
                other.lora_alpha = part.lora_alpha
        resized = {}
        for part, _ in parts:
            if isinstance(part, _OF_GRID) and self.grid is not None:
                resized |= self._resized(part)
        weights = [
            resized.get(id(weight), value)
            for weight, value in zip(layer.weights, layer.get_weights(), strict=True)
        ]
        if [value.shape for value in weights] != [
            tuple(weight.shape) for weight in copy.weights
        ]:
            raise ValueError(
                f"The layer {layer.name} of the model {self.model.name} has weights "
                "for one image size: leave it out of the model, and build it anew on "
                "what comes back."
            )
        copy.set_weights(weights)
        for part, other in parts:
            other.trainable = part.trainable
        for weight, original in zip(copy.weights, layer.weights, strict=True):
            weight.trainable = original.trainable

    def _resized(self, layer):
        """Returns {id of a variable: its values for the copies' grid} of a layer."""
        grids = self._own_grid(layer), self.grid
        rule, prefix = self.method or layer.resizing, layer.num_prefix_tokens
        return {
            id(weight): _resized(weight.name, _as_float(value), *grids, rule, prefix)
            for weight, value in zip(layer.weights, layer.get_weights(), strict=True)
        }


def _takes_grid(layer):
    return isinstance(layer, AddedPositions) or _positions_of(layer) is not None


def _positions_of(layer):
    """Returns the positions in the attention of a layer, or None."""
    return layer.positions if isinstance(layer, _ATTENTIVE) else None


def _as_float(value):
    # NumPy has no bfloat16 of its own; `set_weights` casts back.
    return value if value.dtype.kind == "f" else value.astype("float32")


def _by(sides):
    return "x".join(f"{side:g}" for side in sides)


def _resized(name, embedding, old_grid, new_grid, method, prefix):
    """Returns the values of a variable of positions for another grid."""
    if name == "position_embedding":
        return zoo.resize(embedding, old_grid, new_grid, method, prefix)
    if name == "row_embedding":
        # One per row (rows, 1, size).
        sizes = (old_grid[0], 1), (new_grid[0], 1)
        return zoo.resize(embedding.swapaxes(0, 1), *sizes, method).swapaxes(0, 1)
    if name == "column_embedding":
        # One per column (1, columns, size).
        return zoo.resize(embedding, (1, old_grid[1]), (1, new_grid[1]), method)
    if name == "relative_position_bias":
        return resize_relative(embedding, old_grid, new_grid, method)
    return embedding
