"""Initial values of variables, left out where those of a file follow."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

_left_out = contextvars.ContextVar("left_out", default=False)


def initializer(values: Any) -> Any:
    """Returns a Keras initializer, or within `left_out()` one that sets no values."""
    return _unset if _left_out.get() else values


def uniform(bound: float) -> keras.initializers.Initializer:
    """Returns an initializer of uniform values up to a bound.

    Linear layers of PyTorch start so, with 1 / sqrt(fan-in) as the bound, biases too.
    """
    return keras.initializers.RandomUniform(-bound, bound)


@contextlib.contextmanager
def left_out(are_to_follow: bool = True) -> Iterator[None]:
    """Context in which layers are built without initial values, for a file's to follow.

    Drawing the random values of a model takes longer than reading its file. False
    leaves all as it is.
    """
    token = _left_out.set(are_to_follow or _left_out.get())
    try:
        yield
    finally:
        _left_out.reset(token)


def _unset(shape, dtype=None):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # There keras.ops.empty writes zeros.
        return tf.raw_ops.Empty(shape=shape, dtype=dtype)
    return ops.empty(shape, dtype)
