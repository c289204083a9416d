"""Arrays and tensors of numbers, of every library, or a refusal by name."""

import contextlib
import sys
from typing import Any

import keras
import numpy as np
from keras import ops

from zoo.common.safe_text import brief

# The remedy where photos are handed in and arrays are expected.
OF_PHOTOS = "keras_vit.classify and embed take files, zoo.photos.prepare reads one"
_KINDS_OF_NUMBERS = ("int", "uint", "float", "bfloat", "bool")


def check_numbers(values: Any, name: str, remedy: str) -> Any:
    """Returns values of numbers; lists as an array, or as a tensor if of tensors.

    Raises a `ValueError` for what is none, or not of numbers.
    """
    array = values
    if getattr(values, "dtype", None) is None:
        first = values
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        # Libraries raise errors of their own for lists of different lengths. Tensors
        # may be of a graph, which has no values yet.
        if functions := functions_of(first):
            with contextlib.suppress(Exception):
                array = _stacked(values, functions)
        if array is values:  # also of tensors of different types, or of variables
            with contextlib.suppress(Exception):
                array = np.asarray(values)
    dtype = getattr(array, "dtype", None)
    kind = getattr(dtype, "name", str(dtype)).removeprefix("torch.")
    if not kind.startswith(_KINDS_OF_NUMBERS):
        raise ValueError(
            f"{name} must be an array or a tensor of numbers, got {brief(values)}: "
            f"{remedy}."
        )
    return array


def functions_of(tensor: Any) -> Any:
    """Returns the module of functions that take a tensor, None for another value."""
    # A tensor of TensorFlow comes from code that imported it. Where another backend
    # computes, keras.ops has no use for one.
    tf = sys.modules.get("tensorflow")
    if hasattr(tf, "is_tensor") and tf.is_tensor(tensor):
        return tf
    is_tensor = isinstance(tensor, keras.KerasTensor) or ops.is_tensor(tensor)
    return ops if is_tensor else None


def _stacked(values, functions):
    if not isinstance(values, (list, tuple)):
        return values
    return functions.stack([_stacked(value, functions) for value in values])
