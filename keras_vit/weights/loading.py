"""Files of Vision Transformers: into a model's variables, and out of them."""

import dataclasses
import inspect
import math
import os
import pathlib
import warnings

import keras
import numpy as np

import zoo
from keras_vit.layers.poolings import POOLINGS
from keras_vit.structure import kind_of_pooling
from keras_vit.weights.model_arrays import (
    checkpoint_of,
    grid_of,
    released_variables,
    stated,
)
from zoo.catalog.locate import read_located, with_names
from zoo.common.regular_files import expand_home
from zoo.network import FAMILIES, RELEASED, RESIZING, SIZES, released_names
from zoo.network.position_embedding import resize_relative

_KERNEL, _BIAS = released_names.EMBEDDING_ARRAYS
_ROOT_KERNEL = next(iter(released_names.ROOT_ARRAYS))
_HEAD_KERNEL, _ = released_names.HEAD_ARRAYS
_SECOND_HEAD = released_names.SECOND_HEAD_ARRAYS.keys()


def assign(
    model: keras.Model,
    checkpoint: zoo.Checkpoint,
    new_head: bool,
    position_embedding_method: str | None,
) -> None:
    """Assigns a checkpoint's arrays to a model's variables, all of them or none."""
    variables = released_variables(model, to_load=True)
    _check_same(checkpoint, model)
    _, shape_of_head = variables.get(_HEAD_KERNEL, (None, (None,)))
    if checkpoint.classes is None or shape_of_head[-1] != checkpoint.classes:
        new_head = True
    if new_head:
        for key in released_names.HEAD_ARRAYS:
            variables.pop(key, None)
    _check_keys(checkpoint, variables, _names_to_load(model, checkpoint, variables))
    _check_pooling(model, checkpoint, variables, new_head)
    channels = model.input_shape[-1]
    fitted = _fitted(checkpoint, channels, grid_of(model), position_embedding_method)
    if released_names.HEADS & variables.keys() and not new_head:
        fitted |= _one_head(checkpoint)
    shapes = checkpoint.shapes | {key: array.shape for key, array in fitted.items()}
    wrong = [
        f"{key} {shapes[key]} (the model has {shape})"
        for key, (_, shape) in variables.items()
        if shapes[key] != shape
    ]
    if wrong:
        raise zoo.CheckpointError(
            f"{checkpoint.path} has arrays of other shapes than the model: "
            f"{', '.join(wrong)}. Pass the channels and the representation_size of the "
            "file."
        )
    # One by one from the file, the largest first: the memory of one serves the next.
    for key in sorted(variables, key=lambda key: -math.prod(shapes[key])):
        variable, _ = variables[key]
        array = fitted[key] if key in fitted else checkpoint.arrays[key]
        variable.assign(array.reshape(variable.shape))
    if not new_head and checkpoint.zero_head:
        _warn_of_zeros(checkpoint)


def _names_to_load(model, checkpoint, variables):
    """Returns the names of a file's arrays but those that the model leaves out."""
    names = checkpoint.arrays.keys() - _SECOND_HEAD
    if kind_of_pooling(model) != "map":
        names -= released_names.OPTIONAL_ARRAYS["attention_pooling"].keys()
    if not variables.keys() & released_names.HEAD_ARRAYS.keys():
        names -= released_names.HEAD_ARRAYS.keys()
        if not variables.keys() & released_names.PRE_LOGITS_ARRAYS.keys():
            names -= released_names.PRE_LOGITS_ARRAYS.keys()
    return names


def _check_pooling(model, checkpoint, variables, new_head):
    """Makes sure that what is loaded of a head was trained on what the model pools."""
    pooling = kind_of_pooling(model)
    if pooling == checkpoint.pooling or not released_names.HEADS & variables.keys():
        return
    trained = "pre_logits were" if new_head else "head was"
    theirs, ours = (POOLINGS[kind].reads for kind in (checkpoint.pooling, pooling))
    raise zoo.CheckpointError(
        f"The {trained} trained on {theirs} in {checkpoint.path}, "
        f"and the model takes {ours}: pass "
        f'pooling="{checkpoint.pooling}" to keep what the file computes, '
        "include_top=False for the model's pooling alone, or new_head=True and no "
        "representation_size for a new head on that."
    )


def _one_head(checkpoint):
    """Returns the arrays of one head of both tokens, where a file has two.

    It gives the mean of what the two give.
    """
    if not checkpoint.arrays.keys() >= _SECOND_HEAD:
        return {}
    head = {}
    for key, name in zip(
        released_names.HEAD_ARRAYS, released_names.SECOND_HEAD_ARRAYS, strict=True
    ):
        halves = checkpoint.arrays[key] / 2, checkpoint.arrays[name] / 2
        head[key] = np.concatenate(halves) if halves[0].ndim == 2 else sum(halves)
    return head


def load(
    model: keras.Model,
    source: str | os.PathLike | zoo.Checkpoint,
    *,
    variant: str | None = None,
    new_head: bool = False,
    position_embedding_method: str | None = None,
) -> None:
    """Loads a file into a model, see `keras_vit.load_released_weights`."""
    released_variables(model)  # refuses others before a file is downloaded
    config = model.config
    checkpoint = read_located(source, variant or _variant(config), config.num_heads)
    assign(model, checkpoint, new_head, position_embedding_method)


def weights_of(model: keras.Model) -> zoo.Checkpoint:
    """Returns a model's weights as `VisionTransformer` takes them."""
    return checkpoint_of(model, f"The model {model.name}")


def save(
    model: keras.Model, path: str | os.PathLike, naming: str = "released"
) -> pathlib.Path:
    """Writes a model's weights, see `keras_vit.save_released_weights`."""
    path = expand_home(path)
    checkpoint = checkpoint_of(model, path)
    if naming != "released":
        checkpoint = with_names(checkpoint)
    zoo.write(path, checkpoint, naming=naming)
    return path


def _warn_of_zeros(checkpoint):
    remedies = "classes=K for a new head to fine-tune, include_top=False for features"
    variant = _variant(checkpoint.config)
    releases = () if variant is None else zoo.releases(variant)
    # The original files have as many classes.
    if checkpoint.classes == 21843 and "augreg-imagenet21k" in releases:
        remedies += ', or weights="augreg-imagenet21k" for ImageNet-21k logits'
    warnings.warn(
        f"The head in {checkpoint.path} is all zeros, as new heads and those of the "
        "original ImageNet-21k files are, and so will be the logits: pass "
        f"{remedies}.",
        stacklevel=stacklevel(),
    )


def stacklevel() -> int:
    """Returns the `stacklevel` of `warnings.warn` that shows the user's own line."""
    frame, level = inspect.currentframe().f_back, 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("keras_vit."):
        frame, level = frame.f_back, level + 1
    return level


def _check_same(checkpoint, model):
    """Makes sure that a file and a model have the same sizes and compute the same."""
    own = stated(model)
    text = {
        name: f"{name} {theirs!r} (the model has {ours!r})"
        for name, (theirs, ours) in checkpoint.config.differences(own).items()
    }
    compared = [name for name in FAMILIES if name not in RESIZING]
    if sizes := [text[name] for name in (*SIZES, *compared) if name in text]:
        raise zoo.CheckpointError(
            f"{checkpoint.path} is another architecture than the model: "
            f"{', '.join(sizes)}. Choose the variant or the ViTConfig of the file."
        )
    computed = (name for name in RELEASED if getattr(own, name) is not None)
    if others := [text[name] for name in computed if name in text]:
        raise zoo.CheckpointError(
            f"{checkpoint.path} computes other numbers than the model: "
            f"{', '.join(others)}. Build the model with the file as its weights, or "
            "with these in its ViTConfig."
        )


def _variant(config):
    # The released one of these sizes, or None.
    rows = zoo.VARIANTS.items()
    return next((name for name, row in rows if row.sizes == config.sizes), None)


def _check_keys(checkpoint, targets, names):
    missing = sorted(targets.keys() - names)
    left_over = sorted(names - targets.keys())
    if not missing and not left_over:
        return
    remedies = []
    if released_names.CLASS_TOKEN in missing:
        remedies.append('the file has no class token: pass pooling="gap" or None')
    if released_names.CLASS_TOKEN in left_over:
        remedies.append(
            "the model has no class token: build it with the file as its weights and "
            'pooling="gap", which keeps the token and averages the patches'
        )
    if released_names.PRE_LOGITS_ARRAYS.keys() & set(missing):
        remedies.append("the file has no pre_logits: pass representation_size=None")
    if released_names.PRE_LOGITS_ARRAYS.keys() & set(left_over):
        size = checkpoint.representation_size
        remedies.append(f"its head needs pre_logits: pass representation_size={size}")
    raise zoo.CheckpointError(
        f"{checkpoint.path} does not fit the model. Missing in the file: "
        f"{', '.join(missing) or 'nothing'}. Left over: "
        f"{', '.join(left_over) or 'nothing'}. Remedy: "
        f"{'; '.join(remedies) or 'choose the ViTConfig of the file'}."
    )


def _fitted(checkpoint, channels, grid_size, method):
    """Returns {released name: array} of those that a model does not take as they are.

    `channels` is of the model's images, `grid_size` of its patches.
    """
    fitted = {}
    if released_names.POSITION_EMBEDDING in checkpoint.arrays:
        fitted |= _resized(checkpoint, grid_size, method)
    for name in checkpoint.arrays:
        if name.endswith(released_names.RELATIVE_BIAS):
            rule = method or checkpoint.config.relative_position_resizing
            old_grid, table = checkpoint.grid_size, checkpoint.arrays[name]
            fitted[name] = resize_relative(table, old_grid, grid_size, rule)
    inputs = checkpoint.semantics
    adapted = checkpoint.channels == 3 != channels
    if adapted and channels != 1:
        name = _KERNEL if checkpoint.resnet_stages is None else _ROOT_KERNEL
        fitted[name] = _of_channels(checkpoint.arrays[name], channels)
        means = {
            name: (float(np.mean(getattr(inputs, name))),) * channels
            for name in ("input_mean", "input_std")
        }
        inputs = dataclasses.replace(inputs, **means)
    if not checkpoint.semantics.takes_unit_range:
        kernel = fitted.get(_KERNEL, checkpoint.arrays[_KERNEL])
        fitted |= _taking_unit_range(checkpoint, kernel, inputs)
    if adapted and channels == 1 and checkpoint.resnet_stages is None:
        # Gray images: as if their one channel were given three times.
        kernel = fitted.get(_KERNEL, checkpoint.arrays[_KERNEL])
        fitted[_KERNEL] = kernel.sum(axis=2, keepdims=True)
    return fitted


def _of_channels(kernel, channels):
    """Returns a kernel of three channels for images of others, by timm's rule.

    Its channels are repeated, and made smaller by as much as there are more of them.

    Source: `adapt_input_conv` of timm, whose images of other channels all have the mean
    of the three means and that of the deviations.
    """
    repeated = np.take(kernel, np.arange(channels) % kernel.shape[2], axis=2)
    return repeated * np.float32(kernel.shape[2] / channels)


def _resized(checkpoint, grid_size, method):
    """The position embedding for the grid of a model's patches."""
    embedding = checkpoint.arrays[released_names.POSITION_EMBEDDING]
    old_grid = checkpoint.grid_size
    if old_grid is None:
        if checkpoint.num_positions != math.prod(grid_size):
            raise zoo.CheckpointError(
                f"{checkpoint.path} has {checkpoint.num_positions} positions, which is "
                "no square grid, and so can only be loaded at the image size it was "
                f"trained at; the model has a grid of {grid_size[0]}x{grid_size[1]}."
            )
        old_grid = grid_size
    prefix = checkpoint.num_prefix_positions
    method = method or checkpoint.config.position_resizing
    table = zoo.resize(embedding, old_grid, grid_size, method, prefix)
    return {released_names.POSITION_EMBEDDING: table}


def _taking_unit_range(checkpoint, kernel, semantics):
    """The patch embedding for images in [-1, 1] instead of those of `semantics`."""
    path = checkpoint.path
    inputs = f"images with mean {semantics.input_mean} and std {semantics.input_std}"
    if checkpoint.resnet_stages is not None:
        raise zoo.CheckpointError(
            f"{path} takes {inputs}, which a hybrid cannot be changed to take as "
            "[-1, 1], since it standardises its kernels: pass zoo.read(path, "
            "semantics=...) with 0.5 for both as the weights, and normalise the images "
            "as the file wants them."
        )
    kernel = kernel.astype("float64")
    if kernel.shape[2] != len(semantics.input_mean):
        raise zoo.CheckpointError(
            f"{path} takes {inputs}, but {kernel.shape[2]} channels: pass zoo.read("
            "path, semantics=...) with one input_mean and input_std per channel as the "
            "weights."
        )
    mean = np.array(semantics.input_mean)[:, None]
    kernel = kernel / np.array(semantics.input_std)[:, None]
    bias = checkpoint.arrays[_BIAS] + (kernel * (0.5 - mean)).sum(axis=(0, 1, 2))
    return {_KERNEL: (kernel / 2).astype("float32"), _BIAS: bias.astype("float32")}
