import keras
import layer_references as references
import numpy as np
import pytest
from harness import (
    check_config,
    check_layer,
    cotangent,
    gradients,
    normal,
    numpy,
    randomize,
    rms,
)
from keras import ops

import keras_vit
from keras_vit import layers
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.layers.mlp import gelu

HE_NORMAL = keras.initializers.serialize(keras.initializers.get("he_normal"))

serialized = keras.saving.serialize_keras_object
TOKENS = (2, 7, 24)
BLOCK = {
    "num_heads": 3, "mlp_dim": 40, "dropout_rate": 0.2, "attention_dropout_rate": 0.3,
    "stochastic_depth_rate": 0.4, "activation": "gelu", "layer_norm_epsilon": 0.1,
    "layer_scale": 0.1, "qkv_bias": False, "attention_norm_inside": True,
    "mlp_norm_inside": True, "remat": True,
}  # fmt: skip
ATTENTION = {
    "num_heads": 3,
    "dropout_rate": 0.4,
    "positions": serialized(layers.RelativePositionBias((2, 3))),
}
# A bias of the keys shifts all scores of a row alike.
OF_KEYS = ("key/bias",)
# Name and place, every argument off its default, the shapes of the input and of the
# output, how many weights; for what is not so usual, options of `check_layer`.
LAYERS = {
    "PatchEncoder": (
        {"patch_size": (4, 2), "hidden_size": 24, "preparation": "central crop",
         "bits": 12},
        (2, 8, 10, 3), (2, 10, 24), 2, {},
    ),
    "ClassToken": ({}, (2, 6, 24), TOKENS, 1, {}),
    "ClassTokenPooling": ({}, TOKENS, (2, 24), 0, {}),
    "ClassificationHead": (
        {"units": 2, "class_names": ["Käfer", "crane"], "preparation": "central crop",
         "problem_type": "regression", "bits": 12, "thresholds": [0.5, 0.25]},
        (2, 24), (2, 2), 2, {},
    ),
    "PatchPooling": ({"num_prefix_tokens": 2}, TOKENS, (2, 24), 0, {}),
    "RegisterTokens": (
        {"num_registers": 2, "after": 1, "stddev": 0.5}, TOKENS, (2, 9, 24), 1, {}
    ),
    "QueryPooling": ({"num_queries": 2}, TOKENS, (2, 2, 24), 0, {}),
    "UpscaleBlock": ({}, (2, 3, 2, 8), (2, 6, 4, 8), 5, {}),
    "ClassTokenAndPatchPooling": ({"num_prefix_tokens": 2}, TOKENS, (2, 48), 0, {}),
    "DistillationPooling": ({"concatenate": True}, TOKENS, (2, 48), 0, {}),
    "AttentionPooling": (
        {"num_heads": 3, "mlp_dim": 40, "activation": "quick_gelu",
         "layer_norm_epsilon": 0.1, "num_prefix_tokens": 2},
        TOKENS, (2, 24), 15, {"zero_gradients": OF_KEYS},
    ),
    "LayerScale": ({"initial_value": 0.1}, TOKENS, TOKENS, 1, {}),
    "AddPositionEmbs": (
        {"grid_size": (2, 3), "num_registers": 1, "resizing": "bicubic",
         "num_prefix_tokens": 2},
        (2, 8, 24), (2, 8, 24), 1, {},
    ),
    "AddPositionEmbs2D": (
        {"grid_size": (2, 3), "resizing": "bicubic", "num_prefix_tokens": 1},
        TOKENS, TOKENS, 3, {},
    ),
    "LayerNorm": ({"epsilon": 0.1}, TOKENS, TOKENS, 2, {}),
    "SelfAttention": (
        ATTENTION | {"qkv_bias": "query and value", "norm_epsilon": 0.1},
        TOKENS, TOKENS, 10, {"random_in_training": True},
    ),
    # The form that backends have fused.
    "SelfAttention as released": (
        {"num_heads": 3, "dropout_rate": 0.4},
        TOKENS, TOKENS, 8, {"random_in_training": True, "zero_gradients": OF_KEYS},
    ),
    "MLP": (
        {"mlp_dim": 40, "dropout_rate": 0.4, "activation": "gelu", "norm_epsilon": 0.1},
        TOKENS, TOKENS, 6, {"random_in_training": True},
    ),
    "StochasticDepth": (
        {"rate": 0.4, "seed": 3},
        (32, 7, 24), (32, 7, 24), 0, {"random_in_training": True},
    ),
    "TransformerBlock": (
        BLOCK
        | {"positions": serialized(layers.RotaryPositions("dinov3", (2, 3), base=50))},
        TOKENS, TOKENS, 19, {"random_in_training": True},
    ),
    "PostNormBlock": (
        BLOCK | {"positions": serialized(layers.RelativePositionEmbedding())},
        TOKENS, TOKENS, 20, {"random_in_training": True},
    ),
    "StdConv2D": (
        {"filters": 5, "kernel_size": (3, 2), "strides": (2, 1), "use_bias": True,
         "padding": "symmetric", "kernel_initializer": HE_NORMAL, "epsilons": "timm"},
        (2, 9, 6, 3), (2, 5, 5, 5), 2, {},
    ),
    "GroupNorm": (
        {"groups": 4, "epsilon": 1e-5, "gamma_initializer": "zeros"},
        (2, 7, 6, 16), (2, 7, 6, 16), 2, {},
    ),
    "ResidualUnit": (
        {"filters": 8, "strides": (2, 1), "groups": 4, "padding": "symmetric",
         "epsilons": "timm"},
        (2, 7, 6, 16), (2, 4, 6, 32), 12, {},
    ),
    "PreActivationUnit": (
        {"filters": 8, "strides": (2, 1), "groups": 4},
        (2, 9, 6, 16), (2, 5, 6, 32), 10, {},
    ),
}  # fmt: skip
# Only their configuration is checked: they give grids, or are given to attention.
CONFIGURED = {
    "PatchGrid": {"patch_size": (4, 2)},
    "PatchMap": {"num_prefix_tokens": 2},
    "MaskAnnealing": {"num_blocks": 2, "steps": 40, "seed": 3},
    "MaskLogits": {},
    "RotaryPositions": {
        "kind": "eva", "grid_size": (4, 6), "num_prefix_tokens": 2, "num_registers": 1,
        "stretched_to": (4, 4), "base": 50.0,
    },
    "RelativePositionBias": {
        "grid_size": (2, 3), "num_registers": 1, "resizing": "bicubic",
        "num_prefix_tokens": 2,
    },
    "RelativePositionEmbedding": {},
}  # fmt: skip


def test_every_public_layer_is_here():
    names = {name.partition(" ")[0] for name in LAYERS}
    assert names | CONFIGURED.keys() == set(layers.__all__)


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_do_what_all_layers_must(kind, tmp_path):
    arguments, input_shape, output_shape, num_weights, options = LAYERS[kind]
    name, *others = kind.split()
    check_layer(
        getattr(layers, name),
        arguments,
        input_shape,
        output_shape,
        num_weights=num_weights,
        all_arguments=not others,
        reference=references.expected_output,
        tmp_path=tmp_path,
        **options,
    )


@pytest.mark.parametrize("name", CONFIGURED)
def test_configurations_are_the_arguments(name):
    check_config(getattr(layers, name), CONFIGURED[name])


def built(layer, *shape):
    layer.build(shape)
    randomize(layer)
    return layer


# The other values of arguments, of which only what is computed differs, as far as no
# golden has them.
VALUES = [
    ("PatchPooling", {"num_prefix_tokens": 0}, TOKENS),
    ("PatchPooling", {}, TOKENS),
    ("RegisterTokens", {"num_registers": 3}, TOKENS),
    ("ClassTokenAndPatchPooling", {}, TOKENS),
    ("DistillationPooling", {}, TOKENS),
    ("AttentionPooling", {"num_heads": 3, "mlp_dim": 40}, TOKENS),
    ("AddPositionEmbs2D", {"grid_size": (2, 3)}, (2, 6, 24)),
    ("MLP", {"mlp_dim": 40}, TOKENS),
    ("MLP", {"mlp_dim": 40, "activation": "swiglu"}, TOKENS),
    ("GroupNorm", {}, (2, 7, 6, 64)),
    # Padding below only, and on both sides.
    ("StdConv2D", {"filters": 5, "kernel_size": 3, "strides": 2}, (2, 8, 7, 3)),
    ("StdConv2D", {"filters": 5, "kernel_size": 7, "strides": 2}, (2, 9, 12, 3)),
    *(
        ("StdConv2D", {"filters": 4, "padding": "symmetric", **size}, (1, 9, 10, 3))
        for size in (
            {"kernel_size": 3, "dilation_rate": (1, 3)},
            {"kernel_size": (3, 5), "dilation_rate": 2},
        )
    ),
    *(
        (name, {"filters": 8, "groups": 4}, (2, 8, 7, channels))
        for name in ("ResidualUnit", "PreActivationUnit")
        for channels in (16, 32)
    ),
]


@pytest.mark.parametrize(("name", "arguments", "shape"), VALUES)
def test_outputs_are_those_of_numpy(name, arguments, shape):
    layer = built(getattr(layers, name)(**arguments), *shape)
    inputs = 2 * normal(shape)
    expected = references.expected_output(layer, inputs, arguments)
    assert layer.compute_output_shape(shape) == expected.shape
    tolerance = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(numpy(layer(inputs)), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("epsilons", "scale"), [("released", 1e-5), ("timm", 1e-4), ("bit", 1e-5)]
)
def test_where_the_epsilon_of_a_kernel_is_added(epsilons, scale):
    layer = built(layers.StdConv2D(4, 3, epsilons=epsilons), None, 6, 6, 3)
    # Deviations so small that another epsilon, or none, is far off.
    layer.kernel.assign(scale * normal(layer.kernel.shape))
    images = normal((1, 6, 6, 3))
    expected = references.std_conv(images, layer, 4, 3, epsilons=epsilons)
    np.testing.assert_allclose(numpy(layer(images)), expected, rtol=1e-3, atol=1e-4)


def test_residual_units_hand_their_arguments_on():
    unit = layers.ResidualUnit(8, 2, 4, padding="symmetric", epsilons="timm")
    unit.build((None, 8, 7, 16))
    for part in ("1", "2", "3", "_proj"):
        convolution = getattr(unit, f"conv{part}")
        assert (convolution.symmetric, convolution.epsilons) == (True, "timm")
        assert getattr(unit, f"gn{part}").epsilon == 1e-5


REGISTERS = {"num_registers": 2}
# The name and arguments of layers that attend, and a function that makes positions.
ATTENDING = [
    ("SelfAttention", {}, None),
    ("SelfAttention", {}, layers.RelativePositionEmbedding),
    # With a class token, without one and with registers.
    ("SelfAttention", {}, lambda: layers.RelativePositionBias((2, 3))),
    ("SelfAttention", {}, lambda: layers.RelativePositionBias((1, 7))),
    ("SelfAttention", {}, lambda: layers.RelativePositionBias((2, 2), **REGISTERS)),
    ("SelfAttention", {}, lambda: layers.RotaryPositions("dinov3", 2, **REGISTERS)),
    ("TransformerBlock", {"mlp_dim": 40}, None),
    ("TransformerBlock", {"mlp_dim": 40, "layer_scale": 0.3, "qkv_bias": False}, None),
    ("PostNormBlock", {"mlp_dim": 40}, None),
]


@pytest.mark.parametrize(("name", "others", "positions"), ATTENDING)
@pytest.mark.parametrize("training", [False, True])
def test_attention_is_that_of_numpy(name, others, positions, training):
    arguments = {"num_heads": 3, **others}
    positions = positions and positions()
    layer = getattr(layers, name)(**arguments, positions=positions)
    layer = built(layer, None, 7, 24)
    if isinstance(positions, layers.RelativePositionEmbedding):
        # As much in the offset as in the content.
        positions.offset_embedding.assign(normal((13, 8)))
    tokens = 2 * normal(TOKENS)
    expected, weights = references.OUTPUTS[name](
        tokens.astype("float64"), layer, **arguments
    )
    assert weights.max() > 0.5  # far from the uniform 1/7
    seen = []
    watcher = Watcher(lambda weights: seen.append(weights.shape) or weights)
    for first_alone in (False, True):
        options = {"training": training, "class_token_only": first_alone}
        queries = slice(0, 1) if first_alone else slice(None)
        # Without the weights the backend may have a fused form.
        plain = layer(tokens, **options)
        output, found = layer(tokens, **options, return_attention_weights=True)
        with running(watcher=watcher):
            watched = layer(tokens, **options)
        for one in (plain, output, watched):
            np.testing.assert_allclose(numpy(one), expected[:, queries], atol=4e-5)
        np.testing.assert_allclose(numpy(found), weights[:, :, queries], atol=1e-6)
        symbolic = keras.Input((7, 24))
        alone = layer(symbolic, **options)
        output, found = layer(symbolic, **options, return_attention_weights=True)
        count = 1 if first_alone else 7
        assert alone.shape == output.shape == (None, count, 24)
        assert found.shape == (None, 3, count, 7)
    # A block computes all tokens for whoever watches.
    assert seen == [(2, 3, 7, 7), (2, 3, 7 if "Block" in name else 1, 7)]


def test_norms_of_large_and_of_small_numbers():
    for layer, shape, offset, scale in (
        (layers.LayerNorm(), TOKENS, 100.0, 3.0),
        (layers.LayerNorm(), TOKENS, 0.0, 1e-3),
        # A mean over several axes adds them one after another on TensorFlow.
        (layers.GroupNorm(), (1, 112, 112, 64), 100.0, 1.0),
    ):
        layer = built(layer, *shape)
        inputs = (offset + scale * normal(shape)).astype("float32")
        expected = references.expected_output(layer, inputs, {})
        np.testing.assert_allclose(numpy(layer(inputs)), expected, atol=4e-5)


class Shifted(keras.layers.Layer):
    """A function of the inputs and a variable, which is there for its gradient."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def build(self, shape):
        self.shift = self.add_weight(shape[1:], "zeros", name="shift")

    def call(self, x, training=None):
        shifted = ops.add(ops.cast(x, self.compute_dtype), self.shift)
        return ops.cast(self.function(shifted), "float32")

    def compute_output_shape(self, shape):
        return shape


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_layer_norm(training, policy):
    norm = built(layers.LayerNorm(dtype=policy), 1, 3, 24)
    layer = Shifted(norm, dtype=policy)
    layer.build((1, 3, 24))
    # Exact in bfloat16.
    tokens = (np.round(16 * normal((1, 3, 24))) / 16 + 2).astype("float32")
    found = gradients(layer, tokens, training=training)

    upstream = cotangent(layer, tokens).astype("float64")
    step = 1e-5 * np.eye(72).reshape(72, 3, 24)
    ahead, behind = (references.layer_norm(tokens + s, norm) for s in (step, -step))
    slopes = (upstream * (ahead - behind)).sum(axis=(1, 2)) / 2e-5
    normalised = references.layer_norm(tokens.astype("float64"), norm)
    normalised = (normalised - numpy(norm.beta)) / numpy(norm.gamma)
    expected = {
        "shift": slopes.reshape(3, 24),
        "gamma": (upstream * normalised).sum(axis=(0, 1)),
        "beta": upstream.sum(axis=(0, 1)),
    }
    tolerance = {"float32": 2e-6}.get(policy, 2e-2)
    names = [variable.name for variable in layer.trainable_variables]
    assert sorted(names) == sorted(expected)
    for name, one in zip(names, found, strict=True):
        limit = tolerance * np.abs(expected[name]).max()
        np.testing.assert_allclose(one, expected[name], rtol=0, atol=limit)


@pytest.mark.parametrize("training", [False, True])
def test_gelu_and_its_gradient(training):
    x = np.linspace(-8, 8, 2001)[None].astype("float32")
    layer = Shifted(lambda x: gelu(x, training))
    layer.build(x.shape)
    exact = x.astype("float64")
    expected = references.gelu_tanh(exact)
    np.testing.assert_allclose(numpy(layer(x)), expected, atol=1e-6)
    (found,) = gradients(layer, x)
    ahead, behind = (references.gelu_tanh(exact + h) for h in (1e-5, -1e-5))
    slope = (ahead - behind) / 2e-5 * cotangent(layer, x)
    np.testing.assert_allclose(found, slope[0], atol=5e-6, rtol=1e-5)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="only there it is ours"
)
def test_the_slope_of_gelu_in_float16_is_a_number():
    import tensorflow as tf

    x = tf.constant([-200.0, -68.0, -16.0, 0.0, 16.0, 68.0, 200.0], "float16")
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = gelu(x, training=True)
    slope = tape.gradient(output, x)
    np.testing.assert_array_equal(slope, [0, 0, 0, 0.5, 1, 1, 1])
    np.testing.assert_array_equal(output, [0, 0, 0, 0, 16, 68, 200])


def test_stochastic_depth_drops_examples_and_keeps_the_mean():
    rate, count = 0.3, 4000
    layer = layers.StochasticDepth(rate, seed=1)
    branch = 1 + np.abs(normal((count, 2, 3)))
    found = numpy(layer(branch, training=True)).reshape(count, -1)
    dropped = (found == 0).all(axis=1)
    # Six standard deviations of a binomial.
    margin = 6 * np.sqrt(rate * (1 - rate) / count)
    assert abs(dropped.mean() - rate) < margin
    kept = branch.reshape(count, -1)[~dropped]
    np.testing.assert_allclose(found[~dropped], kept / (1 - rate), rtol=1e-5)
    again = layers.StochasticDepth(rate, seed=1)(branch, training=True)
    np.testing.assert_array_equal(numpy(again).reshape(count, -1), found)


def test_the_two_branches_of_a_block_are_dropped_apart():
    block = keras_vit.TransformerBlock(3, 40, stochastic_depth_rate=0.5)
    built(block, None, 7, 24)
    tokens = np.repeat(normal((1, 7, 24)), 64, axis=0)
    found = numpy(block(tokens, training=True)).round(3)
    # None, either or both of them.
    assert len(np.unique(found.reshape(64, -1), axis=0)) == 4


@pytest.mark.parametrize("silent", ["attention.out", "mlp.project"])
def test_dropout_is_after_attention_and_in_the_perceptron(silent):
    block = built(keras_vit.TransformerBlock(3, 40, dropout_rate=0.5), None, 7, 24)
    tokens = normal(TOKENS)
    part, projection = silent.split(".")
    for variable in getattr(getattr(block, part), projection).weights:
        variable.assign(np.zeros(variable.shape))
    branch = numpy(block(tokens, training=True)) - tokens
    other = numpy(block(tokens)) - tokens
    # Half of the other branch is dropped and the rest is doubled (the perceptron's
    # hidden layer has its own dropout, and so is not just doubled).
    dropped = np.abs(branch) < 1e-6
    assert 0.35 < dropped.mean() < 0.65
    if part == "mlp":
        np.testing.assert_allclose(branch[~dropped], 2 * other[~dropped], atol=1e-5)
    else:
        assert np.abs(branch - 2 * other)[~dropped].max() > 0.1


def test_norms_and_softmax_are_in_float32_under_float16():
    # 300 weights near 1/300: rounded to float16 each is off by up to 1e-6, and a row
    # by far more than float32 would make it.
    layer = built(layers.SelfAttention(3, dtype="float16"), None, 300, 24)
    _, weights = layer(0.1 * normal((1, 300, 24)), return_attention_weights=True)
    weights = numpy(weights)
    assert np.abs(weights - weights.astype("float16")).max() > 1e-7
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=2e-6)

    # Squares of 3000 are beyond the largest float16, 65504.
    for norm, shape, arguments in (
        (layers.LayerNorm(dtype="mixed_float16"), TOKENS, {}),
        (layers.GroupNorm(4, dtype="mixed_float16"), (2, 4, 5, 8), {"groups": 4}),
    ):
        norm = built(norm, *shape)
        inputs = (3000 * normal(shape)).astype("float16")
        expected = references.expected_output(norm, inputs, arguments)
        np.testing.assert_allclose(numpy(norm(inputs)), expected, atol=5e-3)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_kernels_are_standardized_before_they_are_rounded(policy):
    layer = built(layers.StdConv2D(4, 3, dtype=policy), None, 6, 6, 3)
    # Half precision cannot tell these weights apart.
    layer.kernel.assign(10 + 1e-3 * normal(layer.kernel.shape))
    images = normal((1, 6, 6, 3))
    expected = references.std_conv(images, layer, 4, 3)
    error = numpy(layer(images)) - expected
    assert rms(error) < 0.02 * rms(expected)


def test_initial_weights_are_those_of_the_released_code():
    def deviation(variable):
        return np.std(numpy(variable))

    block = keras_vit.TransformerBlock(4, 400, layer_scale=0.3)
    block.build((None, 7, 100))
    for part in ("query", "key", "value", "out"):
        dense = getattr(block.attention, part)
        assert deviation(dense.kernel) == pytest.approx(np.sqrt(2 / 200), rel=0.05)
        assert not numpy(dense.bias).any()
    kernel = block.mlp.expand.kernel
    assert deviation(kernel) == pytest.approx(np.sqrt(2 / 500), rel=0.05)
    for dense in (block.mlp.expand, block.mlp.project):
        assert 5e-7 < deviation(dense.bias) < 2e-6
    np.testing.assert_allclose(numpy(block.mlp_scale.gamma), 0.3, rtol=1e-6)
    unit, token = layers.ResidualUnit(8, groups=4), keras_vit.ClassToken()
    unit.build((None, 4, 4, 32))
    token.build((None, 50, 100))
    # A unit starts as its shortcut.
    assert not numpy(unit.gn3.gamma).any() and not numpy(token.token).any()
    for layer, names, shape in (
        (layers.AddPositionEmbs(), ["position"], (None, 50, 100)),
        (layers.AddPositionEmbs2D((30, 40)), ["column", "row"], (None, 1201, 200)),
        (layers.RelativePositionEmbedding(), ["offset"], (None, 1201, 2, 100)),
    ):
        layer.build(shape)
        for name in names:
            variable = getattr(layer, f"{name}_embedding")
            assert deviation(variable) == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_parts_frozen_before_they_are_built_stay_so(part):
    block = keras_vit.TransformerBlock(3, 40)
    getattr(block, part).trainable = False
    copy = keras.models.clone_model(keras.Sequential([block])).layers[0]
    for one in (block, copy):
        one.build((None, 7, 24))
        assert not getattr(one, part).trainable_weights and one.trainable_weights
