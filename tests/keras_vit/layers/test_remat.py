"""Computing blocks once more gives what keeping everything gives, in less memory."""

import gc

import keras
import numpy as np
import pytest
from harness import gradients, normal, numpy, randomize
from keras import ops

from keras_vit import layers

RATES = {
    "dropout_rate": 0.2,
    "attention_dropout_rate": 0.3,
    "stochastic_depth_rate": 0.4,
}
BACKEND = keras.backend.backend()


def two_blocks(rates, compiled=False, remat=False):
    """Two blocks in a row, with weights at which mistakes show."""
    blocks = [layers.TransformerBlock(3, 40, **rates, remat=remat) for _ in range(2)]
    model = keras.Sequential(blocks)
    model.build((None, 7, 24))
    randomize(model)
    if compiled:
        import tensorflow as tf

        model.call = tf.function(model.call)
    return model


def states(layer):
    return [
        variable
        for variable in layer.non_trainable_variables
        if variable.path.endswith("seed_generator_state")
    ]


def restart(layer, seed=0):
    """Puts all that random numbers come from at a known place."""
    if BACKEND != "jax":
        # JAX draws from the states alone, and Keras would import TensorFlow for it.
        keras.utils.set_random_seed(seed)
    for number, state in enumerate(states(layer)):
        state.assign(np.array([100 * seed + number, 5]))


def two_calls(layer, tokens):
    """The outputs of two calls in training, which JAX compiles once for both."""
    if BACKEND != "jax":
        return [numpy(layer(tokens, training=True)) for _ in range(2)]
    import jax

    call = jax.jit(lambda *given: layer.stateless_call(*given, tokens, training=True))
    found = []
    for _ in range(2):
        weights = [variable.value for variable in layer.trainable_variables]
        others = layer.non_trainable_variables
        outputs, changed = call(weights, [variable.value for variable in others])
        for variable, value in zip(others, changed, strict=True):
            variable.assign(value)
        found.append(numpy(outputs))
    return found


@pytest.mark.parametrize(
    ("rates", "compiled"),
    [
        # The other layers draw nothing.
        ({"stochastic_depth_rate": 0.4}, False),
        (RATES, False),
        # Keras compiles nothing else without a trainer.
        *([(RATES, True)] if BACKEND == "tensorflow" else []),
    ],
)
def test_gradients_and_seeds_are_those_without(rates, compiled):
    tokens = normal((8, 7, 24))
    found = {}
    for remat in (False, True):
        layer = two_blocks(rates, compiled, remat=remat)
        restart(layer)
        of_weights = gradients(layer, tokens, training=True)
        restart(layer)
        outputs = two_calls(layer, tokens)
        seeds = [ops.convert_to_numpy(state) for state in states(layer)]
        found[remat] = of_weights + outputs + seeds
    restart(layer, seed=1)
    other = gradients(layer, tokens, training=True)
    differences = [
        np.abs(one - two).max() > 0.1
        for one, two in zip(of_weights, other, strict=True)
    ]
    assert sum(differences) > len(differences) / 2
    assert len(found[True]) == len(found[False])
    tolerance = 1e-6
    if compiled or BACKEND == "jax":
        # Sums may be taken in another order there: the gradient of a key's bias, which
        # is zero, has nothing but the rounding of what it adds.
        tolerance *= max(np.abs(array).max() for array in of_weights)
    for one, two in zip(found[False], found[True], strict=True):
        np.testing.assert_allclose(two, one, atol=tolerance)
    assert states(layer)


def kept_bytes(layer, tokens):
    """What a gradient of the layer's output needs, in bytes."""
    if BACKEND == "jax":
        import jax

        others = [variable.value for variable in layer.non_trainable_variables]
        values = [variable.value for variable in layer.trainable_variables]

        def outputs(values, tokens):
            return layer.stateless_call(values, others, tokens, training=True)[0]

        pullback = jax.jit(lambda *given: jax.vjp(outputs, *given)[1])(values, tokens)
        return sum(array.nbytes for array in jax.tree_util.tree_leaves(pullback))
    if BACKEND == "torch":
        import torch

        sizes = {}

        def pack(tensor):
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(tokens, training=True)
        return sum(sizes.values())
    import tensorflow as tf

    def alive():
        gc.collect()
        found = (thing for thing in gc.get_objects() if type(thing) is eager)
        return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in found)

    eager = type(tf.zeros(()))
    layer(tokens, training=True)
    before = alive()
    with tf.GradientTape() as tape:
        outputs = layer(tokens, training=True)
    kept = alive() - before
    assert tape.gradient(outputs, layer.trainable_variables[0].value) is not None
    return kept


def test_less_is_kept_for_the_gradient():
    # Far more of tokens than of weights, which JAX counts too.
    tokens = ops.convert_to_tensor(normal((128, 7, 24)))
    plain, again = (
        kept_bytes(two_blocks(RATES, remat=remat), tokens) for remat in (False, True)
    )
    inputs = 128 * 7 * 24 * 4
    assert again < 6 * inputs
    assert plain > 5 * again
