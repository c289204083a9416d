"""Fitting a file's arrays to a model: image size, input range, gray images."""

import math

import numpy as np

import zoo
from zoo.released_names import EMBEDDING_ARRAYS, POSITION_EMBEDDING

_KERNEL, _BIAS = EMBEDDING_ARRAYS


def changed_arrays(checkpoint, shapes, grid_size, method):
    """Returns {released name: array} of those that a model does not take as they are.

    Args:
        checkpoint: `zoo.Checkpoint`.
        shapes: dict of released name to shape, of the model's arrays.
        grid_size: (rows, columns) of the model's patches.
        method: str, see `zoo.resize`.

    Raises:
        zoo.CheckpointError: the file's grid is not known, or a hybrid does not take
            images in [-1, 1].
    """
    embedding = checkpoint.arrays[POSITION_EMBEDDING]
    old_grid = checkpoint.grid_size
    if old_grid is None:
        if checkpoint.num_positions != math.prod(grid_size):
            raise zoo.CheckpointError(
                f"{checkpoint.path} has {checkpoint.num_positions} positions, which is "
                "no square grid, and so can only be loaded at the image size it was "
                f"trained at; the model has a grid of {grid_size[0]}x{grid_size[1]}."
            )
        old_grid = grid_size
    prefix = checkpoint.num_prefix_tokens
    table = zoo.resize(embedding, old_grid, grid_size, method, prefix)
    fitted = {POSITION_EMBEDDING: table}
    if not checkpoint.semantics.takes_unit_range:
        fitted |= _taking_unit_range(checkpoint)
    if shapes[_KERNEL][2] == 1 and checkpoint.shapes[_KERNEL][2] == 3:
        # Gray images: as if their one channel were given three times.
        kernel = fitted.get(_KERNEL, checkpoint.arrays[_KERNEL])
        fitted[_KERNEL] = kernel.sum(axis=2, keepdims=True)
    return fitted


def _taking_unit_range(checkpoint):
    """The patch embedding for images in [-1, 1] instead of the file's."""
    semantics, path = checkpoint.semantics, checkpoint.path
    inputs = f"images with mean {semantics.input_mean} and std {semantics.input_std}"
    if checkpoint.resnet_stages is not None:
        raise zoo.CheckpointError(
            f"{path} takes {inputs}, which a hybrid cannot be changed to take as "
            "[-1, 1], since it standardises its kernels: pass zoo.read(path, "
            "semantics=...) with 0.5 for both as the weights, and normalise the images "
            "as the file wants them."
        )
    kernel = checkpoint.arrays[_KERNEL].astype("float64")
    if kernel.shape[2] != len(semantics.input_mean):
        raise zoo.CheckpointError(
            f"{path} takes {inputs}, but {kernel.shape[2]} channels."
        )
    mean = np.array(semantics.input_mean)[:, None]
    kernel = kernel / np.array(semantics.input_std)[:, None]
    bias = checkpoint.arrays[_BIAS] + (kernel * (0.5 - mean)).sum(axis=(0, 1, 2))
    return {_KERNEL: (kernel / 2).astype("float32"), _BIAS: bias.astype("float32")}
