"""A layer of Keras or keras-cv as an augmentation, a function of each image's seed."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from train.common.errors import RunError, first_line

# These operations of TensorFlow draw numbers from a state that no checkpoint has, or
# may do so in Python.
_STATEFUL = re.compile(
    r"Random.*|Stateful(?!Partitioned).*|(Parameterized)?TruncatedNormal|Multinomial"
    r"|Rng(ReadAnd)?Skip|SampleDistortedBoundingBox.*|(Eager)?PyFunc"
)
# These settings decide which numbers a layer draws, not what it computes.
_NOT_COMPARED = ("seed", "build_config", "name")


def described(layer: keras.layers.Layer) -> dict:
    """Returns the class and the settings of a layer, but for its seed, a JSON dict.

    Raises a `RunError` where it cannot say them.
    """
    _check(layer)
    try:
        return _compared(keras.saving.serialize_keras_object(layer))
    except (NotImplementedError, TypeError) as error:
        raise RunError(
            f"The augmentation layer {_name(layer)} has no settings that can be "
            f"written ({first_line(error)}): give its class a get_config."
        ) from error


def traced(layer: keras.layers.Layer, image_size: tuple[int, int]) -> Callable:
    """Returns a function of an image and a seed to the image that a layer makes of it.

    The layer takes float32 images (1, height, width, 3) with values in 0..255, and
    returns as many of the same size; the function takes one, and int64 (2,), which
    every random number of a `keras.random.SeedGenerator` in the layer follows.

    Raises a `RunError` where the layer does not work in `tf.data`, or makes something
    else, and warns where it may draw numbers otherwise: runs do not repeat exactly.
    """
    _check(layer)
    shape = (*image_size, 3)

    @tf.function(
        input_signature=[tf.TensorSpec(shape), tf.TensorSpec((2,), tf.int64)],
    )
    def call(image: tf.Tensor, seed: tf.Tensor) -> Any:
        with _Seeded(seed):
            return layer(image[None], training=True)

    try:
        graph = call.get_concrete_function()
    # A layer may be anybody's code and raise anything.
    except Exception as error:
        raise RunError(
            f"The augmentation layer {_name(layer)} does not work in tf.data on the "
            f"backend {keras.backend.backend()} ({_reason(error)}): see "
            "docs/augmentation.md."
        ) from error
    made = graph.structured_outputs
    if not tf.is_tensor(made) or made.shape != (1, *shape):
        made_shape = getattr(made, "shape", type(made).__name__)
        raise RunError(
            f"The augmentation layer {_name(layer)} makes {made_shape} of images "
            f"(1, {', '.join(map(str, shape))}): it must keep their shape."
        )
    if stateful := _stateful(graph.graph):
        warnings.warn(
            f"The augmentation layer {_name(layer)} may draw random numbers that do "
            f"not follow the seed ({', '.join(stateful)}): runs do not exactly repeat.",
            stacklevel=2,
        )

    def through(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.cast(call(image, tf.cast(seed, tf.int64))[0], tf.float32)

    return through


class _Seeded(keras.StatelessScope):
    """Gives the states of seed generators values of their own from one seed.

    They follow the order in which they are read, in branches of a graph too.
    """

    def __init__(self, seed):
        super().__init__(initialize_variables=False)
        self._seed, self._reads = seed, 0

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        variable, _ = update
        if not _is_seed(variable):
            super().add_update(update)

    def get_current_value(self, variable: keras.Variable) -> Any:
        if not _is_seed(variable):
            return super().get_current_value(variable)
        self._reads += 1
        return tf.cast(tf.random.fold_in(self._seed, self._reads), variable.dtype)


def _is_seed(variable):
    return variable.name == "seed_generator_state"


def _stateful(graph):
    """Returns the sorted names of a graph's operations with a random state."""
    definition = graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    nodes = [*definition.node, *(node for some in functions for node in some)]
    return sorted({node.op for node in nodes if _STATEFUL.fullmatch(node.op)})


def _check(layer):
    if not isinstance(layer, keras.layers.Layer):
        raise RunError(
            f"augmentation_layer must be a layer of Keras, got {type(layer).__name__}: "
            "pass one such as keras.layers.RandomRotation(0.1)."
        )


def _reason(error):
    """Returns what an error says, below the code that TensorFlow quotes before it."""
    match = re.search(r"(?m)^ *\w+(Error|Exception): (.+)$", str(error))
    return match[2] if match else first_line(error)


def _name(layer):
    return type(layer).__name__


def _compared(value):
    if isinstance(value, dict):
        if value.get("class_name") == "DTypePolicy":  # Its name is the dtype.
            return value
        return {
            name: _compared(one)
            for name, one in value.items()
            if name not in _NOT_COMPARED
        }
    if isinstance(value, (list, tuple)):
        return [_compared(one) for one in value]
    return value
