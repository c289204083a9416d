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
    RotaryPositions,
    SelfAttention,
    StochasticDepth,
    TransformerBlock,
)

TOKENS = np.ones((1, 7, 24), "float32")
EIGHT = np.ones((1, 8, 24), "float32")
# Their number is unknown, as that of images of any size.
MANY = keras.Input((None, 24))
GRID = keras.Input(batch_shape=(None, None))
GRID_OF_TOKENS = np.zeros((2, 3), "int32")
OFFSETS = layers.RelativePositionEmbedding


def attention(positions):
    return SelfAttention(3, positions=positions)


def block(**options):
    return TransformerBlock(3, 40, **options)


def rotary(num_prefix_tokens=None):
    return RotaryPositions("eva", (2, 3), num_prefix_tokens=num_prefix_tokens)


def for_any_size(layer):
    layer(MANY, grid=GRID)
    return layer


def built_for_seven(layer):
    layer(TOKENS)
    return layer


REFUSED = [
    # The sizes of patches and images.
    (lambda: PatchEncoder(0, 8), "patch_size", "positive int", "0"),
    (lambda: PatchEncoder(16, 8)(keras.Input((40, 32, 3))), "16x16", "40x32: resize"),
    (lambda: layers.ResidualUnit(8, strides=0), "strides", "positive"),
    (lambda: layers.GroupNorm(3)(ops.ones((1, 2, 2, 8))), "groups=3", "channels, 8"),
    (lambda: PatchEncoder(8, 24)(TOKENS), "takes images (batch, h", "(1, 7, 24): give"),
    *((lambda one=one: one(ops.ones((1, 8, 8, 3))), "tokens (b", "PatchEncoder makes")
      for one in (keras_vit.ClassToken(), block(), AddPositionEmbs((1, 1)))),
    # Choices.
    (lambda: layers.StdConv2D(4, 3, epsilons="torch"), "timm", "'torch'"),
    (lambda: layers.MLP(40, activation="relu"), "quick_gelu", "'relu'"),
    (lambda: ClassificationHead(2, problem_type="ranking"), "problem_type must be"),
    (lambda: RotaryPositions("foo", (4, 4)), "eva", "'foo'"),
    (lambda: layers.MLP(40, units=3), "MLP has no argument units: pass only mlp_dim, "),
    (lambda: block(trainable_parts={"a": False})(TOKENS), "no part 'a'", "mlp.expand"),
    # Sizes of heads.
    (lambda: SelfAttention(5)(TOKENS), "num_heads=5", "token, 24"),
    (lambda: AttentionPooling(5, 40)(TOKENS), "num_heads=5"),
    (lambda: SelfAttention(4, positions=rotary())(TOKENS), "multiple of 4"),
    (lambda: AddPositionEmbs2D((2, 3))(ops.ones((1, 7, 9))), "even hidden_size"),
    # Rates.
    (lambda: StochasticDepth(1.0), "rate must be in [0, 1), got 1.0"),
    (lambda: StochasticDepth(-0.1), "[0, 1), got -0.1"),
    # Numbers of tokens.
    (lambda: PatchPooling(-1), "not be negative, got -1"),
    (lambda: PatchPooling()(ops.ones((1, 1, 24))), "after 1 tokens", "pass tokens"),
    (lambda: AddPositionEmbs((2, 3))(EIGHT), "2x3 patches", "at most one", "got 8"),
    (lambda: built_for_seven(AddPositionEmbs((2, 3)))(EIGHT), "7 tokens, got 8"),
    (lambda: built_for_seven(AddPositionEmbs2D((2, 3)))(EIGHT), "7 tokens, got 8"),
    (lambda: built_for_seven(block(positions=OFFSETS()))(EIGHT), "7 tokens, got 8"),
    (lambda: AddPositionEmbs()(MANY), "known number of tokens", "height and width"),
    (lambda: block(positions=rotary())(MANY), "rotary_pos", "known number of tokens"),
    # Grids of images of any size.
    (lambda: AddPositionEmbs()(TOKENS, grid=GRID_OF_TOKENS), "needs a grid_size"),
    (lambda: SelfAttention(3)(TOKENS, grid=GRID_OF_TOKENS), "no positions", "leave it"),
    (lambda: for_any_size(block(positions=rotary(1)))(MANY), "any number", "PatchGrid"),
    (lambda: for_any_size(AddPositionEmbs((2, 3), num_prefix_tokens=1))(MANY),
     "tokens of any number"),
    (lambda: attention(rotary())(MANY, grid=GRID), "known num", "num_prefix_tokens"),
    (lambda: attention("rotary"), "attention", "positions must be a Rotary"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_refused_by_name_with_what_to_do(row):
    call, *parts = row
    check_refusal(call, *parts)


# A layer, and its arguments that are floats.
FLOATS = [
    (layers.LayerNorm, {}, "epsilon"),
    (layers.GroupNorm, {}, "epsilon"),
    (layers.LayerScale, {}, "initial_value"),
    (layers.MLP, {"mlp_dim": 8}, "norm_epsilon"),
    (SelfAttention, {"num_heads": 2}, "norm_epsilon"),
    (AttentionPooling, {"num_heads": 2, "mlp_dim": 8}, "layer_norm_epsilon"),
    (RotaryPositions, {"kind": "eva", "grid_size": 2}, "base"),
    (TransformerBlock, {"num_heads": 2, "mlp_dim": 8}, "layer_norm_epsilon"),
    (TransformerBlock, {"num_heads": 2, "mlp_dim": 8}, "layer_scale"),
]


@pytest.mark.parametrize(("layer", "others", "name"), FLOATS)
def test_numbers_that_float32_cannot_hold_are_refused_by_name(layer, others, name):
    said = "(epsilon|initial_value|base) must be a .*number of at most 3"
    for value in (math.nan, math.inf, -math.inf, 1e300, "1e-6", True):
        with pytest.raises(ValueError, match=said):
            layer(**others, **{name: value})


PLAIN = keras_vit.ViTConfig(24, 1, 3, 40, patch_size=8)


HEADS = [
    ("class_names", ["a"], "1 names for 2 classes", "one name per class"),
    ("class_names", ["a", "b", "c"], "3 names for 2 classes"),
    ("class_names", "ab", "a sequence of str, or one of", "got 'ab'"),
    ("class_names", ["a", 7], "class_names[1] is 7", "texts"),
    ("class_names", ["a\nb", "c"], r"class_names[0] is 'a\nb'", "texts"),
    ("class_names", ["a", "\x1b[2J"], r"class_names[1] is '\x1b[2J'"),
    ("class_names", ["a", "\ud800"], r"class_names[1] is '\ud800'"),
    ("preparation", "crop", "squash, central crop, or like", "got 'crop'"),
]


@pytest.mark.parametrize("row", HEADS)
def test_what_heads_refuse_models_refuse(row):
    option, value, *parts = row
    given = {option: value}
    for make in (
        lambda: ClassificationHead(2, **given),
        lambda: VisionTransformer(PLAIN, image_size=16, classes=2, **given),
        lambda: setattr(ClassificationHead(2), option, value),
    ):
        check_refusal(make, *parts)
