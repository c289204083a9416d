"""Attention weights by layer, as matrices, distances and pictures."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.explain.running import check_images, indices_of, run
from keras_vit.layers import AttentionPooling, TransformerBlock
from keras_vit.structure import (
    layers_of,
    num_layers,
    num_prefix_tokens,
    num_registers,
    prefix_tokens_of,
)
from keras_vit.structure.image_sizes import grid_size, patch_stride


def attention_maps(
    model: keras.Model,
    images: Any,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
) -> np.ndarray:
    """Returns the attention weights between all tokens, by layer and head.

    Layers are computed one at a time, and only the chosen weights are kept.

    Args:
        model: `keras.Model` of `TransformerBlock` layers, such as any of ours.
        images: float array (images, height, width, channels) in [-1, 1].
        layers: int or sequence of ints, the layers in the order of the result;
            negative ones count from the last. None for all.
        heads: likewise, of each layer.

    Returns:
        float32 array (layers, images, heads, tokens, tokens), queries before keys. Its
        rows sum to one. The class token, if there is one, comes first; the patches
        follow row by row.

    Raises:
        ValueError: the model has no attention, there is no such layer or head, or the
            images are not as the model takes them.

    Source:
        Paper appendix A, equation 7, the matrix A; `attn_weights` of the released code.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
        >>> images = np.zeros((1, 32, 32, 3), "float32")
        >>> attention_maps(model, images, layers=[0, -1]).shape
        (2, 1, 3, 5, 5)
    """
    images = check_images(model, images)
    layers = indices_of(layers, num_layers(model), "layer", model)
    least = min(block.num_heads for block in layers_of(model, TransformerBlock))
    heads = indices_of(heads, least, "head", model)
    return by_layer(model, images, lambda weights: weights[:, heads], layers)


def mean_attention_maps(model: keras.Model, images: Any) -> np.ndarray:
    """Returns the attention weights between all tokens, by layer, mean over heads.

    Args:
        model: `keras.Model` of `TransformerBlock` layers.
        images: float array (images, height, width, channels) in [-1, 1].

    Returns:
        float32 array (layers, images, tokens, tokens), queries before keys, whose rows
        sum to one.

    Raises:
        ValueError: as `attention_maps`.

    Source:
        Paper appendix D, attention maps: the mean over the heads, here of every layer.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
        >>> mean_attention_maps(model, np.zeros((1, 32, 32, 3), "float32")).shape
        (12, 1, 5, 5)
    """
    return by_layer(model, images, lambda weights: weights.mean(axis=1))


def attention_rollout(model: keras.Model, images: Any) -> np.ndarray:
    """Returns how much of each patch reaches each token through all layers.

    In every layer the heads are averaged, the identity is added for the residual
    connection, and rows are divided by their sum; these matrices are multiplied, the
    last layer's first.

    Args:
        model: `keras.Model` of `TransformerBlock` layers.
        images: float array (images, height, width, channels) in [-1, 1].

    Returns:
        float32 array (images, tokens, tokens), whose rows sum to one. `patch_map` makes
        a picture of it.

    Raises:
        ValueError: as `attention_maps`.

    Source:
        Paper appendix D, attention maps, and figure 6; Abnar and Zuidema, arXiv
        2005.00928.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
        >>> rollout = attention_rollout(model, np.zeros((1, 32, 32, 3), "float32"))
        >>> patch_map(rollout, grid_size(model)).shape
        (1, 2, 2)
    """
    images = check_images(model, images)
    rollout = Rollout(len(images))
    run(model, images, rollout)
    return rollout.matrices


def pooling_attention(model: keras.Model, images: Any) -> np.ndarray:
    """Returns what the query of a model's attention pooling attends to, by head.

    Args:
        model: `keras.Model` with one `AttentionPooling`, such as those of SigLIP.
        images: float array (images, height, width, channels) in [-1, 1].

    Returns:
        float32 array (images, heads, tokens), whose rows sum to one. Tokens that the
        pooling leaves out have zero. The mean over the heads is the `pooling` of
        `patch_map`.

    Raises:
        ValueError: as `attention_maps`; or the model has no such pooling.

    Source:
        Lee et al., arXiv 1810.00825, section 3.2.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32, pooling="map")
        >>> images = np.zeros((1, 32, 32, 3), "float32")
        >>> pooled = pooling_attention(model, images)
        >>> rollout = attention_rollout(model, images)
        >>> patch_map(rollout, grid_size(model), pooled.mean(axis=1)).shape
        (1, 2, 2)
    """
    images = check_images(model, images)
    count = len(layers_of(model, AttentionPooling))
    if count != 1:
        raise ValueError(
            f"The model {model.name} has {count or 'no'} layers of class "
            "AttentionPooling: patch_map without pooling= shows the others."
        )
    pooled = pooled_weights(model, images)
    run(model, images, pooling=pooled)
    return pooled.values[0]


def attention_distance(model: keras.Model, images: Any) -> np.ndarray:
    """Returns the mean distance over which each head attends, in pixels.

    The distance between the centres of two patches, averaged over the keys, weighted
    by the attention, and over the queries. The class token has no position in the
    image, so it is excluded as query and as key, and so are registers.

    Args:
        model: `keras.Model` of `TransformerBlock` layers.
        images: float array (images, height, width, channels) in [-1, 1].

    Returns:
        float32 array (layers, images, heads), in pixels of `images`. NaN where a
        head's patches attend to the class token alone.

    Raises:
        ValueError: as `attention_maps`.

    Source:
        Paper section 4.5, appendix D, attention distance, and figures 7 and 11, which
        do not mention the class token.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=32)
        >>> attention_distance(model, np.zeros((1, 32, 32, 3), "float32")).shape
        (12, 1, 3)
    """
    return by_layer(model, images, distance_of(model, np.shape(images)[1:3]))


def distance_of(model: keras.Model, image_size: int | tuple[int, int]) -> Callable:
    """Returns the function from a layer's weights to distances (images, heads)."""
    rows, columns = grid_size(model, image_size)
    down, across = patch_stride(model, image_size)
    registers = num_registers(model)
    y, x = np.divmod(np.arange(rows * columns), columns)
    distances = np.hypot(
        down * (y[:, None] - y), across * (x[:, None] - x), dtype="float32"
    )

    def mean_distance(weights: np.ndarray) -> np.ndarray:
        first = prefix_tokens_of(weights, (rows, columns), num_registers=registers)
        weights = weights[:, :, first:, first:]
        total = weights.sum(axis=-1)
        lengths = np.einsum("nhqk,qk->nhq", weights, distances)
        attends = total > 0
        with np.errstate(invalid="ignore"):
            means = np.where(attends, lengths / total, 0)
            return means.sum(axis=-1) / attends.sum(axis=-1)

    return mean_distance


def patch_map(
    matrix: np.ndarray,
    grid_size: tuple[int, int],
    pooling: str | np.ndarray | None = None,
    num_registers: int = 0,
) -> np.ndarray:
    """Returns the attention of the model's output to each patch, as a picture.

    That is the class token's row, or, for models that pool the patches, the mean over
    their rows, or, for those that pool by attention, their sum weighted by it.

    Args:
        matrix: array (..., tokens, tokens), such as `attention_maps` returns.
        grid_size: (rows, columns) of the patches, see `grid_size`.
        pooling: `"token"` or `"gap"`, what the model's output is computed from; by
            default the class token if there is one. `"gap"` is for a model with a
            class token and `PatchPooling`. Of a model with `AttentionPooling` an array
            (..., tokens): the mean of `pooling_attention` over the heads.
        num_registers: int, how many tokens before the patches are registers, which are
            left out.

    Returns:
        Array (..., rows, columns).

    Raises:
        ValueError: the tokens do not fit the grid, or the pooling does not fit them.

    Source:
        Paper figure 6.

    Example:
        >>> patch_map(np.eye(5), (2, 2))
        array([[0., 0.],
               [0., 0.]])
    """
    matrix = np.asarray(matrix)
    first = prefix_tokens_of(matrix, grid_size, num_registers=num_registers)
    if pooling is not None and not isinstance(pooling, str):
        pooling = np.asarray(pooling)
        if pooling.shape != matrix.shape[:-1]:
            raise ValueError(
                f"pooling has shape {pooling.shape} for a matrix of {matrix.shape}: "
                "pass one weight per row, pooling_attention(...).mean(axis=1)."
            )
        row = np.einsum("...q,...qk->...k", pooling, matrix)[..., first:]
        return row.reshape(*row.shape[:-1], *grid_size)
    class_token = first > num_registers
    if pooling is None:
        pooling = "token" if class_token else "gap"
    if pooling not in ("token", "gap") or (pooling == "token" and not class_token):
        raise ValueError(
            f'pooling must be "gap", or "token" where there is a class token, got '
            f"{pooling!r} for {matrix.shape[-1]} tokens of {math.prod(grid_size)} "
            "patches."
        )
    row = matrix[..., 0, first:]
    if pooling == "gap":
        row = matrix[..., first:, first:].mean(axis=-2)
    return row.reshape(*row.shape[:-1], *grid_size)


def by_layer(
    model: keras.Model,
    images: Any,
    function: Callable[[np.ndarray], np.ndarray],
    layers: Sequence[int] | None = None,
) -> np.ndarray:
    """Returns a function of each layer's weights, float32 (layers, images, ...).

    The weights are a float32 array (images, heads, tokens, tokens), which is not kept.
    """
    images = check_images(model, images)
    layers = range(num_layers(model)) if layers is None else layers
    collected = ByLayer(function, layers, len(images))
    run(model, images, collected)
    return collected.values


class ByLayer:
    """Collects a function of the weights of some layers, for `run`.

    `values` is float32 (layers, images, ...).
    """

    def __init__(self, function: Callable, layers: Sequence[int], num_images: int):
        self.values: np.ndarray | None = None
        self._num_images = num_images
        self._function, self._layers = function, layers

    def __call__(self, layer, part, weights):
        if layer not in self._layers:
            return
        values = self._function(ops.convert_to_numpy(weights))
        if self.values is None:
            shape = len(self._layers), self._num_images, *values.shape[1:]
            self.values = np.empty(shape, "float32")
        self.values[np.equal(self._layers, layer), part] = values


class Rollout:
    """Multiplies the mean weights of all layers, for `run`.

    `matrices` is float32 (images, tokens, tokens).
    """

    def __init__(self, num_images: int):
        self.matrices, self._product, self._num_images = None, None, num_images

    def __call__(self, layer, part, weights):
        weights = ops.convert_to_numpy(weights)
        mean = weights.mean(axis=1, dtype="float64") + np.eye(weights.shape[-1])
        mean /= mean.sum(axis=-1, keepdims=True)
        if self.matrices is None:
            self.matrices = np.empty((self._num_images, *mean.shape[1:]), "float32")
        self._product = mean @ self._product if layer else mean
        self.matrices[part] = self._product


def pooled_weights(model: keras.Model, images: np.ndarray) -> ByLayer:
    """Returns what collects an attention pooling's weights over all tokens, for `run`.

    Its `values` are float32 (1, images, heads, tokens), None of a model without one.
    """
    num_tokens = math.prod(grid_size(model, images.shape[1:3]))
    num_tokens += num_prefix_tokens(model)

    def padded(weights: np.ndarray) -> np.ndarray:
        # A pooling leaves out the first tokens.
        left_out = num_tokens - weights.shape[-1]
        return np.pad(weights[:, :, 0], [(0, 0), (0, 0), (left_out, 0)])

    return ByLayer(padded, [0], len(images))
