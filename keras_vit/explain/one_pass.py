"""What one forward pass of some images shows: outputs, attention and features."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit.explain.attention import (
    ByLayer,
    Rollout,
    distance_of,
    patch_map,
    pooled_weights,
)
from keras_vit.explain.running import check_images, run
from keras_vit.explain.sinks import received_attention
from keras_vit.explain.tokens import Features, features_of
from keras_vit.structure import num_layers, num_registers, pooling_of
from keras_vit.structure.image_sizes import grid_size


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a model computes for images, by one forward pass.

    `outputs` are the model's, `rollout` is float32 (images, rows, columns), `maps`
    float32 (layers, images, heads, rows, columns), `distance` float32 (layers, images,
    heads) in pixels, `received` float32 (layers, images, rows, columns). `pooled` is
    what the query of an attention pooling attends to, float32 (images, heads, rows,
    columns), None of a model without one.
    """

    outputs: np.ndarray
    rollout: np.ndarray
    maps: np.ndarray
    distance: np.ndarray
    received: np.ndarray
    features: Features
    pooled: np.ndarray | None = None

    def of_image(self, index: int) -> "Inspection":
        """Returns one image's, without the axis of images; features keep theirs."""
        token, patches = self.features.class_token, self.features.patches
        token = None if token is None else token[index : index + 1]
        return Inspection(
            outputs=self.outputs[index],
            rollout=self.rollout[index],
            maps=self.maps[:, index],
            distance=self.distance[:, index],
            received=self.received[:, index],
            features=Features(token, patches[index : index + 1]),
            pooled=None if self.pooled is None else self.pooled[index],
        )


def inspect(model: keras.Model, images: Any) -> Inspection:
    """Returns the `Inspection` of float images (images, height, width, channels).

    The numbers are those of `attention_rollout` and of all maps by `patch_map`, of
    `pooling_attention`, `attention_distance`, `received_attention` and
    `token_features`. Raises a ValueError as `attention_maps` does.
    """
    images = check_images(model, images)
    grid = grid_size(model, images.shape[1:3])
    last, registers = num_layers(model) - 1, num_registers(model)
    to_map = functools.partial(
        patch_map,
        grid_size=grid,
        pooling=pooling_of(model),
        num_registers=registers,
    )

    def collected(function: Callable) -> ByLayer:
        return ByLayer(function, range(last + 1), len(images))

    rollout, pooled = Rollout(len(images)), pooled_weights(model, images)
    maps = collected(to_map)
    distance = collected(distance_of(model, images.shape[1:3]))
    received = collected(lambda weights: received_attention(weights, grid, registers))

    def see_weights(layer: int, part: slice, weights: Any) -> None:
        weights = ops.convert_to_numpy(weights)
        for collector in (rollout, maps, distance, received):
            collector(layer, part, weights)

    outputs, tokens = run(model, images, see_weights, pooled, tokens_of=last)
    of_pooling, weights = None, to_map.keywords["pooling"]
    if pooled.values is not None:
        [weights] = pooled.values
        of_pooling = weights[..., -math.prod(grid) :]
        of_pooling = of_pooling.reshape(*weights.shape[:2], *grid)
        weights = weights.mean(axis=1)
    return Inspection(
        outputs=np.concatenate([ops.convert_to_numpy(part) for part in outputs]),
        rollout=to_map(rollout.matrices, pooling=weights),
        maps=maps.values,
        distance=distance.values,
        received=received.values,
        features=features_of(model, tokens, images.shape[1:3]),
        pooled=of_pooling,
    )
