"""Gradients of our own beside those of `tf.custom_gradient`, and what they leave."""

import gc
import weakref

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import attention, blockwise
from keras_vit.layers.own_gradient import own_gradient

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="others keep no graphs"
)


def traced(layer):
    """Returns a function of the layer's output and gradients, as a training step's."""

    def both(tokens):
        with tf.GradientTape() as tape:
            output = layer(tokens, training=True)
        return output, tape.gradient(output, layer.trainable_variables)

    function = tf.function(both, autograph=False)
    return function, function.get_concrete_function(tf.TensorSpec((None, 7, 24))).graph


@pytest.mark.parametrize("options", [{"dropout_rate": 0.1}, {"remat": True}])
def test_a_graph_of_training_goes_with_its_function(options, monkeypatch):
    monkeypatch.setattr(blockwise, "BLOCK_SIZE", 4)
    monkeypatch.setattr(attention, "MIN_TOKENS", 3)
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
