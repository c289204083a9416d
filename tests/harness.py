"""What every layer must do, whatever it computes, on the backend in use."""

import contextlib
import functools
import inspect
import json

import keras
import numpy as np
import pytest
from keras import ops

# How far a layer may be from its float32 result, as a fraction of the result's RMS:
# some roundings of 2^-11 (float16) or 2^-8 (bfloat16) after one another.
HALF_TOLERANCE = {
    "float32": 1e-6,
    "mixed_float16": 4e-3,
    "float16": 4e-3,
    "mixed_bfloat16": 3e-2,
    "bfloat16": 3e-2,
}
# Every layer's configuration has these besides its own arguments.
_BASE_CONFIG = {"name", "trainable", "dtype", "activity_regularizer", "autocast"}


def check_layer(
    layer_class,
    init_arguments,
    input_shape,
    expected_output_shape,
    *,
    num_weights,
    zero_gradients=(),
    random_in_training=False,
    all_arguments=True,
    reference,
    tmp_path,
):
    """Checks all that layers have in common.

    Args:
        layer_class: the class, of `keras_vit.layers`.
        init_arguments: dict, the constructor's arguments.
        input_shape: tuple with the batch, not square where the layer has a choice.
        expected_output_shape: tuple with the batch.
        num_weights: int, how many trainable variables.
        zero_gradients: names of variables without influence on the output.
        random_in_training: bool, whether `init_arguments` has rates of dropout.
        all_arguments: bool, whether these are all arguments, none at its default.
        reference: function (layer, inputs, arguments) -> the output in float64.
        tmp_path: folder for files.
    """

    def make(**kwargs):
        layer = layer_class(**init_arguments, **kwargs)
        layer.build(input_shape)
        randomize(layer)
        return layer

    check_shapes(layer_class(**init_arguments), input_shape, expected_output_shape)
    if all_arguments:
        check_config(layer_class, init_arguments)
    layer = make()
    inputs = normal(input_shape)
    expected = reference(layer, inputs, init_arguments)
    tolerance = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(numpy(layer(inputs)), expected, atol=tolerance)
    assert len(layer.trainable_variables) == num_weights
    check_dtype_policies(make, inputs)
    check_gradients(layer, inputs, zero_gradients)
    check_training(make, inputs, random_in_training)
    check_copies(layer, inputs, tmp_path / "layer.keras")


def check_refusal(call, *parts, error=ValueError):
    """A call is refused by a message that has these parts."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert part in message, message


def check_shapes(layer, input_shape, expected_output_shape):
    """Eager, symbolic and computed shapes agree; the batch size is free."""
    batch, *others = expected_output_shape
    assert not layer.built
    symbolic = layer(keras.Input(input_shape[1:]))
    assert layer.built
    assert (symbolic.shape, symbolic.dtype) == ((None, *others), "float32")
    for count in (batch, batch + 1):
        assert layer(normal((count, *input_shape[1:]))).shape == (count, *others)
    for count in (batch, None):
        found = layer.compute_output_shape((count, *input_shape[1:]))
        assert tuple(found) == (count, *others)


def check_config(layer_class, init_arguments):
    """The configuration is the constructor's arguments, and makes the layer again."""
    arguments = named_arguments(layer_class)
    assert init_arguments.keys() == arguments.keys()
    for name, value in init_arguments.items():
        assert arguments[name].default != value, f"{name} is at its default"
    layer = layer_class(**init_arguments, name="chosen")
    config = layer.get_config()
    inherited = _BASE_CONFIG
    if layer_class.__base__ is not keras.layers.Layer:
        inherited = inherited | named_arguments(layer_class.__base__).keys()
    assert arguments.keys() <= config.keys() <= arguments.keys() | inherited
    assert config["name"] == "chosen"
    assert {name: config[name] for name in init_arguments} == init_arguments

    assert layer_class.from_config(config).get_config() == config
    serialized = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(serialized)))
    assert type(again) is layer_class
    assert again.get_config() == config


def check_copies(layer, inputs, path):
    """Copies of a model compute the very same, and what is frozen is so in each."""
    images = keras.Input(inputs.shape[1:])
    head = keras.layers.Dense(2, name="head")
    model = keras.Model(images, head(layer(images)))
    outputs = numpy(model(inputs))
    parts = [part for part in all_layers(layer) if part is not layer and part.weights]
    rounds = [(False, []), (True, parts[::2]), (False, parts[1::2])]
    for whole, others in rounds if parts else rounds[:2]:
        layer.trainable = not whole
        layer.trainable = whole
        for part in others:
            part.trainable = not whole
        expected = flags(model)
        if not (whole or others):
            assert len(model.trainable_weights) == len(head.weights)
        assert flags(keras.models.clone_model(model)) == expected
        model.save(path)
        loaded = keras.saving.load_model(path)
        assert flags(loaded) == expected
        np.testing.assert_array_equal(numpy(loaded(inputs)), outputs)


def flags(model):
    """Whether each variable of a model is trained."""
    return [weight.trainable for weight in model.weights]


def check_dtype_policies(make, inputs):
    """Every policy, global or the layer's own, gives its dtype and nearly the same."""
    reference = make()
    expected = numpy(reference(inputs))
    for name, tolerance in HALF_TOLERANCE.items():
        policy = keras.DTypePolicy(name)
        layers = [make(dtype=name)]
        if name == "mixed_bfloat16":
            # Keras's own layers show of a global policy only which it is.
            with global_policy(name):
                layers.append(make())
        for layer in layers:
            for variable, source in zip(
                layer.trainable_variables, reference.trainable_variables, strict=True
            ):
                assert variable.dtype == policy.variable_dtype
                variable.assign(source)
            assert {part.dtype_policy.name for part in all_layers(layer)} == {name}
            output, symbolic = layer(inputs), layer(keras.Input(inputs.shape[1:]))
            for one in (output, symbolic):
                dtype = keras.backend.standardize_dtype(one.dtype)
                assert dtype == policy.compute_dtype, name
            assert rms(numpy(output) - expected) <= tolerance * rms(expected), name


def check_gradients(layer, inputs, zero_gradients=()):
    """Gradients are finite, nonzero, and the slopes that finite differences see."""
    names = [variable.path for variable in layer.trainable_variables]
    found = gradients(layer, inputs)
    rng = np.random.default_rng(2)
    for variable, gradient in zip(layer.trainable_variables, found, strict=True):
        assert gradient.shape == variable.shape, variable.path
        assert np.isfinite(gradient).all(), variable.path
        if variable.path.endswith(tuple(zero_gradients)) and zero_gradients:
            assert np.abs(gradient).max() < 1e-4, variable.path
            continue
        assert np.abs(gradient).max() > 1e-2, f"{variable.path} of {names}"
        # Along the gradient, and off it so that no part of it goes unseen.
        kept = numpy(variable)
        direction = gradient / rms(gradient) + rng.normal(size=gradient.shape)
        losses = []
        for step in (1e-3, -1e-3):
            variable.assign(kept + step * direction)
            losses.append(
                float(np.sum(numpy(layer(inputs)) * cotangent(layer, inputs)))
            )
        variable.assign(kept)
        slope = (losses[0] - losses[1]) / 2e-3
        np.testing.assert_allclose(
            slope, np.sum(gradient * direction), rtol=0.03, err_msg=variable.path
        )


def check_training(make, inputs, random_in_training):
    """Training differs from use exactly where there are rates of dropout."""
    layer = make()
    accepts = "training" in inspect.signature(layer.call).parameters
    plain = numpy(layer(inputs))
    np.testing.assert_array_equal(numpy(layer(inputs)), plain)
    assert accepts or not random_in_training
    if not accepts:
        return
    np.testing.assert_array_equal(numpy(layer(inputs, training=False)), plain)
    first, second = (numpy(layer(inputs, training=True)) for _ in range(2))
    assert np.isfinite(first).all()
    if random_in_training:
        assert rms(first - plain) > 1e-2 * rms(plain)
        assert rms(first - second) > 1e-2 * rms(plain)
    else:
        # Training may have a form of its own whose gradient is cheaper.
        np.testing.assert_allclose(first, plain, atol=1e-6 * rms(plain) + 1e-6)


def gradients(layer, inputs, **call_arguments):
    """Gradients of a fixed linear function of a layer's output, as NumPy arrays."""
    variables = layer.trainable_variables
    weights = ops.convert_to_tensor(cotangent(layer, inputs))
    backend = keras.backend.backend()
    if not variables:
        return []
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = ops.sum(layer(inputs, **call_arguments) * weights)
        found = tape.gradient(loss, [variable.value for variable in variables])
    elif backend == "torch":
        layer.zero_grad()
        ops.sum(layer(inputs, **call_arguments) * weights).backward()
        found = [variable.value.grad for variable in variables]
    else:
        found = _jax_gradients(layer, **call_arguments)(
            [variable.value for variable in variables],
            [variable.value for variable in layer.non_trainable_variables],
            inputs,
            weights,
        )
    assert all(gradient is not None for gradient in found)
    return [numpy(gradient) for gradient in found]


@functools.lru_cache(4)
def _jax_gradients(layer, **call_arguments):
    # As one compilation: each operation alone takes as long.
    import jax

    def loss(values, others, inputs, weights):
        outputs, _ = layer.stateless_call(values, others, inputs, **call_arguments)
        return ops.sum(outputs * weights)

    return jax.jit(jax.grad(loss))


def cotangent(layer, inputs):
    """The fixed weights of the outputs in the loss of `gradients`."""
    shape = layer.compute_output_shape(inputs.shape)
    return normal(tuple(shape), seed=1)


def randomize(layer, seed=0):
    """Gives a layer weights without zeros or ones that would hide an error."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        start = 1.0 if variable.path.endswith("gamma") else 0.0
        fan_in = max(int(np.prod(variable.shape[:-1])), 4)
        scale = 1.0 / np.sqrt(fan_in) if len(variable.shape) > 1 else 0.2
        variable.assign(start + rng.normal(scale=scale, size=variable.shape))


def all_layers(layer):
    """A layer and the layers in it, theirs included."""
    return list(layer._flatten_layers())


def named_arguments(layer_class):
    """The parameters by name of a class's constructor, without the catch-alls."""
    parameters = inspect.signature(layer_class.__init__).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if name != "self"
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


@contextlib.contextmanager
def global_policy(name):
    """Sets the global dtype policy for a while."""
    kept = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(kept)


def normal(shape, seed=0):
    """Fixed standard normal numbers in float32."""
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def numpy(tensor):
    """A tensor or variable of any float dtype as float64."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32")).astype("float64")


def rms(array):
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(array))))
