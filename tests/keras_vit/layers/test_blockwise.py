"""Attention in blocks of queries, and gradients of our own, on TensorFlow."""

import gc
import itertools
import weakref

import keras
import numpy as np
import pytest
from harness import normal

import keras_vit
from keras_vit import layers
from keras_vit.layers import attention, blockwise
from keras_vit.layers.forward_pass import running
from keras_vit.layers.own_gradient import own_gradient

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="others have a fused attention"
)


@pytest.fixture
def block_size(monkeypatch):
    """Blocks of up to four queries, from three tokens on."""
    monkeypatch.setattr(blockwise, "BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MIN_TOKENS", 3)


def reference(query, key, value, upstream):
    """Returns the output and the gradients of the three, in float64."""
    query, key, value, upstream = (
        np.asarray(heads, "float64") for heads in (query, key, value, upstream)
    )
    weights = np.exp(query @ key.swapaxes(2, 3))
    weights /= weights.sum(axis=-1, keepdims=True)
    slopes = upstream @ value.swapaxes(2, 3)
    slopes = weights * (slopes - (weights * slopes).sum(axis=-1, keepdims=True))
    return (
        weights @ value,
        slopes @ key,
        slopes.swapaxes(2, 3) @ query,
        weights.swapaxes(2, 3) @ upstream,
    )


def output_and_gradients(query, key, value, upstream):
    with tf.GradientTape() as tape:
        tape.watch((query, key, value))
        output = blockwise.blockwise_attention(query, key, value)
    return output, *tape.gradient(output, (query, key, value), upstream)


@pytest.mark.parametrize("tokens", [4, 7])
@pytest.mark.parametrize(
    ("how", "dtype"), [("eager", "bfloat16"), ("graph", "float32"), ("XLA", "float32")]
)
def test_blocks_give_the_output_and_gradients_of_numpy(tokens, how, dtype, block_size):
    heads = [tf.cast(normal((2, 3, tokens, 8), seed), dtype) for seed in range(4)]
    function = output_and_gradients
    if how == "graph":
        spec = tf.TensorSpec((None, 3, tokens, 8), dtype)
        function = tf.function(function, input_signature=[spec] * 4)
    if how == "XLA":
        function = tf.function(function, jit_compile=True)
    for found, right in zip(function(*heads), reference(*heads), strict=True):
        assert found.dtype == dtype
        tolerance = {"float32": 2e-6, "bfloat16": 2e-2}[dtype] * np.abs(right).max()
        np.testing.assert_allclose(
            np.asarray(found, "float64"), right, rtol=0, atol=tolerance
        )


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_layer_computes_in_blocks_what_it_does_at_once(policy, block_size):
    # The gradient of a key's bias is zero, and found as what roundings leave.
    positions = layers.RotaryPositions("dinov3", (2, 3))
    layer = layers.SelfAttention(
        3, qkv_bias="query and value", positions=positions, dtype=policy
    )
    tokens = normal((2, 7, 24))
    layer.build(tokens.shape)

    def output_and_gradients():
        with tf.GradientTape() as tape:
            output = tf.cast(layer(tokens), "float32")
            loss = tf.reduce_sum(output**3)
        variables = [variable.value for variable in layer.trainable_variables]
        return output, *tape.gradient(loss, variables)

    blocks = output_and_gradients()
    with running(whole_scores=True):
        whole = output_and_gradients()
    tolerance = {"float32": 2e-6, "mixed_bfloat16": 3e-2}[policy]
    for one, other in zip(blocks, whole, strict=True):
        scale = max(np.abs(other).max(), 1.0)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def loops(layer, length=7, **arguments):
    """Returns how many loops the graph of a layer has."""
    function = tf.function(lambda tokens: layer(tokens, **arguments), autograph=False)
    spec = tf.TensorSpec((None, length, 24))
    graph = function.get_concrete_function(spec).graph.as_graph_def()
    functions = (one.node_def for one in graph.library.function)
    nodes = itertools.chain(graph.node, *functions)
    return sum("While" in node.op for node in nodes)


def test_where_all_scores_are_computed_at_once(block_size):
    plain = keras_vit.layers.SelfAttention(3, dropout_rate=0.1)
    assert loops(plain) == 1
    assert loops(plain, training=True) == 0
    assert loops(plain, class_token_only=True) == 0
    assert loops(plain, return_attention_weights=True) == 0
    assert loops(plain, length=2) == loops(plain, length=None) == 0
    with running(whole_scores=True):
        assert loops(plain) == 0
    for positions in (
        layers.RelativePositionEmbedding(),
        layers.RelativePositionBias((2, 3)),
    ):
        assert loops(layers.SelfAttention(3, positions=positions)) == 0


def test_exports_have_no_loop(block_size, monkeypatch):
    from keras_vit.runtimes import litert
    from train.models.exports.saved_model import _package

    seen = []
    monkeypatch.setattr(
        attention, "blockwise_attention", lambda *heads: seen.append(heads) or heads[0]
    )
    config = keras_vit.ViTConfig(
        hidden_size=8, num_layers=2, num_heads=2, mlp_dim=8, patch_size=16
    )
    model = keras_vit.VisionTransformer(config, image_size=32, classes=2)
    seen.clear()
    spec = tf.TensorSpec((1, 32, 32, 3))
    litert.tflite(model, lambda images: model(images, training=False), spec, "float32")
    _package(model, None)
    assert not seen
    # Outside of exports it attends in blocks, but for the last layer's class token.
    model(np.zeros((1, 32, 32, 3), "float32"))
    assert len(seen) == 1


def traced(layer):
    """Returns a function of the layer's output and gradients, as a training step's."""

    def both(tokens):
        with tf.GradientTape() as tape:
            output = layer(tokens, training=True)
        return output, tape.gradient(output, layer.trainable_variables)

    function = tf.function(both, autograph=False)
    return function, function.get_concrete_function(tf.TensorSpec((None, 7, 24))).graph


@pytest.mark.parametrize("options", [{"dropout_rate": 0.1}, {"remat": True}])
def test_a_graph_of_training_goes_with_its_function(options, block_size):
    layer = keras_vit.TransformerBlock(num_heads=3, mlp_dim=40, **options)
    function, graph = traced(layer)
    function(tf.ones((2, 7, 24)))
    left = [weakref.ref(graph), weakref.ref(layer.weights[0])]
    assert all(one() is not None for one in left)
    del function, graph, layer
    gc.collect()
    assert [one() for one in left] == [None, None]


def cube(wrapper):
    def function(x, factor):
        output = factor * x**3

        def gradient(upstream):
            return upstream * 3.0 * factor * x**2, upstream * (output / factor)

        return output, gradient

    return wrapper(function)


@pytest.mark.parametrize("in_a_graph", [False, True], ids=["eager", "graph"])
def test_the_same_gradients_as_those_of_tensorflow(in_a_graph):
    def gradients_of(function):
        def gradients(x, factor):
            with tf.GradientTape() as outer:
                outer.watch((x, factor))
                with tf.GradientTape() as inner:
                    inner.watch((x, factor))
                    output = function(function(x, factor), factor)
                first = inner.gradient(output, (x, factor))
            return output, *first, *outer.gradient(first[0], (x, factor))

        return tf.function(gradients, autograph=False) if in_a_graph else gradients

    rng = np.random.default_rng(0)
    tensors = [tf.constant(rng.normal(size=5), "float32") for _ in range(2)]
    found, expected = (
        gradients_of(cube(wrapper))(*tensors)
        for wrapper in (own_gradient, tf.custom_gradient)
    )
    np.testing.assert_array_equal(found, expected)


def test_a_gradient_in_a_loop():
    function = cube(own_gradient)

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            _, output = tf.while_loop(
                lambda count, _: count < 2,
                lambda count, x: (count + 1, function(x, tf.constant(2.0))),
                (0, x),
            )
        return tape.gradient(output, x)

    # 2 (2 x^3)^3 = 16 x^9.
    np.testing.assert_allclose(gradient(tf.constant(1.1)), 144 * 1.1**8, rtol=1e-6)
