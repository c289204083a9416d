"""Whether a model still is what a compiled or converted one was made of."""

import concurrent.futures
import ctypes
import functools
import inspect
import operator
import os

import keras
import numpy as np

from zoo.common.machine import threads

# Compare this much of a weight at a time.
_CHUNK_BYTES = 2**21
# Compares twice as fast as NumPy, which writes down what is equal, and in many threads.
_memcmp = ctypes.CDLL("msvcrt" if os.name == "nt" else None).memcmp
_memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
_PLAIN = (bool, int, float, str, bytes, tuple, type(None))


class Settings:
    """The layers of a model, their arguments and which weights it has, as they are now.

    Arguments are those of the constructors that are attributes of the same name.
    """

    def __init__(self, model):
        self._model, self._weights = model, model.weights
        self._entries, self._policies = [], []
        for layer in _with_inner(model, {}).values():
            self._policies.append((layer, layer.dtype_policy.name))
            held, arguments = vars(layer), _arguments(type(layer))
            self._entries += [
                (held, name, value)
                for name, value in held.items()
                if isinstance(value, keras.layers.Layer)
                or (
                    name in arguments and (isinstance(value, _PLAIN) or callable(value))
                )
            ]

    def hold(self) -> bool:
        """Returns whether nothing has changed since."""
        # LoRA and quantisation of Keras change which weights there are.
        weights = self._model.weights
        return (
            len(weights) == len(self._weights)
            and all(map(operator.is_, weights, self._weights))
            and all(
                (now := held.get(name)) is value
                or (isinstance(value, _PLAIN) and now == value)
                for held, name, value in self._entries
            )
            and all(layer.dtype_policy.name == name for layer, name in self._policies)
        )


class Values:
    """The values of a model's weights, as they are now, to the last bit."""

    def __init__(self, model):
        self._weights = model.weights
        self._bytes = _BYTES[keras.backend.backend()]
        self._kept = []
        for values, stays in map(self._bytes, self._weights):
            self._kept.append(values if stays else values.copy())

    def hold(self) -> bool:
        """Returns whether no value has changed since."""
        now = [values for values, _ in map(self._bytes, self._weights)]
        if any(
            len(one) != len(kept) for one, kept in zip(now, self._kept, strict=True)
        ):
            return False
        # Addresses and lengths of bytes that must be equal.
        chunks = [
            (one.ctypes.data + start, kept.ctypes.data + start, end - start)
            for one, kept in zip(now, self._kept, strict=True)
            if one.ctypes.data != kept.ctypes.data
            for start in range(0, len(one), _CHUNK_BYTES)
            for end in [min(start + _CHUNK_BYTES, len(one))]
        ]
        count = min(threads(), len(chunks))
        if not count:
            return True
        shares = [chunks[first::count] for first in range(count)]
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return all(pool.map(_are_equal, shares))


def _with_inner(layer, layers):
    """Returns {id: layer} of a layer and all layers in it."""
    if id(layer) not in layers:
        layers[id(layer)] = layer
        for value in vars(layer).values():
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(one, keras.layers.Layer):
                    _with_inner(one, layers)
    return layers


@functools.cache
def _arguments(kind):
    """Returns the names of the arguments of a class and those it comes from."""
    constructors = [
        vars(one)["__init__"] for one in kind.__mro__ if "__init__" in vars(one)
    ]
    names = {name for one in constructors for name in _parameters(one)}
    # Another name changes nothing that is computed.
    return names - {"name"}


def _parameters(function):
    try:
        return inspect.signature(function).parameters
    except ValueError:  # of a class written in C
        return ()


def _are_equal(chunks):
    return not any(_memcmp(*chunk) for chunk in chunks)


# Each returns the bytes of a weight without a copy where the processor has them, and
# whether they stay as they are while they are held.


def _tensorflow(weight):
    import tensorflow as tf

    variable = weight.value
    # TensorFlow writes to a variable's memory only while nobody else holds it, so an
    # equal address is that of equal values.
    tensor = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)
    return _as_bytes(np.asarray(tensor)), True


def _jax(weight):
    # An array made of one of NumPy may share its memory, which can change.
    return _as_bytes(np.asarray(weight.value)), False


def _torch(weight):
    import torch

    values = weight.value.detach().cpu().reshape(-1)
    # NumPy has no bfloat16.
    return values.view(torch.uint8).numpy(), False


def _as_bytes(array):
    return array.reshape(-1).view("uint8")


_BYTES = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
