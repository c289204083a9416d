"""Small models of every kind that exporters know, with random weights."""

import dataclasses
import functools

import keras
from harness import randomize

from keras_vit import TransformerBlock, VisionTransformer, ViTConfig
from keras_vit.layers import PatchPooling

PLAIN = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
HYBRID = dataclasses.replace(PLAIN, patch_size=1, resnet_stages=(1, 1), resnet_width=32)
SIZE = (32, 48)


def of(config, **changes):
    """The arguments of a model whose configuration differs."""
    return {"config": dataclasses.replace(config, **changes)}


def positions(kind, at="stem"):
    return of(PLAIN, position_embedding=kind, position_embedding_at=at)


# One vector an image.
POOLED = {
    "plain": {},
    "exact GELU": of(PLAIN, activation="gelu"),
    "patches not square": of(PLAIN, patch_size=(8, 12)),
    "mean of the tokens": {"pooling": "gap"},
    "without head": {"include_top": False},
    "pre-logits": {"representation_size": 16},
    "pre-logits without head": {"include_top": False, "representation_size": 16},
    "gray, softmax": {"channels": 1, "classifier_activation": "softmax"},
    "remat and dropout": {
        "remat": True,
        "dropout_rate": 0.1,
        "stochastic_depth_rate": 0.1,
    },
    "hybrid": {"config": HYBRID},
    "rows and columns before every block": positions("2d", "every_layer"),
    "relative": positions("relative"),
    "registers": of(
        PLAIN,
        layer_scale=0.5,
        num_registers=2,
        tokens_with_positions="patches",
        activation="swiglu",
        qkv_bias=False,
        norm_before_blocks=True,
        norm_after_pooling=True,
    ),
    "relative biases": of(
        PLAIN,
        relative_position_bias=True,
        tokens_with_positions="none",
        num_registers=1,
    ),
    "rotary, attention pooling": {
        **of(
            PLAIN,
            rotary="perception",
            activation="quick_gelu",
            attention_norm_inside=True,
            mlp_norm_inside=True,
            norm_after_branches=True,
        ),
        "pooling": "map",
    },
}
# For each token too.
MODELS = POOLED | {
    "all tokens": {"pooling": None, "include_top": False},
    "a head for each token": {"pooling": None},
}


def patches_averaged(**arguments):
    """Returns a model with a class token and a head on the mean of the patches."""
    model = made(pooling=None, include_top=False, **arguments)
    mean = PatchPooling(name="pooling")(model.output)
    head = keras.layers.Dense(5, name="head")
    model = keras.Model(model.input, head(mean), name=model.name)
    randomize(head)
    return model


def made(config=PLAIN, image_size=SIZE, **arguments):
    """Returns a model of five classes whose variables, the head's too, are random."""
    if arguments.get("include_top", True):
        arguments = {"classes": 5, **arguments}
    model = VisionTransformer(config, image_size=image_size, **arguments)
    randomize(model)
    return model


@functools.cache
def shared(kind="plain"):
    """Returns a model of `MODELS`, built once: only for tests that do not change it."""
    return made(**MODELS[kind])


def seen_by(monkeypatch):
    """A list that grows by whether each block called computes one token alone."""
    seen, encode = [], TransformerBlock._encode

    def watched(block, tokens, training, class_token_only, grid):
        seen.append(class_token_only)
        return encode(block, tokens, training, class_token_only, grid)

    monkeypatch.setattr(TransformerBlock, "_encode", watched)
    return seen
