"""The sizes of a model's images: its grid of patches, and what it does before them."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_vit.layers import (
    PatchEncoder,
    SelfAttention,
    TransformerBlock,
)
from keras_vit.layers.position_embedding import AddedPositions
from keras_vit.layers.residual_unit import ResidualUnit
from keras_vit.structure import check_model, layers_of

# Layers that make a feature map smaller by their `strides`.
_STRIDED = (keras.layers.Conv2D, keras.layers.MaxPooling2D, ResidualUnit)


def grid_size(
    model: keras.Model, image_size: int | tuple[int, int] | None = None
) -> tuple[int, int]:
    """Returns the (rows, columns) of patches that a model cuts images into.

    Args:
        model: `keras.Model` with a `PatchEncoder`.
        image_size: (height, width) in pixels; by default that of the model.

    Returns:
        Tuple (rows, columns).

    Raises:
        ValueError: the model has no `PatchEncoder`, or not in functional or sequential
            models alone; or takes images of any size, and `image_size` is not given.

    Source:
        Paper section 3.1.

    Example:
        >>> grid_size(VisionTransformer("ViT-Ti_16", image_size=(32, 48)))
        (2, 3)
    """
    walk = _Walk(model, image_size)
    _check_known(model, walk.grid)
    return walk.grid


def patch_stride(
    model: keras.Model, image_size: int | tuple[int, int] | None = None
) -> tuple:
    """Returns the pixels from one patch to the next, (vertical, horizontal).

    Pixels of images of `image_size`, which counts where the model resizes them; by
    default that of the model.
    """
    walk = _Walk(model, image_size)
    _check_known(model, walk.images)
    if isinstance(walk.stride, str):
        raise ValueError(
            f"The model {model.name} has {walk.stride}, which changes the size of "
            "images in a way of its own, so the distance between patches in them is "
            "unknown: pass the model behind it, and the images that it is given."
        )
    return tuple((walk.stride * walk.encoder.patch_size).tolist())


def takes_any_size(model: keras.Model) -> bool:
    """Returns whether a model is one for images of any size."""
    return None in model.input_shape[1:3]


def own_image_size(model: keras.Model) -> tuple[int, int]:
    """Returns the (height, width) of the images that a model's positions are of.

    A model for images of one size takes these.
    """
    if not takes_any_size(model):
        return model.input_shape[1:3]
    placed = layers_of(model, AddedPositions)
    attentive = layers_of(model, TransformerBlock, SelfAttention)
    placed += [one.positions for one in attentive if one.positions is not None]
    grids = [one.grid_size for one in placed]
    if not grids:
        raise ValueError(
            f"The model {model.name} takes images of any size, and has no positions "
            "that are of one: pass image_size, or the model that "
            "keras_vit.at_image_size(model, (height, width)) gives."
        )
    steps = zip(grids[0], size_step(model), strict=True)
    return tuple(count * step for count, step in steps)


def size_step(model: keras.Model) -> tuple:
    """Returns what the sides of a model's images are multiples of, for any size."""
    # The same at any size that is large enough.
    return tuple(int(step) for step in patch_stride(model, (1024, 1024)))


def what_fixes_size(
    model: keras.Model, image_size: int | tuple[int, int]
) -> str | None:
    """Returns the name of what resizes all images to one size before patches are cut.

    That is the first layer or operation with the same output for images of the model's
    size and of another one, or None.
    """
    old, new = _Walk(model), _Walk(model, image_size)
    if old.images == new.images or old.grid != new.grid:
        return None
    for (operation, sides), (_, others) in zip(old.seen, new.seen, strict=True):
        # 47 pixels and 48 are 24 alike at a stride of 2.
        if sides == others and not isinstance(operation, _STRIDED):
            return operation.name
    return None


def _check_known(model, sides):
    if None in sides:
        raise ValueError(
            f"The model {model.name} takes images of any size: pass image_size."
        )


class _Reached(Exception):
    """A walk has come to the `PatchEncoder`."""


class _StandIn(keras.Operation):
    """Gives stand-ins for the outputs of an operation, so that a graph goes on."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs

    def compute_output_spec(self, *args, **kwargs):
        return keras.tree.map_structure(_like, self.outputs)


class _Walk:
    """Follows the size of images through a model until they are cut into patches.

    The graph is gone through by shapes alone, and the model stays as it is. Every
    tensor on the way has the attribute `stride`: an array of the pixels that one of its
    places stands for, (vertical, horizontal), or the name of what makes that unknown.
    """

    def __init__(self, model, image_size=None):
        check_model(model)
        self.model = model
        encoders = layers_of(model, PatchEncoder)
        if len(encoders) != 1:
            raise ValueError(
                f"The model {model.name} has {len(encoders)} layers of class "
                "PatchEncoder: pass a Vision Transformer, which has one."
            )
        [self.encoder] = encoders
        # Pairs of a layer or operation and the (height, width) of its output.
        self.seen = []
        inputs = getattr(model, "inputs", None) if _is_graph(model) else []
        if isinstance(model, keras.Sequential):
            # One that was not built yet takes images of any size.
            inputs = inputs or [keras.KerasTensor((None,) * 4)]
        images = [tensor for tensor in inputs if len(tensor.shape) == 4]
        if len(images) != 1:
            self._refuse(model)
        self.images = _sides(images[0]) if image_size is None else tuple(image_size)
        tensors = []
        for tensor in inputs:
            shape = tensor.shape
            if len(shape) == 4:
                shape = (shape[0], *self.images, shape[3])
            tensors.append(_with_stride(keras.KerasTensor(shape, tensor.dtype), 1))
        try:
            self._through(model, tensors)
        except _Reached:
            return
        self._refuse(model)

    def _refuse(self, model):
        raise ValueError(
            f"What the model {model.name} does to images before its PatchEncoder "
            "is unknown: pass a functional or sequential model of one such input."
        )

    def _through(self, model, tensors):
        """Returns stand-ins for a model's outputs."""
        if not isinstance(model, keras.Model) or isinstance(model, keras.Sequential):
            [tensor] = tensors
            for layer in model.layers:
                if not isinstance(layer, keras.layers.InputLayer):
                    tensor = self._after(layer, tensor)
            return tensor

        def called(operation, *args, **kwargs):
            outputs = self._after(operation, *args, **kwargs)
            return _StandIn(outputs)(*args, **kwargs)

        if not layers_of(model, PatchEncoder):
            # Take the graph alone, for the copy of a model is compiled as that is.
            model = keras.Model(model.inputs, model.outputs, name=model.name)
        inputs = [
            _with_stride(
                keras.Input(batch_shape=one.shape, dtype=one.dtype, name=own.name),
                one.stride,
            )
            for own, one in zip(model.inputs, tensors, strict=True)
        ]
        copy = keras.models.clone_model(
            model,
            input_tensors=keras.tree.pack_sequence_as(model.input, inputs),
            clone_function=lambda layer: layer,
            call_function=called,
        )
        return copy.outputs

    def _after(self, operation, *args, **kwargs):
        """Returns stand-ins for the outputs of an operation of the graph."""
        first, *_ = tensors = [
            tensor
            for tensor in keras.tree.flatten((args, kwargs))
            if isinstance(tensor, keras.KerasTensor)
        ]
        if operation is self.encoder:
            self.sides = _sides(first)
            sides = zip(self.sides, operation.patch_size, strict=True)
            # (rows, columns), None where that is not known.
            self.grid = tuple(
                None if side is None else side // patch for side, patch in sides
            )
            self.stride = first.stride
            raise _Reached
        if _is_graph(operation):
            return self._through(operation, tensors)
        if isinstance(operation, keras.Model) and layers_of(operation, PatchEncoder):
            self._refuse(operation)
        outputs = operation.compute_output_spec(*args, **kwargs)
        new_sides = _sides(keras.tree.flatten(outputs)[0])
        self.seen.append((operation, new_sides))
        stride = next(
            (one.stride for one in tensors if isinstance(one.stride, str)), first.stride
        )
        if not isinstance(stride, str):
            scale = _scale(operation, _sides(first), new_sides)
            stride = operation.name if scale is None else stride * scale
        return keras.tree.map_structure(
            lambda output: _with_stride(output, stride), outputs
        )


def _with_stride(tensor, stride):
    tensor.stride = stride if isinstance(stride, str) else stride * np.ones(2)
    return tensor


def _like(tensor):
    return _with_stride(keras.KerasTensor(tensor.shape, tensor.dtype), tensor.stride)


def _scale(operation, sides, new_sides):
    """Returns how many places a new one stands for, None where that is unknown."""
    for kinds, scale in _SCALES.items():
        if isinstance(operation, kinds):
            return scale(operation, sides)
    return 1 if sides == new_sides else None


def _scale_of_resizing(layer, sides):
    if None in sides:
        return None
    scales = np.divide(sides, (layer.height, layer.width))
    if layer.crop_to_aspect_ratio:
        return scales.min()
    return scales.max() if layer.pad_to_aspect_ratio else scales


def _scale_of_crop(layer, sides):
    # Images that are smaller are resized.
    cuts = None not in sides and sides[0] >= layer.height and sides[1] >= layer.width
    return 1 if cuts else None


_SCALES = {
    _STRIDED: lambda layer, _: np.array(layer.strides),
    keras.layers.UpSampling2D: lambda layer, _: 1 / np.array(layer.size),
    (keras.layers.Cropping2D, keras.layers.ZeroPadding2D): lambda *_: 1,
    keras.layers.Resizing: _scale_of_resizing,
    (keras.layers.CenterCrop, keras.layers.RandomCrop): _scale_of_crop,
}


def _is_graph(operation):
    """Returns whether an operation's own operations are known, and their order."""
    in_row = isinstance(operation, (keras.Sequential, keras.layers.Pipeline))
    is_model = isinstance(operation, keras.Model) and hasattr(operation, "operations")
    return in_row or is_model


def _sides(tensor):
    return tuple(tensor.shape[1:3])


def check_images_shape(model: keras.Model, shape: Sequence[int]) -> None:
    """Raises a `ValueError` if a model does not take images of a shape."""
    expected = model.input_shape
    if len(shape) > 0 and shape[0] == 0:
        raise ValueError(
            f"{model.name} got no images, an array of shape {tuple(shape)}: pass at "
            "least one."
        )
    fits = len(shape) == len(expected) and all(
        side in (None, given) for side, given in zip(expected, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{model.name} takes images of shape (images, "
            f"{', '.join(map(str, expected[1:]))}), got {tuple(shape)}: resize "
            "the images, build the model with their image_size, or add the first axis."
        )
    if None in expected[1:] and layers_of(model, PatchEncoder):
        walk = _Walk(model, shape[1:3])
        if any(np.remainder(walk.sides, walk.encoder.patch_size)):
            height, width = (f"{step:g}" for step in size_step(model))
            raise ValueError(
                f"{model.name} takes images whose sides are multiples of {height} and "
                f"{width}, got {shape[1]}x{shape[2]}: resize the images."
            )
