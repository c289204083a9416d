"""What a model is made of, and how it cuts images into patches."""

import math

import keras
import numpy as np

from keras_vit.layers import ClassToken, PatchEncoder, PatchPooling, TransformerBlock
from keras_vit.layers.pre_activation_unit import PreActivationUnit
from keras_vit.layers.residual_unit import ResidualUnit

# What makes a feature map smaller by its `strides`.
_STRIDED = (
    keras.layers.Conv2D,
    keras.layers.MaxPooling2D,
    PreActivationUnit,
    ResidualUnit,
)
# What cuts images and adds to them at their edges.
_EDGES = (keras.layers.Cropping2D, keras.layers.ZeroPadding2D)
# What cuts images that are large enough, and resizes others.
_CROPS = (keras.layers.CenterCrop, keras.layers.RandomCrop)


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


def what_fixes_size(model, image_size):
    """Returns what makes images one size before they are cut into patches, or None.

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels, other than that of the model.

    Returns:
        Name of the first layer or operation that gives as much for one as the
        other.

    Raises:
        ValueError: as `grid_size`.

    Example:

    >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
    >>> what_fixes_size(model, (64, 64)) is None
    True
    """
    old, new = _Walk(model), _Walk(model, image_size)
    if old.images == new.images or old.grid != new.grid:
        return None
    for (operation, sides), (_, others) in zip(old.seen, new.seen, strict=True):
        # 47 pixels and 48 are 24 alike at a stride of 2.
        if sides == others and not isinstance(operation, _STRIDED):
            return operation.name
    return None


def patch_stride(model, image_size=None):
    """Returns the pixels from one patch to the next, (vertical, horizontal).

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels of the images given, which count where
            the model resizes them; by default that of the model.

    Returns:
        Tuple of numbers; ints where they are whole.

    Raises:
        ValueError: as `grid_size`, or what changes the size of images is unknown.

    Example:

    >>> patch_stride(VisionTransformer("R+ViT-Ti_16", image_size=64))
    (32, 32)
    """
    walk = _Walk(model, image_size)
    _check_known(model, walk.images)
    if isinstance(walk.stride, str):
        raise ValueError(
            f"The model {model.name} has {walk.stride}, which changes the size of "
            "images in a way of its own, so how far apart patches are in them is not "
            "known: pass the model behind it, and the images that it is given."
        )
    stride = walk.stride * _patch_encoder(model).patch_size
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
            `image_size` is not given; or it, or a model in it that has the
            `PatchEncoder`, is not functional or sequential.

    Source:
        Paper section 3.1.

    Example:

    >>> grid_size(VisionTransformer("ViT-Ti_16", image_size=(32, 48)))
    (2, 3)
    """
    walk = _Walk(model, image_size)
    _check_known(model, walk.grid)
    return walk.grid


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


class _Reached(Exception):
    """The `PatchEncoder` was."""


class _Walk:
    """What becomes of images in a model until they are cut into patches.

    The graph is gone through by shapes alone, and the model stays as it is.

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels; by default that of the model.

    Attributes:
        images: (height, width) of the images.
        grid: (rows, columns) of patches, None where that is not known.
        stride: array of the pixels that one of what is cut stands for, vertical and
            horizontal, or the name of what makes that unknown.
        seen: list of (layer or operation, (height, width) that it gives).
    """

    def __init__(self, model, image_size=None):
        self.model = model
        self.encoder = _patch_encoder(model)
        self.seen = []
        self._strides = {}
        inputs = model.inputs if _is_functional(model) else None
        if isinstance(model, keras.Sequential):
            # One that was not built yet takes images of the size given.
            unknown = [keras.Input((None, None, None))]
            inputs = getattr(model, "inputs", None) or unknown
        if not inputs:
            self._refuse(model)
        shapes = [tensor.shape for tensor in inputs]
        image_shapes = [shape for shape in shapes if len(shape) == 4]
        if len(image_shapes) != 1:
            self._refuse(model)
        self.images = image_shapes[0][1:3] if image_size is None else tuple(image_size)
        given = []
        for tensor in inputs:
            shape = tensor.shape
            if len(shape) == 4:
                shape = (shape[0], *self.images, shape[3])
            given.append(keras.Input(batch_shape=shape, dtype=tensor.dtype))
            self._strides[id(given[-1])] = np.ones(2)
        try:
            self._through(model, given)
        except _Reached:
            return
        self._refuse(model)

    def _refuse(self, model):
        raise ValueError(
            f"What the model {model.name} does to images before its PatchEncoder "
            "cannot be told: pass a functional or sequential model of one such input."
        )

    def _through(self, model, given):
        """Returns what a model gives for tensors."""
        if _is_functional(model):
            given = keras.tree.pack_sequence_as(model.input, given)
            return keras.models.clone_model(
                model,
                input_tensors=given,
                clone_function=lambda layer: layer,
                call_function=self._after,
            ).output
        [tensor] = given
        for layer in model.layers:
            if not isinstance(layer, keras.layers.InputLayer):
                tensor = self._after(layer, tensor)
        return tensor

    def _after(self, operation, *args, **kwargs):
        """Returns a stand-in for what an operation of the graph gives."""
        tensors = [
            tensor
            for tensor in keras.tree.flatten((args, kwargs))
            if isinstance(tensor, keras.KerasTensor)
        ]
        if operation is self.encoder:
            sides = zip(tensors[0].shape[1:3], operation.patch_size, strict=True)
            self.grid = tuple(
                None if side is None else side // patch for side, patch in sides
            )
            self.stride = self._strides[id(tensors[0])]
            raise _Reached
        in_row = isinstance(operation, (keras.Sequential, keras.layers.Pipeline))
        if in_row or _is_functional(operation):
            given = tensors
            if not in_row:
                given = [
                    keras.Input(batch_shape=tensor.shape, dtype=inner.dtype)
                    for tensor, inner in zip(tensors, operation.inputs, strict=True)
                ]
                for tensor, inner in zip(tensors, given, strict=True):
                    self._strides[id(inner)] = self._strides[id(tensor)]
            spec = self._through(operation, given)
            strides = {
                id(tensor): self._strides[id(tensor)]
                for tensor in keras.tree.flatten(spec)
            }
        else:
            if isinstance(operation, keras.Model) and self.encoder in layers_of(
                operation, PatchEncoder
            ):
                self._refuse(operation)
            spec = operation.compute_output_spec(*args, **kwargs)
            stride = self._stride_after(operation, tensors, spec)
            strides = {id(tensor): stride for tensor in keras.tree.flatten(spec)}
            self.seen.append((operation, _sides(keras.tree.flatten(spec)[0])))
        given = _StandIn(spec)(*tensors)
        for tensor, inner in zip(
            keras.tree.flatten(given), keras.tree.flatten(spec), strict=True
        ):
            self._strides[id(tensor)] = strides[id(inner)]
        return given

    def _stride_after(self, operation, tensors, spec):
        strides = [self._strides[id(tensor)] for tensor in tensors]
        for stride in strides:
            if isinstance(stride, str):
                return stride
        stride = strides[0] if strides else np.ones(2)
        sides = _sides(tensors[0]) if tensors else ()
        if isinstance(operation, _EDGES):
            return stride
        if isinstance(operation, _STRIDED):
            return stride * operation.strides
        if isinstance(operation, keras.layers.UpSampling2D):
            return stride / operation.size
        if None in sides or sides == _sides(keras.tree.flatten(spec)[0]):
            # A layer that keeps the size keeps the scale.
            return stride if None not in sides else operation.name
        if isinstance(operation, keras.layers.Resizing):
            scales = np.divide(sides, (operation.height, operation.width))
            if operation.crop_to_aspect_ratio:
                scales = scales.min()
            elif operation.pad_to_aspect_ratio:
                scales = scales.max()
            return stride * scales
        if isinstance(operation, _CROPS) and (
            sides[0] >= operation.height and sides[1] >= operation.width
        ):
            return stride
        return operation.name


class _StandIn(keras.layers.Layer):
    """What has an operation's outputs in the graph, and none of its variables."""

    def __init__(self, spec):
        super().__init__()
        self.spec = spec
        self.built = True

    def compute_output_spec(self, *args, **kwargs):
        return keras.tree.map_structure(
            lambda tensor: keras.KerasTensor(tensor.shape, tensor.dtype), self.spec
        )


def _is_functional(model):
    return (
        isinstance(model, keras.Model)
        and not isinstance(model, keras.Sequential)
        and hasattr(model, "operations")
    )


def _sides(tensor):
    return tuple(tensor.shape[1:3])


def _check_known(model, sides):
    if None in sides:
        raise ValueError(
            f"The model {model.name} takes images of any size: pass image_size."
        )
