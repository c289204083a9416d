"""The grid of patches of images of any size."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.layers.base import Layer, Tensor
from zoo.network import pair


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchGrid(Layer):
    """Tells layers of a model for images of any size how many patches there are.

    Tokens are a sequence, which does not show how many rows and columns they were. The
    shape of this layer's output does.

    Args:
        patch_size: int or (height, width) of a patch in pixels, as in `PatchEncoder`.

    Call arguments:
        images: float tensor (batch, height, width, channels), as `PatchEncoder` takes
            them.

    Returns:
        int32 tensor (rows, columns) of zeros: its shape alone counts.

    Source:
        ViT paper, section 3.1.

    Example:
        >>> grid = PatchGrid(patch_size=16)(keras.ops.ones((2, 32, 48, 3)))
        >>> tuple(grid.shape)
        (2, 3)
    """

    def __init__(self, patch_size: int | tuple[int, int], **kwargs: Any):
        super().__init__(**kwargs)
        self.patch_size = pair(patch_size, "patch_size")

    def call(self, images: Tensor) -> Tensor:
        _, height, width, _ = ops.shape(images)
        rows, columns = height // self.patch_size[0], width // self.patch_size[1]
        return ops.zeros((rows, columns), "int32")

    def compute_output_spec(self, images: Tensor) -> Tensor:
        sides = zip(images.shape[1:3], self.patch_size, strict=True)
        shape = [None if side is None else side // patch for side, patch in sides]
        return keras.KerasTensor(shape, "int32")


def at_grid(
    grid: Tensor,
    own: tuple[int, int],
    at_own: Callable[[], Tensor],
    at_other: Callable[[Any, Any], Tensor],
) -> Tensor:
    """Returns `at_own()` where a `PatchGrid`'s output has the shape `own`.

    Else `at_other(rows, columns)`, of ints where the shape is known, and of tensors in
    a graph for images of any size, which computes one of both.
    """
    sides = ops.shape(grid)
    if all(isinstance(side, int) for side in sides):
        return at_own() if tuple(sides) == tuple(own) else at_other(*sides)
    equal = [ops.equal(side, other) for side, other in zip(sides, own, strict=True)]
    return ops.cond(ops.logical_and(*equal), at_own, lambda: at_other(*sides))


def namespace_of(*sides: Any) -> Any:
    """Returns the module for functions of sides: NumPy where they are known."""
    return np if all(isinstance(side, int) for side in sides) else ops


def resampled(values: Tensor, weights: Tensor) -> Tensor:
    """Returns values (..., old places, size) times weights (new places, old places)."""
    dtype = keras.backend.result_type(values.dtype, "float32")
    weights = ops.convert_to_tensor(weights, dtype=dtype)
    return ops.cast(ops.matmul(weights, ops.cast(values, dtype)), values.dtype)


def resampled_map(values: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Returns values (rows * columns, size) of a map resampled along both axes.

    The weights are (new rows, rows) and (new columns, columns).
    """
    size = values.shape[-1]
    values = resampled(ops.reshape(values, (down.shape[1], -1)), down)
    values = ops.reshape(values, (-1, across.shape[1], size))
    return ops.reshape(resampled(values, across), (-1, size))
