"""The kinds of pooling: what the head of a Vision Transformer reads, one row each."""

import dataclasses
from collections.abc import Callable

import keras

from keras_vit import layers


def _after_prefix(config, prefix):
    return {"num_prefix_tokens": prefix}


def _as_a_block(config, prefix):
    # Perception Encoder's attends to the class token too.
    prefix = 0 if config.rotary == "perception" else prefix
    names = ("num_heads", "mlp_dim", "activation", "layer_norm_epsilon")
    return {name: getattr(config, name) for name in names} | _after_prefix(
        config, prefix
    )


@dataclasses.dataclass(frozen=True)
class Pooling:
    """One kind of pooling.

    Attributes:
        layer: class of the layer that pools, from tokens to features.
        reads: str, what it reads, for messages.
        class_token: bool, whether a network has a class token if no file says so.
        shows: `"token"` or `"gap"`, whose attention explains what it gives.
        arguments: function from a `ViTConfig` and the number of tokens before those of
            the patches to the layer's arguments, a dict.
    """

    layer: type
    reads: str
    class_token: bool = True
    shows: str = "token"
    arguments: Callable = _after_prefix


# The `pooling` of `VisionTransformer` -> its row.
POOLINGS = {
    "token": Pooling(
        layers.ClassTokenPooling, "the class token", arguments=lambda *_: {}
    ),
    "gap": Pooling(
        layers.PatchPooling, "the mean of the patches", class_token=False, shows="gap"
    ),
    "token_and_gap": Pooling(
        layers.ClassTokenAndPatchPooling, "the class token and the mean of the patches"
    ),
    "map": Pooling(
        layers.AttentionPooling,
        "what a query attends to",
        class_token=False,
        shows="gap",
        arguments=_as_a_block,
    ),
    "distilled": Pooling(
        layers.DistillationPooling,
        "the class token and the distillation token",
        arguments=lambda *_: {},
    ),
}


def layer_of(kind: str, config, prefix: int, **options) -> keras.layers.Layer:
    """Returns the layer of a kind of pooling for the network of a config.

    `prefix` is the number of tokens before those of the patches; `options` are further
    arguments.
    """
    pooling = POOLINGS[kind]
    return pooling.layer(**pooling.arguments(config, prefix) | options)


def kind_of_layer(layer) -> str | None:
    """Returns the kind that a layer is of, or None."""
    kinds = {pooling.layer: kind for kind, pooling in POOLINGS.items()}
    return next((kinds[one] for one in type(layer).__mro__ if one in kinds), None)


def layer_classes() -> tuple:
    """Returns the classes of the layers that pool, a tuple."""
    return tuple(pooling.layer for pooling in POOLINGS.values())
