"""Tokens after a layer: features of the whole image and of each patch."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.explain.filters import principal_components
from keras_vit.explain.running import check_images, indices_of, run
from keras_vit.layers import LayerNorm
from keras_vit.structure import layers_of, num_layers, num_registers, prefix_tokens_of
from keras_vit.structure.image_sizes import grid_size


@dataclasses.dataclass(frozen=True)
class Features:
    """The tokens after a layer.

    Args:
        class_token: float32 array (images, hidden_size), None of a model without one.
        patches: float32 array (images, rows, columns, hidden_size).

    Source:
        Paper section 3.1.

    Example:
        >>> features = Features(np.zeros((1, 192)), np.zeros((1, 14, 14, 192)))
        >>> features.patches[0, 3, 5].shape
        (192,)
    """

    class_token: np.ndarray | None
    patches: np.ndarray


def token_features(
    model: keras.Model, images: Any, layer: int | None = None
) -> Features:
    """Returns the class token and the patches after a layer.

    Args:
        model: `keras.Model` of `TransformerBlock` layers.
        images: float array (images, height, width, channels) in [-1, 1].
        layer: int, which block's output; negative ones count from the last. None for
            the last one's, after the final norm if the model has one: what the head
            reads.

    Returns:
        `Features`.

    Raises:
        ValueError: as `attention_maps`.

    Source:
        Paper section 3.1, equation 4; `encoded` in the released code.

    Example:
        >>> model = VisionTransformer("ViT-Ti_16", image_size=(32, 48))
        >>> features = token_features(model, np.zeros((1, 32, 48, 3), "float32"))
        >>> features.class_token.shape, features.patches.shape
        ((1, 192), (1, 2, 3, 192))
    """
    images = check_images(model, images)
    last = -1 if layer is None else layer
    [last] = indices_of(last, num_layers(model), "layer", model)
    _, parts = run(model, images, tokens_of=last)
    return features_of(model, parts, images.shape[1:3], normed=layer is None)


def features_of(
    model: keras.Model,
    parts: Sequence,
    image_size: int | tuple[int, int],
    normed: bool = True,
) -> Features:
    """Returns `Features` of parts (images, tokens, hidden_size) of a block's output.

    `normed` applies the model's final norm.
    """
    if normed:
        # Other norms are not applied to each token after the blocks.
        others = ("norm_before_blocks", "norm_after_pooling")
        norms = [n for n in layers_of(model, LayerNorm) if n.name not in others]
        for norm in norms[-1:]:
            parts = [norm(tokens) for tokens in parts]
    tokens = np.concatenate(
        [ops.convert_to_numpy(ops.cast(part, "float32")) for part in parts]
    )
    grid = grid_size(model, image_size)
    registers = num_registers(model)
    first = prefix_tokens_of(tokens, grid, axis=1, num_registers=registers)
    patches = tokens[:, first:].reshape(len(tokens), *grid, -1)
    return Features(tokens[:, 0] if first > registers else None, patches)


def principal_colors(patches: np.ndarray) -> np.ndarray:
    """Returns colours of patches: similar colours for similar features.

    The first three principal components of all patches of all images are red, green
    and blue, each from its first hundredth to its last.

    Args:
        patches: float array (images, rows, columns, hidden_size), of `token_features`.

    Returns:
        float32 array (images, rows, columns, 3) in [0, 1].

    Raises:
        ValueError: there are fewer than four patches or three features.

    Source:
        Oquab et al. (DINOv2), arXiv 2304.07193, figure 1, without its choice of the
        foreground.

    Example:
        >>> patches = np.random.default_rng(0).normal(size=(2, 4, 6, 192))
        >>> principal_colors(patches).shape
        (2, 4, 6, 3)
    """
    rows = np.asarray(patches).reshape(-1, np.shape(patches)[-1])
    if len(rows) < 4 or rows.shape[1] < 3:
        raise ValueError(
            f"Three colours need at least 4 patches of 3 features, got {rows.shape}."
        )
    directions, _ = principal_components(rows, 3)
    values = (rows - rows.mean(axis=0)) @ directions.T
    # The lightest and darkest hundredths of a picture would make all else grey.
    low, high = np.percentile(values, (1, 99), axis=0)
    values = (values - low) / np.maximum(high - low, np.finfo("float32").tiny)
    return values.clip(0, 1).reshape(*np.shape(patches)[:3], 3).astype("float32")
