import contextlib
import functools
import math

import keras
import numpy as np
import pytest
from harness import (
    all_layers,
    check_dtype_policies,
    check_gradients,
    check_layer,
    check_saving,
    check_shapes,
    check_training,
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
BLOCK = {
    "num_heads": 3,
    "mlp_dim": 40,
    "dropout_rate": 0.2,
    "attention_dropout_rate": 0.3,
    "stochastic_depth_rate": 0.4,
    "activation": "gelu",
    "layer_norm_epsilon": 0.1,
    "layer_scale": 0.1,
    "qkv_bias": False,
    "attention_norm_inside": True,
    "mlp_norm_inside": True,
    "remat": True,
}
LAYERS = {
    "PatchEncoder": (
        {
            "patch_size": (4, 2),
            "hidden_size": 24,
            "preparation": "central crop",
            "bits": 12,
        },
        (2, 8, 10, 3),
        (2, 10, 24),
        {"num_weights": 2},
    ),
    "ClassToken": ({}, (2, 6, 24), (2, 7, 24), {"num_weights": 1}),
    "ClassTokenPooling": ({}, (2, 7, 24), (2, 24), {"num_weights": 0}),
    "ClassificationHead": (
        {
            "units": 2,
            "class_names": ["Käfer", "crane"],
            "preparation": "central crop",
            "problem_type": "regression",
            "bits": 12,
        },
        (2, 24),
        (2, 2),
        {"num_weights": 2},
    ),
    "PatchMap": (
        {"grid_size": (2, 3), "num_prefix_tokens": 1},
        (2, 7, 24),
        (2, 2, 3, 24),
        {"num_weights": 0},
    ),
    "PatchPooling": (
        {"num_prefix_tokens": 2},
        (2, 7, 24),
        (2, 24),
        {"num_weights": 0},
    ),
    "RegisterTokens": (
        {"num_registers": 2, "after": 1},
        (2, 7, 24),
        (2, 9, 24),
        {"num_weights": 1},
    ),
    "ClassTokenAndPatchPooling": (
        {"num_prefix_tokens": 2},
        (2, 7, 24),
        (2, 48),
        {"num_weights": 0},
    ),
    "DistillationPooling": (
        {"concatenate": True},
        (2, 7, 24),
        (2, 48),
        {"num_weights": 0},
    ),
    "AttentionPooling": (
        {
            "num_heads": 3,
            "mlp_dim": 40,
            "activation": "quick_gelu",
            "layer_norm_epsilon": 0.1,
            "num_prefix_tokens": 2,
        },
        (2, 7, 24),
        (2, 24),
        {"num_weights": 15, "zero_gradients": ("key/bias",)},
    ),
    "LayerScale": (
        {"initial_value": 0.1},
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 1},
    ),
    "AddPositionEmbs": (
        {
            "grid_size": (2, 3),
            "num_registers": 1,
            "resizing": "bicubic",
            "num_prefix_tokens": 2,
        },
        (2, 8, 24),
        (2, 8, 24),
        {"num_weights": 1},
    ),
    "AddPositionEmbs2D": (
        {"grid_size": (2, 3), "resizing": "bicubic", "num_prefix_tokens": 1},
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 3},
    ),
    "LayerNorm": ({"epsilon": 0.1}, (2, 7, 24), (2, 7, 24), {"num_weights": 2}),
    "SelfAttention": (
        {
            "num_heads": 3,
            "dropout_rate": 0.4,
            "qkv_bias": "query and value",
            "norm_epsilon": 0.1,
            "positions": serialized(layers.RelativePositionBias((2, 3))),
        },
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 10, "random_in_training": True},
    ),
    "MLP": (
        {
            "mlp_dim": 40,
            "dropout_rate": 0.4,
            "activation": "gelu",
            "norm_epsilon": 0.1,
        },
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 6, "random_in_training": True},
    ),
    "StochasticDepth": (
        {"rate": 0.4, "seed": 3},
        (32, 7, 24),
        (32, 7, 24),
        {"num_weights": 0, "random_in_training": True},
    ),
    "TransformerBlock": (
        BLOCK
        | {"positions": serialized(layers.RotaryPositions("dinov3", (2, 3), base=50))},
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 19, "random_in_training": True},
    ),
    "PostNormBlock": (
        BLOCK | {"positions": serialized(layers.RelativePositionEmbedding())},
        (2, 7, 24),
        (2, 7, 24),
        {"num_weights": 20, "random_in_training": True},
    ),
    "StdConv2D": (
        {
            "filters": 5,
            "kernel_size": (3, 2),
            "strides": (2, 1),
            "padding": "symmetric",
            "use_bias": True,
            "kernel_initializer": HE_NORMAL,
            "epsilons": "timm",
        },
        (2, 9, 6, 3),
        (2, 5, 5, 5),
        {"num_weights": 2},
    ),
    "GroupNorm": (
        {"groups": 4, "epsilon": 1e-5, "gamma_initializer": "zeros"},
        (2, 7, 6, 16),
        (2, 7, 6, 16),
        {"num_weights": 2},
    ),
    "ResidualUnit": (
        {
            "filters": 8,
            "strides": (2, 1),
            "groups": 4,
            "padding": "symmetric",
            "epsilons": "timm",
        },
        (2, 7, 6, 16),
        (2, 4, 6, 32),
        {"num_weights": 12},
    ),
}


def test_every_public_layer_is_here():
    # Layers of grids and positions are in test_grids.py, BiT's unit in test_bit.py.
    others = {"PatchGrid", "PatchOffsets", "RotaryPositions", "RelativePositionBias"}
    others |= {"RelativePositionEmbedding", "PreActivationUnit"}
    assert LAYERS.keys() == set(layers.__all__) - others


@pytest.mark.parametrize("name", LAYERS)
def test_common_behaviour(name, tmp_path):
    init_arguments, input_shape, output_shape, options = LAYERS[name]
    check_layer(
        getattr(layers, name),
        init_arguments,
        input_shape,
        output_shape,
        tmp_path=tmp_path,
        **options,
    )


@pytest.mark.parametrize("biased", [False, True])
def test_attention_as_released(biased, tmp_path):
    """In the fused form where a backend has one, with biases of offsets too."""
    init_arguments, input_shape, output_shape, options = LAYERS["SelfAttention"]
    init_arguments = init_arguments | {"qkv_bias": True, "norm_epsilon": None}
    if not biased:
        init_arguments["positions"] = None

    def make(**kwargs):
        return built(layers.SelfAttention(**init_arguments, **kwargs), *input_shape)

    tokens = normal(input_shape)
    layer = make()
    assert len(layer.trainable_variables) == 8 + biased
    check_shapes(layers.SelfAttention(**init_arguments), input_shape, output_shape)
    check_saving(layer, tokens, tmp_path / "layer.keras")
    check_dtype_policies(make, tokens)
    # A bias of the keys shifts all scores of a row alike.
    check_gradients(layer, tokens, ("key/bias",))
    check_training(make, tokens, options["random_in_training"])


def built(layer, *shape):
    layer.build(shape)
    randomize(layer)
    return layer


# References in float64, written from the papers' equations.


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def norm_reference(x, layer):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * numpy(layer.gamma) + numpy(
        layer.beta
    )


def dense_reference(x, layer):
    return x @ numpy(layer.kernel) + numpy(layer.bias)


def attention_reference(x, layer, biases=None):
    """One head at a time: its columns of the projections, then its average.

    `biases` are added to the scores (heads, queries, keys).
    """
    query, key, value = (
        dense_reference(x, part) for part in (layer.query, layer.key, layer.value)
    )
    head_size = x.shape[-1] // layer.num_heads
    weights, mixed = [], []
    for head in range(layer.num_heads):
        own = slice(head * head_size, (head + 1) * head_size)
        scores = np.einsum("bqd,bkd->bqk", query[..., own], key[..., own])
        scores = scores / np.sqrt(head_size)
        weights.append(softmax(scores if biases is None else scores + biases[head]))
        mixed.append(np.einsum("bqk,bkd->bqd", weights[-1], value[..., own]))
    output = dense_reference(np.concatenate(mixed, axis=-1), layer.out)
    return output, np.stack(weights, axis=1)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp_reference(x, layer):
    return dense_reference(gelu_tanh(dense_reference(x, layer.expand)), layer.project)


def block_reference(x, block):
    x = (
        x
        + attention_reference(norm_reference(x, block.attention_norm), block.attention)[
            0
        ]
    )
    return x + mlp_reference(norm_reference(x, block.mlp_norm), block.mlp)


def standardize(kernel):
    mean, deviation = kernel.mean(axis=(0, 1, 2)), kernel.std(axis=(0, 1, 2))
    return (kernel - mean) / (deviation + 1e-5)


def same_convolution(x, kernel, strides):
    """Window by window; what is odd in the padding goes to the bottom and right."""
    batch, *sides, _ = x.shape
    new_sides = [
        -(-side // stride) for side, stride in zip(sides, strides, strict=True)
    ]
    padding = [(0, 0)]
    for side, new_side, stride, size in zip(
        sides, new_sides, strides, kernel.shape[:2], strict=True
    ):
        total = max((new_side - 1) * stride + size - side, 0)
        padding.append((total // 2, total - total // 2))
    x = np.pad(x, [*padding, (0, 0)])
    output = np.zeros((batch, *new_sides, kernel.shape[-1]))
    for row, column in np.ndindex(*new_sides):
        top, left = row * strides[0], column * strides[1]
        window = x[:, top : top + kernel.shape[0], left : left + kernel.shape[1]]
        output[:, row, column] = np.tensordot(window, kernel, axes=3)
    return output


def group_norm_reference(x, layer, groups):
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height * width, groups, channels // groups)
    mean = grouped.mean(axis=(1, 3), keepdims=True)
    variance = grouped.var(axis=(1, 3), keepdims=True)
    normed = ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape)
    return normed * numpy(layer.gamma) + numpy(layer.beta)


def unit_reference(x, unit):
    def branch(x, part, strides=(1, 1)):
        conv, norm = getattr(unit, f"conv{part}"), getattr(unit, f"gn{part}")
        x = same_convolution(x, standardize(numpy(conv.kernel)), strides)
        return group_norm_reference(x, norm, unit.groups)

    shortcut = branch(x, "_proj", unit.strides) if unit.projects else x
    x = np.maximum(branch(x, "1"), 0)
    x = np.maximum(branch(x, "2", unit.strides), 0)
    return np.maximum(branch(x, "3") + shortcut, 0)


def test_patches_are_read_row_by_row():
    layer = built(keras_vit.PatchEncoder((4, 2), 24), None, 8, 10, 3)
    images, kernel = normal((2, 8, 10, 3)), numpy(layer.kernel)
    expected = np.zeros((2, 10, 24))
    for row in range(2):
        for column in range(5):
            patch = images[:, 4 * row : 4 * row + 4, 2 * column : 2 * column + 2]
            expected[:, 5 * row + column] = np.einsum("bhwc,hwcd->bd", patch, kernel)
    expected += numpy(layer.bias)
    np.testing.assert_allclose(numpy(layer(images)), expected, atol=1e-5)


def test_dropout_is_off_unless_asked_for():
    assert layers.MLP(8).dropout_rate == 0
    assert layers.TransformerBlock(2, 8).dropout_rate == 0


def test_class_token_comes_first():
    layer = built(keras_vit.ClassToken(), None, 6, 24)
    tokens = normal((2, 6, 24))
    found = numpy(layer(tokens))
    np.testing.assert_array_equal(found[:, 0], np.tile(numpy(layer.token)[0], (2, 1)))
    np.testing.assert_array_equal(found[:, 1:], tokens)
    pooled = keras_vit.layers.ClassTokenPooling()(found)
    np.testing.assert_array_equal(numpy(pooled), found[:, 0])


@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_patches_are_averaged_without_what_comes_before(prefix):
    tokens = normal((2, 7, 24))
    found = keras_vit.layers.PatchPooling(num_prefix_tokens=prefix)(tokens)
    expected = tokens[:, prefix:].astype("float64").mean(axis=1)
    np.testing.assert_allclose(numpy(found), expected, atol=1e-6)


def test_positions_are_added():
    layer = built(keras_vit.AddPositionEmbs((2, 3)), None, 7, 24)
    tokens = normal((2, 7, 24))
    expected = tokens + numpy(layer.position_embedding)
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-6)


def test_attention():
    layer = built(keras_vit.layers.SelfAttention(3), None, 7, 24)
    tokens = 2 * normal((2, 7, 24))
    output, weights = layer(tokens, return_attention_weights=True)
    expected_output, expected_weights = attention_reference(tokens, layer)
    assert expected_weights.max() > 0.9  # far from the uniform 1/7
    np.testing.assert_allclose(numpy(output), expected_output, atol=1e-5)
    np.testing.assert_allclose(numpy(weights), expected_weights, atol=1e-6)
    np.testing.assert_allclose(numpy(weights).sum(axis=-1), 1.0, atol=1e-6)
    # Without them the backend may have a fused form.
    np.testing.assert_allclose(numpy(layer(tokens)), expected_output, atol=1e-5)


@pytest.mark.parametrize("name", ["SelfAttention", "TransformerBlock"])
@pytest.mark.parametrize("training", [False, True])
def test_class_token_only(name, training):
    arguments = {"num_heads": 3} | ({"mlp_dim": 40} if "Block" in name else {})
    layer = built(getattr(layers, name)(**arguments), None, 7, 24)
    tokens = 2 * normal((2, 7, 24))
    output, weights = layer(tokens, return_attention_weights=True)
    for given in (tokens, keras.Input((7, 24))):
        first = layer(given, training=training, class_token_only=True)
        pair = layer(given, return_attention_weights=True, class_token_only=True)
        assert first.shape == pair[0].shape == (given.shape[0], 1, 24)
        assert pair[1].shape == (given.shape[0], 3, 1, 7)
    first = layer(tokens, training=training, class_token_only=True)
    np.testing.assert_allclose(numpy(first), numpy(output)[:, :1], atol=2e-6)
    seen = []
    watcher = Watcher(lambda weights: seen.append(weights.shape) or weights)
    for context in (contextlib.nullcontext(), running(watcher=watcher)):
        with context:
            first, row = layer(
                tokens, return_attention_weights=True, class_token_only=True
            )
        np.testing.assert_allclose(numpy(first), numpy(output)[:, :1], atol=2e-6)
        np.testing.assert_allclose(numpy(row), numpy(weights)[:, :, :1], atol=1e-6)
    # A block computes all tokens for whoever watches.
    assert seen == [(2, 3, 7 if name == "TransformerBlock" else 1, 7)]


@pytest.mark.parametrize("class_token_only", [False, True])
def test_remat_has_the_same_gradients(class_token_only):
    block = built(keras_vit.TransformerBlock(3, 40), None, 7, 24)
    tokens = normal((2, 7, 24))

    class Remat(keras.layers.Layer):
        """The block as the harness calls layers, with the arguments under test."""

        def __init__(self, remat):
            super().__init__()
            self.block, self.remat = block, remat
            self.built = True

        def call(self, tokens, training):
            self.block.remat = self.remat
            return self.block(
                tokens, training=training, class_token_only=class_token_only
            )

        def compute_output_shape(self, shape):
            return (shape[0], 1 if class_token_only else shape[1], shape[2])

    plain, again = (
        gradients(Remat(remat), tokens, training=True) for remat in (False, True)
    )
    assert len(plain) == len(again) == 16
    for one, other in zip(plain, again, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


def test_layer_norm():
    layer = built(keras_vit.layers.LayerNorm(), None, 7, 24)
    for offset, scale in ((0.0, 1.0), (100.0, 3.0), (0.0, 1e-3)):
        tokens = (offset + scale * normal((2, 7, 24))).astype("float32")
        expected = norm_reference(tokens.astype("float64"), layer)
        np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=2e-5)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16"])
@pytest.mark.parametrize("training", [False, True])
def test_gradients_of_layer_norm(training, policy):
    class Shifted(keras.layers.Layer):
        def build(self, shape):
            self.shift = self.add_weight(shape[1:], "zeros", name="shift")
            self.norm = keras_vit.layers.LayerNorm(dtype=self.dtype_policy)
            self.norm.build(shape)

        def call(self, tokens, training=None):
            shifted = ops.add(ops.cast(tokens, self.compute_dtype), self.shift)
            return ops.cast(self.norm(shifted), "float32")

        def compute_output_shape(self, shape):
            return shape

    layer = built(Shifted(dtype=policy), 1, 3, 24)
    layer.shift.assign(np.zeros((3, 24)))
    # Exact in bfloat16.
    tokens = (np.round(16 * normal((1, 3, 24))) / 16 + 2).astype("float32")
    found = gradients(layer, tokens, training=training)

    upstream = cotangent(layer, tokens).astype("float64")
    h = 1e-5
    of_tokens = np.empty((3, 24))
    for place in np.ndindex(3, 24):
        step = np.zeros((1, 3, 24))
        step[0][place] = h
        ahead, behind = (norm_reference(tokens + s, layer.norm) for s in (step, -step))
        of_tokens[place] = (upstream * (ahead - behind)).sum() / (2 * h)
    normalised = norm_reference(tokens.astype("float64"), layer.norm)
    normalised = (normalised - numpy(layer.norm.beta)) / numpy(layer.norm.gamma)
    expected = {
        "shift": of_tokens,
        "gamma": (upstream * normalised).sum(axis=(0, 1)),
        "beta": upstream.sum(axis=(0, 1)),
    }
    tolerance = {"float32": 2e-6}.get(policy, 2e-2)
    names = [variable.name for variable in layer.trainable_variables]
    assert sorted(names) == sorted(expected)
    for name, one in zip(names, found, strict=True):
        other = expected[name]
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("training", [False, True])
def test_gelu_and_its_gradient(training):
    x = np.linspace(-8, 8, 2001)[None].astype("float32")

    class Gelu(keras.layers.Layer):
        def build(self, shape):
            self.shift = self.add_weight(shape=shape[1:], initializer="zeros")

        def call(self, x):
            return gelu(ops.add(x, self.shift), training)

        def compute_output_shape(self, shape):
            return shape

    layer = Gelu()
    layer.build(x.shape)
    np.testing.assert_allclose(
        numpy(layer(x)), gelu_tanh(x.astype("float64")), atol=1e-6
    )
    (found,) = gradients(layer, x)
    h = 1e-5
    slope = (
        gelu_tanh(x.astype("float64") + h) - gelu_tanh(x.astype("float64") - h)
    ) / (2 * h)
    np.testing.assert_allclose(
        found, (slope * cotangent(layer, x))[0], atol=5e-6, rtol=1e-5
    )


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


@pytest.mark.parametrize("name", ["SelfAttention", "TransformerBlock"])
def test_attention_weights_of_symbolic_tokens(name):
    init_arguments, *_ = LAYERS[name]
    # The number of tokens may be unknown where positions have no part in it.
    layer = getattr(layers, name)(
        **init_arguments | {"positions": None}, dtype="mixed_bfloat16"
    )
    tokens = keras.Input((None, 24))
    output, weights = layer(tokens, return_attention_weights=True)
    assert (output.shape, output.dtype) == ((None, None, 24), "bfloat16")
    assert (weights.shape, weights.dtype) == ((None, 3, None, None), "float32")
    model = keras.Model(tokens, [output, weights])
    for length in (5, 7):
        output, weights = model(normal((2, length, 24)))
        assert output.shape == (2, length, 24)
        assert weights.shape == (2, 3, length, length)
        assert keras.backend.standardize_dtype(weights.dtype) == "float32"


def test_mlp_has_the_tanh_gelu():
    layer = built(keras_vit.layers.MLP(40), None, 7, 24)
    tokens = 2 * normal((2, 7, 24))
    # Near enough to tell the two forms apart: they differ by up to 5e-4.
    np.testing.assert_allclose(
        numpy(layer(tokens)), mlp_reference(tokens, layer), atol=1e-5
    )


def test_mlp_with_the_exact_gelu():
    layer = built(keras_vit.layers.MLP(40, activation="gelu"), None, 7, 24)
    tokens = 2 * normal((2, 7, 24))
    hidden = tokens.astype("float64") @ numpy(layer.expand.kernel)
    hidden += numpy(layer.expand.bias)
    hidden *= 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    expected = hidden @ numpy(layer.project.kernel) + numpy(layer.project.bias)
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-5)
    assert np.abs(expected - mlp_reference(tokens, layer)).max() > 1e-4
    with pytest.raises(ValueError, match="quick_gelu, swiglu, got 'relu'"):
        keras_vit.layers.MLP(40, activation="relu")


@pytest.mark.parametrize("activation", ["quick_gelu", "swiglu"])
def test_mlp_of_other_families(activation):
    layer = built(keras_vit.layers.MLP(40, activation=activation), None, 7, 24)
    tokens = normal((2, 7, 24))
    hidden = tokens @ numpy(layer.expand.kernel) + numpy(layer.expand.bias)
    if activation == "swiglu":
        gate, value = hidden[..., :40], hidden[..., 40:]
        hidden = gate / (1 + np.exp(-gate)) * value
    else:
        hidden = hidden / (1 + np.exp(-1.702 * hidden))
    expected = hidden @ numpy(layer.project.kernel) + numpy(layer.project.bias)
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-5)


def test_a_block_with_layer_scale_and_without_biases():
    options = {"layer_scale": 0.3, "qkv_bias": False}
    block = built(keras_vit.TransformerBlock(3, 40, **options), None, 7, 24)
    assert block.attention.query.bias is None
    plain = built(keras_vit.TransformerBlock(3, 40), None, 7, 24)
    tokens = normal((2, 7, 24))
    for scaled, other in ((block.attention, plain.attention), (block.mlp, plain.mlp)):
        for part in filter(functools.partial(getattr, other), other.parts):
            getattr(other, part).kernel.assign(getattr(scaled, part).kernel)
            bias = getattr(scaled, part).bias
            bias = np.zeros(24) if bias is None else bias
            getattr(other, part).bias.assign(bias)
    branch = numpy(plain.attention(block.attention_norm(tokens)))
    state = tokens + branch * numpy(block.attention_scale.gamma)
    branch = numpy(plain.mlp(block.mlp_norm(state.astype("float32"))))
    expected = state + branch * numpy(block.mlp_scale.gamma)
    np.testing.assert_allclose(numpy(block(tokens)), expected, atol=1e-5)
    first = keras_vit.layers.LayerScale(0.3)(tokens)
    np.testing.assert_allclose(numpy(first), 0.3 * tokens, rtol=1e-6)


@pytest.mark.parametrize("kind", ["eva", "perception", "dinov3"])
def test_rotary_positions(kind):
    """What attends to what depends on the offset of two patches alone."""
    positions = layers.RotaryPositions(kind, (3, 4), num_registers=2)
    layer = built(layers.SelfAttention(2, positions=positions), None, 15, 24)
    tokens = np.tile(normal((1, 1, 24)), (1, 15, 1))
    _, weights = layer(tokens, return_attention_weights=True)
    scores = np.log(numpy(weights))[0, :, 3:, 3:].reshape(2, 3, 4, 3, 4)
    for rows, columns in ((1, 0), (0, 1), (2, 3)):
        first = scores[:, 0, 0] - scores[:, 0, 0, :1, :1]
        # Of another query, keys as far away as those of the first query.
        other = (
            scores[:, rows, columns]
            - scores[:, rows, columns, rows, columns][:, None, None]
        )
        height, width = 3 - rows, 4 - columns
        np.testing.assert_allclose(
            other[:, rows:, columns:], first[:, :height, :width], atol=1e-4
        )
    assert np.ptp(scores[:, 0, 0]) > 1e-3
    with pytest.raises(ValueError, match="needs a grid_size; or pass the block or"):
        layers.SelfAttention(2, positions=layers.RotaryPositions(kind))(tokens)
    with pytest.raises(ValueError, match="those of another layer, rotary_positions"):
        layers.SelfAttention(2, positions=positions)(tokens)


@pytest.mark.parametrize("others", [0, 1, 3])
def test_relative_position_bias(others):
    """Each pair of patches has the bias of its offset, the others have three."""
    grid, heads, registers = (3, 4), 2, max(others - 1, 0)
    layer = layers.RelativePositionBias(grid, registers)
    layer = built(layer, None, 12 + others, heads, 8)
    table = numpy(layer.table)
    assert len(table) == 5 * 7 + (3 if others else 0)
    query = normal((2, heads, 12 + others, 8))
    found = numpy(layer.scores(query, None))
    of_patches = table[:35].reshape(5, 7, heads)
    for of_query, of_key in np.ndindex(12 + others, 12 + others):
        if min(of_query, of_key) >= others:
            (row, column), (other_row, other_column) = (
                np.unravel_index(token - others, grid) for token in (of_query, of_key)
            )
            # The middle of the table is the offset 0.
            expected = of_patches[row - other_row + 2, column - other_column + 3]
        elif max(of_query, of_key) < others:
            expected = table[37]
        else:
            expected = table[35 if of_query < others else 36]
        np.testing.assert_array_equal(found[:, of_query, of_key], expected)
    first = numpy(layer.scores(query[:, :, :1], None))
    np.testing.assert_array_equal(first, found[:, :1])
    attention = layers.SelfAttention(
        heads, positions=layers.RelativePositionBias(grid, registers)
    )
    attention = built(attention, None, 12 + others, 24)
    with pytest.raises(ValueError, match="has positions for"):
        attention(normal((2, 11 + others, 24)))


def test_attention_with_relative_position_bias():
    positions = layers.RelativePositionBias((2, 3))
    layer = built(layers.SelfAttention(3, positions=positions), None, 7, 24)
    tokens = normal((2, 7, 24))
    biases = numpy(layer.positions.biases())
    expected, weights = attention_reference(tokens, layer, biases)
    # Backends may have a fused form, which shows no weights.
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-5)
    found, found_weights = layer(tokens, return_attention_weights=True)
    np.testing.assert_allclose(numpy(found), expected, atol=1e-5)
    np.testing.assert_allclose(numpy(found_weights), weights, atol=1e-6)
    first = layer(tokens, class_token_only=True)
    np.testing.assert_allclose(numpy(first), expected[:, :1], atol=1e-5)
    plain, _ = attention_reference(tokens, layer)
    assert np.abs(plain - expected).max() > 1e-2


def test_relative_position_bias_of_any_size_needs_offsets():
    positions = layers.RelativePositionBias((2, 3))
    with pytest.raises(ValueError, match="known number of tokens"):
        built(layers.SelfAttention(3, positions=positions), None, None, 24)
    positions = layers.RelativePositionBias((2, 3), num_prefix_tokens=1)
    layer = built(layers.SelfAttention(3, positions=positions), None, None, 24)
    assert positions.table.shape == (3 * 5 + 3, 3)
    with pytest.raises(ValueError, match="grid_positions, the output of PatchOffsets"):
        layer(normal((2, 7, 24)))


def test_registers_are_put_behind_the_class_token():
    tokens = normal((2, 7, 24))
    for after in (0, 1):
        layer = built(keras_vit.layers.RegisterTokens(3, after), None, 7, 24)
        found, registers = numpy(layer(tokens)), numpy(layer.registers)[0]
        np.testing.assert_array_equal(found[:, :after], tokens[:, :after])
        np.testing.assert_array_equal(found[:, after : after + 3], [registers] * 2)
        np.testing.assert_array_equal(found[:, after + 3 :], tokens[:, after:])
        assert layer.num_prefix_tokens == 3


def test_pooling_of_two_tokens():
    tokens = normal((2, 7, 24))
    found = numpy(keras_vit.layers.ClassTokenAndPatchPooling(3)(tokens))
    np.testing.assert_array_equal(found[:, :24], tokens[:, 0])
    mean = tokens[:, 3:].mean(axis=1)
    np.testing.assert_allclose(found[:, 24:], mean, atol=1e-6)
    both = numpy(keras_vit.layers.DistillationPooling(concatenate=True)(tokens))
    np.testing.assert_array_equal(both, tokens[:, :2].reshape(2, 48))
    mean = tokens[:, :2].mean(axis=1)
    found = numpy(keras_vit.layers.DistillationPooling()(tokens))
    np.testing.assert_allclose(found, mean, atol=1e-6)


def test_attention_pooling():
    layer = built(
        keras_vit.layers.AttentionPooling(3, 40, num_prefix_tokens=2), None, 7, 24
    )
    tokens = normal((2, 7, 24))

    def projected(part, values):
        part = getattr(layer, part)
        return values @ numpy(part.kernel) + numpy(part.bias)

    seen = tokens[:, 2:].astype("float64")
    query = projected("query", numpy(layer.probe)[0, 0]).reshape(3, 8)
    key, value = (projected(part, seen) for part in ("key", "value"))
    scores = np.einsum("hd,bthd->bht", query, key.reshape(2, 5, 3, 8)) / np.sqrt(8)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed = np.einsum("bht,bthd->bhd", weights, value.reshape(2, 5, 3, 8))
    pooled = projected("out", mixed.reshape(2, 24)).astype("float32")
    expected = pooled + numpy(layer.mlp(layer.norm(pooled[:, None])))[:, 0]
    np.testing.assert_allclose(numpy(layer(tokens)), expected, atol=1e-5)
    with pytest.raises(ValueError, match="num_heads=5 does not divide"):
        keras_vit.layers.AttentionPooling(5, 40)(tokens)


def test_transformer_block():
    block = built(keras_vit.TransformerBlock(3, 40), None, 7, 24)
    tokens = normal((2, 7, 24))
    output, weights = block(tokens, return_attention_weights=True)
    np.testing.assert_allclose(numpy(output), block_reference(tokens, block), atol=2e-5)
    _, expected = attention_reference(
        norm_reference(tokens, block.attention_norm), block.attention
    )
    np.testing.assert_allclose(numpy(weights), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("sides", "kernel_size", "strides"),
    [
        ((7, 7), (3, 3), (1, 1)),
        ((8, 7), (3, 3), (2, 2)),  # padding below only, and on both sides
        ((9, 12), (7, 7), (2, 2)),
        ((5, 6), (1, 1), (2, 2)),
        ((6, 9), (2, 3), (1, 2)),
    ],
)
def test_std_conv(sides, kernel_size, strides):
    layer = keras_vit.layers.StdConv2D(5, kernel_size, strides=strides)
    built(layer, None, *sides, 3)
    layer.kernel.assign(0.1 * numpy(layer.kernel) + 0.02)
    images = normal((2, *sides, 3))
    expected = same_convolution(images, standardize(numpy(layer.kernel)), strides)
    assert rms(expected) > 1
    np.testing.assert_allclose(numpy(layer(images)), expected, atol=5e-5)


def test_std_conv_adds_its_epsilon_to_the_deviation():
    layer = keras_vit.layers.StdConv2D(4, 3)
    built(layer, None, 6, 6, 3)
    # Deviations around 1e-5: an epsilon on the variance, or none, is far off.
    layer.kernel.assign(1e-5 * normal(layer.kernel.shape))
    images = normal((1, 6, 6, 3))
    expected = same_convolution(images, standardize(numpy(layer.kernel)), (1, 1))
    np.testing.assert_allclose(numpy(layer(images)), expected, rtol=1e-3, atol=1e-4)


def test_std_conv_with_the_epsilon_of_timm():
    layer = keras_vit.layers.StdConv2D(4, 3, epsilons="timm")
    built(layer, None, 6, 6, 3)
    layer.kernel.assign(1e-4 * normal(layer.kernel.shape))
    images = normal((1, 6, 6, 3))
    kernel = numpy(layer.kernel).astype("float64")
    axes = (0, 1, 2)
    kernel = (kernel - kernel.mean(axes)) / np.sqrt(kernel.var(axes) + 1e-8)
    expected = same_convolution(images, kernel, (1, 1))
    np.testing.assert_allclose(numpy(layer(images)), expected, rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match='"released" or "timm", got \'torch\''):
        keras_vit.layers.StdConv2D(4, 3, epsilons="torch")


def test_residual_unit_hands_its_arguments_on():
    unit = keras_vit.layers.ResidualUnit(8, 2, 4, padding="symmetric", epsilons="timm")
    unit.build((None, 8, 7, 16))
    for part in ("1", "2", "3", "_proj"):
        convolution = getattr(unit, f"conv{part}")
        assert (convolution.symmetric, convolution.epsilons) == (True, "timm")
        assert getattr(unit, f"gn{part}").epsilon == 1e-5


@pytest.mark.parametrize("side", [8, 9])
def test_std_conv_with_symmetric_padding(side):
    layer = keras_vit.layers.StdConv2D(4, 3, strides=2, padding="symmetric")
    built(layer, None, side, side, 3)
    valid = keras_vit.layers.StdConv2D(4, 3, strides=2, padding="valid")
    valid.build((None, side + 2, side + 2, 3))
    valid.kernel.assign(layer.kernel)
    images = normal((1, side, side, 3))
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    np.testing.assert_allclose(numpy(layer(images)), numpy(valid(padded)), atol=1e-6)


@pytest.mark.parametrize(
    ("size", "dilation", "margins"),
    [(3, 2, (2, 2)), (3, (1, 3), (1, 3)), ((3, 5), 2, (2, 4))],
)
def test_symmetric_padding_counts_dilation(size, dilation, margins):
    options = {"dilation_rate": dilation}
    layer = keras_vit.layers.StdConv2D(4, size, padding="symmetric", **options)
    assert layer.compute_output_shape((None, 9, 11, 3)) == (None, 9, 11, 4)
    built(layer, None, 9, 11, 3)
    down, across = margins
    valid = keras_vit.layers.StdConv2D(4, size, padding="valid", **options)
    valid.build((None, 9 + 2 * down, 11 + 2 * across, 3))
    valid.kernel.assign(layer.kernel)
    images = normal((1, 9, 11, 3))
    padded = np.pad(images, ((0, 0), (down, down), (across, across), (0, 0)))
    found = numpy(layer(images))
    assert found.shape == (1, 9, 11, 4)
    np.testing.assert_allclose(found, numpy(valid(padded)), atol=1e-6)


@pytest.mark.parametrize(
    ("channels", "strides", "projects"),
    [(16, (2, 2), True), (16, (1, 1), True), (32, (1, 1), False), (32, (2, 1), True)],
)
def test_residual_unit(channels, strides, projects):
    unit = keras_vit.layers.ResidualUnit(8, strides, groups=4)
    unit.build((None, 8, 7, channels))
    assert unit.projects == projects
    np.testing.assert_array_equal(numpy(unit.gn3.gamma), 0)
    randomize(unit)
    features = normal((2, 8, 7, channels))
    np.testing.assert_allclose(
        numpy(unit(features)), unit_reference(features, unit), atol=5e-5
    )


def test_convolutions_of_images_of_any_size():
    images = keras.Input((None, None, 3))
    features = keras_vit.layers.StdConv2D(16, 7, strides=2)(images)
    features = keras_vit.layers.ResidualUnit(8, 2, groups=4)(features)
    assert features.shape == (None, None, None, 32)
    tokens = keras_vit.PatchEncoder(2, 24)(features)
    assert tokens.shape == (None, None, 24)
    model = keras.Model(images, tokens)
    assert model(normal((2, 16, 24, 3))).shape == (2, 2 * 3, 24)
    assert model(normal((1, 15, 31, 3))).shape == (1, 2 * 4, 24)


def test_stochastic_depth_drops_examples_and_keeps_the_mean():
    rate, count = 0.3, 4000
    layer = keras_vit.layers.StochasticDepth(rate, seed=1)
    branch = 1 + np.abs(normal((count, 2, 3)))
    found = numpy(layer(branch, training=True)).reshape(count, -1)
    dropped = (found == 0).all(axis=1)
    # Six standard deviations of a binomial.
    margin = 6 * np.sqrt(rate * (1 - rate) / count)
    assert abs(dropped.mean() - rate) < margin
    kept = branch.reshape(count, -1)[~dropped]
    np.testing.assert_allclose(found[~dropped], kept / (1 - rate), rtol=1e-5)
    again = keras_vit.layers.StochasticDepth(rate, seed=1)(branch, training=True)
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
    tokens = normal((2, 7, 24))
    part, projection = silent.split(".")
    for variable in getattr(getattr(block, part), projection).weights:
        variable.assign(np.zeros(variable.shape))
    branch = numpy(block(tokens, training=True)) - tokens
    other = numpy(block(tokens)) - tokens
    # Of the branch that is left half is dropped and the rest is doubled (the
    # perceptron's hidden layer has its own dropout, and so is not just doubled).
    dropped = np.abs(branch) < 1e-6
    assert 0.35 < dropped.mean() < 0.65
    if part == "mlp":
        np.testing.assert_allclose(branch[~dropped], 2 * other[~dropped], atol=1e-5)
    else:
        assert np.abs(branch - 2 * other)[~dropped].max() > 0.1


def test_norms_and_softmax_are_in_float32_under_float16():
    # 300 weights near 1/300: rounded to float16 each is off by up to 1e-6, and a row
    # by far more than float32 would make it.
    layer = keras_vit.layers.SelfAttention(3, dtype="float16")
    built(layer, None, 300, 24)
    _, weights = layer(0.1 * normal((1, 300, 24)), return_attention_weights=True)
    weights = numpy(weights)
    assert np.abs(weights - weights.astype("float16")).max() > 1e-7
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=2e-6)

    # Squares of 3000 are beyond the largest float16, 65504.
    block = keras_vit.TransformerBlock(3, 40, dtype="mixed_float16")
    tokens = (3000 * normal((2, 7, 24))).astype("float16")
    norm = built(block, None, 7, 24).attention_norm
    expected = norm_reference(tokens.astype("float64"), norm)
    np.testing.assert_allclose(numpy(norm(tokens)), expected, atol=5e-3)

    unit = keras_vit.layers.ResidualUnit(8, groups=4, dtype="mixed_float16")
    norm = built(unit, None, 4, 5, 16).gn1
    features = (3000 * normal((2, 4, 5, 8))).astype("float16")
    expected = group_norm_reference(features.astype("float64"), norm, 4)
    np.testing.assert_allclose(numpy(norm(features)), expected, atol=5e-3)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_kernels_are_standardized_before_they_are_rounded(policy):
    layer = keras_vit.layers.StdConv2D(4, 3, dtype=policy)
    built(layer, None, 6, 6, 3)
    # Half precision cannot tell these weights apart.
    layer.kernel.assign(10 + 1e-3 * normal(layer.kernel.shape))
    images = normal((1, 6, 6, 3))
    expected = same_convolution(images, standardize(numpy(layer.kernel)), (1, 1))
    error = numpy(layer(images)) - expected
    assert rms(error) < 0.02 * rms(expected)


def test_initial_weights_are_those_of_the_released_code():
    def deviation(variable):
        return rms(numpy(variable))

    block = keras_vit.TransformerBlock(4, 400)
    block.build((None, 7, 100))
    glorot = np.sqrt(2 / 200)
    for part in ("query", "key", "value", "out"):
        dense = getattr(block.attention, part)
        assert abs(deviation(dense.kernel) / glorot - 1) < 0.05
        assert deviation(dense.bias) == 0
    assert abs(deviation(block.mlp.expand.kernel) / np.sqrt(2 / 500) - 1) < 0.05
    assert 5e-7 < deviation(block.mlp.expand.bias) < 2e-6
    assert 5e-7 < deviation(block.mlp.project.bias) < 2e-6
    positions = keras_vit.AddPositionEmbs()
    positions.build((None, 50, 100))
    assert abs(deviation(positions.position_embedding) / 0.02 - 1) < 0.05
    token = keras_vit.ClassToken()
    token.build((None, 50, 100))
    assert deviation(token.token) == 0


def test_layers_can_be_frozen():
    block = built(keras_vit.TransformerBlock(3, 40), None, 7, 24)
    assert len(all_layers(block)) == 15
    block.trainable = False
    assert block.trainable_variables == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: keras_vit.PatchEncoder(0, 8), "patch_size must be a positive int .*0"),
        (lambda: keras_vit.PatchEncoder((4, 4, 4), 8), "patch_size .*(4, 4, 4)"),
        (
            lambda: keras_vit.PatchEncoder(16, 8)(ops.ones((1, 32, 40, 3))),
            "multiples of the patch size 16x16, got 32x40: resize",
        ),
        (
            lambda: keras_vit.PatchEncoder(16, 8)(keras.Input((40, 32, 3))),
            "multiples of the patch size 16x16, got 40x32: resize",
        ),
        (
            lambda: keras_vit.layers.SelfAttention(5)(ops.ones((1, 7, 24))),
            "num_heads=5 does not divide the size of a token, 24",
        ),
        (
            lambda: keras_vit.TransformerBlock(5, 40)(keras.Input((7, 24))),
            "num_heads=5 does not divide the size of a token, 24",
        ),
        (
            lambda: keras_vit.layers.StochasticDepth(1.0),
            r"rate must be in \[0, 1\), got 1.0",
        ),
        (
            lambda: keras_vit.layers.StochasticDepth(-0.1),
            r"rate must be in \[0, 1\), got -0.1",
        ),
        (
            lambda: keras_vit.AddPositionEmbs()(keras.Input((None, 24))),
            "known number of tokens.*fixed height and width",
        ),
        (
            lambda: keras_vit.AddPositionEmbs((2, 3))(ops.ones((1, 8, 24))),
            "grid of 2x3 patches and at most one class token, got 8",
        ),
        (
            lambda: layers.AddPositionEmbs2D((2, 3))(keras.Input((None, 24))),
            "known number of tokens.*fixed height and width",
        ),
        (
            lambda: layers.AddPositionEmbs2D((2, 3))(ops.ones((1, 8, 24))),
            "grid of 2x3 patches and at most one class token, got 8",
        ),
        (
            lambda: layers.AddPositionEmbs2D((2, 3))(ops.ones((1, 7, 9))),
            "tokens of size 9: pass an even hidden_size",
        ),
        (
            lambda: layers.SelfAttention(
                3, positions=layers.RelativePositionEmbedding()
            )(keras.Input((None, 24))),
            "position_embedding.* needs a known number of tokens.*fixed height",
        ),
        (
            lambda: layers.TransformerBlock(
                3, 40, positions=layers.RotaryPositions("eva", 2)
            )(keras.Input((None, 24))),
            "rotary_positions.* needs a known number of tokens",
        ),
        (
            lambda: layers.SelfAttention(
                3, positions=layers.RotaryPositions("eva", (2, 3))
            )(ops.ones((1, 8, 24))),
            "grid of 2x3 patches and at most one class token, got 8",
        ),
        (
            lambda: keras_vit.TransformerBlock(3, 40, dropout_rate=1.0),
            r"rate must be in \[0, 1\), got 1.0",
        ),
        (
            lambda: keras_vit.layers.ResidualUnit(8, strides=0),
            "strides must be a positive",
        ),
        (lambda: keras_vit.layers.PatchPooling(-1), "must not be negative, got -1"),
        (
            lambda: keras_vit.layers.PatchPooling()(ops.ones((1, 1, 24))),
            "what comes after 1 tokens, got 1: pass tokens of patches",
        ),
    ],
)
def test_errors_say_what_to_do(make, message):
    with pytest.raises(ValueError, match=message):
        make()


FLOATS = [
    (lambda value: layers.LayerNorm(value), "epsilon"),
    (lambda value: layers.GroupNorm(epsilon=value), "epsilon"),
    (lambda value: layers.LayerScale(value), "initial_value"),
    (lambda value: layers.MLP(8, norm_epsilon=value), "norm_epsilon"),
    (lambda value: layers.SelfAttention(2, norm_epsilon=value), "norm_epsilon"),
    (lambda value: layers.AttentionPooling(2, 8, layer_norm_epsilon=value), "epsilon"),
    (lambda value: layers.RotaryPositions("eva", 2, base=value), "base"),
    (lambda value: layers.TransformerBlock(2, 8, layer_norm_epsilon=value), "epsilon"),
    (lambda value: layers.TransformerBlock(2, 8, layer_scale=value), "initial_value"),
]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, "1e-6", True])
@pytest.mark.parametrize(("make", "name"), FLOATS)
def test_an_argument_that_float32_cannot_hold_is_refused_by_name(make, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a .*number of at most 3.4e"):
        make(value)


@pytest.mark.parametrize(
    "layer",
    [
        layers.AddPositionEmbs(grid_size=(2, 3)),
        layers.AddPositionEmbs2D(grid_size=(2, 3)),
        layers.SelfAttention(2, positions=layers.RelativePositionEmbedding()),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_positions_name_another_number_of_tokens(layer):
    layer(ops.zeros((1, 7, 8)))
    with pytest.raises(ValueError, match="positions (for|of) 7 tokens, got 10"):
        layer(ops.zeros((1, 10, 8)))
