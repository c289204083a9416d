"""Arguments and inputs that layers refuse: by name, with what to do."""

import math

import keras
import numpy as np
import pytest
from harness import check_refusal
from keras import ops

import keras_vit
from keras_vit import VisionTransformer, layers
from keras_vit.layers import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    AttentionPooling,
    ClassificationHead,
    PatchEncoder,
    PatchPooling,
    RelativePositionEmbedding,
    RotaryPositions,
    SelfAttention,
    StochasticDepth,
    TransformerBlock,
)

TOKENS = np.ones((1, 7, 24), "float32")
EIGHT = np.ones((1, 8, 24), "float32")
# Of any number, as of images of any size.
MANY = keras.Input((None, 24))
GRID = keras.Input(batch_shape=(None, None))


def attention(positions):
    return SelfAttention(3, positions=positions)


def shared():
    """Positions that another layer has."""
    positions = RotaryPositions("eva", (2, 3))
    attention(positions)(TOKENS)
    return positions


def built_for_seven(layer):
    layer(TOKENS)
    return layer


REFUSED = {
    # The sizes of patches and images.
    "no patch": (lambda: PatchEncoder(0, 8), "patch_size", "positive int", "0"),
    "three sides": (lambda: PatchEncoder((4, 4, 4), 8), "patch_size", "(4, 4, 4)"),
    "parts of patches": (
        lambda: PatchEncoder(16, 8)(ops.ones((1, 32, 40, 3))),
        "patch size 16x16", "32x40: resize",
    ),
    "symbolic parts of patches": (
        lambda: PatchEncoder(16, 8)(keras.Input((40, 32, 3))),
        "patch size 16x16", "40x32: resize",
    ),
    "no strides": (lambda: layers.ResidualUnit(8, strides=0), "strides", "positive"),
    "groups": (
        lambda: layers.GroupNorm(3)(ops.ones((1, 2, 2, 8))), "groups=3", "channels, 8"
    ),
    # Choices.
    "epsilons": (lambda: layers.StdConv2D(4, 3, epsilons="torch"), "timm", "'torch'"),
    "activation": (lambda: layers.MLP(40, activation="relu"), "quick_gelu", "'relu'"),
    "problem_type": (
        lambda: ClassificationHead(2, problem_type="ranking"), "problem_type must be"
    ),
    "kind": (lambda: RotaryPositions("foo", (4, 4)), "eva", "'foo'"),
    "an unknown argument": (
        lambda: layers.MLP(40, units=3, name="own"),
        "MLP has no argument units: pass only mlp_dim, dropout_rate, ",
    ),
    "an argument of a layer without": (
        lambda: keras_vit.ClassToken(count=3), "no argument count", "name and dtype"
    ),
    "an unknown part": (
        lambda: TransformerBlock(3, 40, trainable_parts={"head": False})(TOKENS),
        "no part 'head'", "attention.query",
    ),
    # Sizes of heads.
    "heads": (lambda: SelfAttention(5)(TOKENS), "num_heads=5", "token, 24"),
    "heads of a pooling": (lambda: AttentionPooling(5, 40)(TOKENS), "num_heads=5"),
    "heads that cannot be turned": (
        lambda: SelfAttention(4, positions=RotaryPositions("eva", (2, 3)))(TOKENS),
        "multiple of 4",
    ),
    "an odd size": (
        lambda: AddPositionEmbs2D((2, 3))(ops.ones((1, 7, 9))), "even hidden_size"
    ),
    # Rates.
    "rate of one": (lambda: StochasticDepth(1.0), "rate must be in [0, 1), got 1.0"),
    "rate below zero": (lambda: StochasticDepth(-0.1), "[0, 1), got -0.1"),
    # Numbers of tokens.
    "a prefix below zero": (lambda: PatchPooling(-1), "not be negative, got -1"),
    "no patches": (
        lambda: PatchPooling()(ops.ones((1, 1, 24))), "after 1 tokens", "pass tokens"
    ),
    "eight for a grid": (
        lambda: AddPositionEmbs((2, 3))(EIGHT), "2x3 patches", "at most one", "got 8"
    ),
    "eight after seven": (
        lambda: built_for_seven(AddPositionEmbs((2, 3)))(EIGHT), "7 tokens, got 8"
    ),
    "eight after seven of rows": (
        lambda: built_for_seven(AddPositionEmbs2D((2, 3)))(EIGHT), "7 tokens, got 8"
    ),
    "eight after seven of offsets": (
        lambda: built_for_seven(attention(RelativePositionEmbedding()))(EIGHT),
        "7 tokens, got 8",
    ),
    "unknown": (
        lambda: AddPositionEmbs()(MANY), "known number of tokens", "height and width"
    ),
    "unknown offsets": (
        lambda: attention(RelativePositionEmbedding())(MANY),
        "position_embedding", "known number of tokens", "fixed height",
    ),
    "unknown turns": (
        lambda: TransformerBlock(3, 40, positions=RotaryPositions("eva", 2))(MANY),
        "rotary_positions", "known number of tokens",
    ),
    "unknown with a grid": (
        lambda: AddPositionEmbs((5, 4))(MANY, grid=GRID),
        "known number of tokens", "num_prefix_tokens",
    ),
    # Grids of images of any size.
    "a grid without one's own": (
        lambda: AddPositionEmbs()(TOKENS, grid=np.zeros((2, 3), "int32")),
        "needs a grid_size",
    ),
    "turns with a grid": (
        lambda: attention(RotaryPositions("eva", (2, 3)))(MANY, grid=GRID),
        "known number of tokens", "num_prefix_tokens",
    ),
    # Positions are objects, one for each layer.
    "a name": (lambda: attention("rotary"), "attention", "positions must be a Rotary"),
    "another layer's": (
        lambda: attention(shared()), "the positions of self_attention", "rotary"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name_with_what_to_do(case):
    call, *parts = REFUSED[case]
    check_refusal(call, *parts)


FLOATS = {
    "epsilon of LayerNorm": (layers.LayerNorm, "epsilon"),
    "epsilon of GroupNorm": (lambda value: layers.GroupNorm(epsilon=value), "epsilon"),
    "LayerScale": (layers.LayerScale, "initial_value"),
    "MLP": (lambda value: layers.MLP(8, norm_epsilon=value), "norm_epsilon"),
    "attention": (lambda value: SelfAttention(2, norm_epsilon=value), "norm_epsilon"),
    "pooling": (
        lambda value: AttentionPooling(2, 8, layer_norm_epsilon=value), "norm_epsilon"
    ),
    "base": (lambda value: RotaryPositions("eva", 2, base=value), "base"),
    "epsilon of a block": (
        lambda value: TransformerBlock(2, 8, layer_norm_epsilon=value), "epsilon"
    ),
    "scale of a block": (
        lambda value: TransformerBlock(2, 8, layer_scale=value), "initial_value"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FLOATS)
def test_numbers_that_float32_cannot_hold_are_refused_by_name(case):
    make, name = FLOATS[case]
    for value in (math.nan, math.inf, -math.inf, 1e300, "1e-6", True):
        with pytest.raises(ValueError, match=f"{name} must be a .*number of at most 3"):
            make(value)


PLAIN = keras_vit.ViTConfig(24, 1, 3, 40, patch_size=8)


@pytest.mark.parametrize(
    ("option", "value", "parts"),
    [
        ("class_names", ["a"], ["1 names for 2 classes", "one name per class"]),
        ("class_names", ["a", "b", "c"], ["3 names for 2 classes"]),
        ("class_names", "ab", ["a sequence of str, or one of", "got 'ab'"]),
        ("class_names", 2, ["a sequence of str", "got 2"]),
        ("class_names", ["a", 7], ["class_names[1] is 7", "texts"]),
        ("class_names", ["a", None], ["class_names[1] is None"]),
        ("class_names", ["a\nb", "c"], [r"class_names[0] is 'a\nb'", "texts"]),
        ("class_names", ["a", "\x1b[2J"], [r"class_names[1] is '\x1b[2J'"]),
        ("class_names", ["a", "\ud800"], [r"class_names[1] is '\ud800'"]),
        ("preparation", "crop", ["squash, central crop, or like", "got 'crop'"]),
    ],
)
def test_what_heads_refuse_models_refuse(option, value, parts):
    given = {option: value}
    for make in (
        lambda: ClassificationHead(2, **given),
        lambda: VisionTransformer(PLAIN, image_size=16, classes=2, **given),
        lambda: setattr(ClassificationHead(2), option, value),
    ):
        check_refusal(make, *parts)
