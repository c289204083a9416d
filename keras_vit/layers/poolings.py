"""The kinds of pooling: what the head of a Vision Transformer reads, one row each."""

import dataclasses
from typing import Any

import keras

from keras_vit import layers
from zoo.network import ViTConfig

_PREFIX = ("num_prefix_tokens",)


@dataclasses.dataclass(frozen=True)
class Pooling:
    """One kind of pooling.

    Attributes:
        layer: class of the layer that pools, from tokens to features.
        reads: str, what it reads, for messages.
        class_token: bool, whether a network has a class token if no file says so, whose
            attention then explains what the layer gives.
        arguments: names of the layer's arguments that are fields of a `ViTConfig`, or
            `num_prefix_tokens`.
    """

    layer: type
    reads: str
    class_token: bool = True
    arguments: tuple[str, ...] = _PREFIX


# The `pooling` of `VisionTransformer` -> its row.
POOLINGS = {
    "token": Pooling(layers.ClassTokenPooling, "the class token", arguments=()),
    "gap": Pooling(layers.PatchPooling, "the mean of the patches", class_token=False),
    "token_and_gap": Pooling(
        layers.ClassTokenAndPatchPooling, "the class token and the mean of the patches"
    ),
    "map": Pooling(
        layers.AttentionPooling,
        "what a query attends to",
        class_token=False,
        arguments=(
            "num_heads",
            "mlp_dim",
            "activation",
            "layer_norm_epsilon",
            *_PREFIX,
        ),
    ),
    "distilled": Pooling(
        layers.DistillationPooling,
        "the class token and the distillation token",
        arguments=(),
    ),
    "queries": Pooling(layers.QueryPooling, "queries", arguments=("num_queries",)),
}


def layer_of(
    kind: str, config: ViTConfig, prefix: int, **options: Any
) -> keras.layers.Layer:
    """Returns the layer of a kind of pooling for the network of a config.

    `prefix` is the number of tokens before those of the patches; `options` are further
    arguments.
    """
    # Perception Encoder's attention is to the class token too.
    attends_to_all = kind == "map" and config.rotary == "perception"
    values = vars(config) | {"num_prefix_tokens": 0 if attends_to_all else prefix}
    own = {name: values[name] for name in POOLINGS[kind].arguments}
    return POOLINGS[kind].layer(**own | options)


def kind_of_layer(layer: keras.layers.Layer) -> str | None:
    """Returns the kind that a layer is of, or None."""
    kinds = {pooling.layer: kind for kind, pooling in POOLINGS.items()}
    return next((kinds[one] for one in type(layer).__mro__ if one in kinds), None)


def layer_classes() -> tuple:
    """Returns the classes of the layers that pool, a tuple."""
    return tuple(pooling.layer for pooling in POOLINGS.values())
