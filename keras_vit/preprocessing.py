"""Preprocessing of images, and decoding of predictions to names of classes."""

import contextlib
import sys
from typing import Any

import keras
import numpy as np
from keras import ops

import zoo
from zoo.head import checked_names, likeliest, list_of
from zoo.network import positive_int
from zoo.text import brief

# The remedy where photos are handed in and arrays are expected.
OF_PHOTOS = "keras_vit.classify and embed take files, zoo.photos.prepare reads one"
_KINDS_OF_NUMBERS = ("int", "uint", "float", "bfloat", "bool")


def preprocess_input(images) -> Any:
    """Scales images from [0, 255] to [-1, 1], as every released model expects.

    Args:
        images: NumPy array or tensor of any shape, uint8 or float in [0, 255], with
            every backend also a tensor of TensorFlow, as in `tf.data.Dataset.map`.

    Returns:
        float32 array (for a NumPy array) or tensor of the same shape and library,
        x / 127.5 - 1.

    Raises:
        ValueError: they are something else, such as paths.

    Source:
        `input_pipeline.py` of the released code; the AugReg models as well.

    Example:
        >>> preprocess_input(np.array([0, 255], "uint8"))
        array([-1.,  1.], dtype=float32)
    """
    numbers = check_numbers(images, "images", OF_PHOTOS)
    if isinstance(images, np.ndarray):
        numbers = numbers.astype("float32")
    else:
        numbers = (_functions_of(numbers) or ops).cast(numbers, "float32")
    return (numbers - 127.5) / 127.5


def decode_predictions(predictions, top=5, class_names=None) -> list:
    """Returns the names and scores of the most likely classes.

    Args:
        predictions: array or tensor (batch, classes), logits or probabilities.
        top: int, how many classes per image.
        class_names: sequence of str, the name of every class, such as the
            `class_names` of a model's head. Or `"imagenet2012"` or `"imagenet21k"` for
            these classes in the released order, the latter fetched once.

    Returns:
        A list per image of (class id, class name, score), the best first. The id is
        the WordNet id where the names are ImageNet's, else the class's number.

    Raises:
        ValueError: there are no names, or not as many as the classes; all scores are
            equal, which a new head's are; or an argument is of another type.
        zoo.StoreError: the names cannot be fetched.

    Source:
        `keras.applications`; the released class order.

    Example:
        >>> outputs = np.array([[0.1, 0.9]])
        >>> decode_predictions(outputs, top=1, class_names=["cat", "dog"])
        [[(1, 'dog', 0.9)]]
    """
    remedy = "pass what model.predict returns"
    predictions = check_numbers(predictions, "predictions", remedy)
    top = positive_int(top, "top")
    predictions = ops.convert_to_numpy(predictions)
    if predictions.ndim != 2:
        raise ValueError(
            f"decode_predictions expects (batch, classes), got {predictions.shape}."
        )
    names = names_of_classes(predictions.shape[1], class_names)
    check_scores(predictions)
    return named(likeliest(predictions, top), names)


def check_numbers(values, name, remedy) -> Any:
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
        if functions := _functions_of(first):
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


def _functions_of(tensor):
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


def check_scores(scores) -> None:
    """Refuses scores (images, classes) of a head that knows nothing yet."""
    if scores.shape[1] > 1 and (np.ptp(scores, axis=1) == 0).any():
        raise ValueError(
            "Every class has the same score: the head is new, or all zeros as in the "
            "original ImageNet-21k files. Fine-tune it first, or load a model with "
            'a trained head, such as weights="augreg-imagenet21k".'
        )


def named(best, names) -> list:
    """Returns (class id, class name, score) for each (class, score) of each image."""
    return [[(*names[place], score) for place, score in row] for row in best]


def names_of_classes(classes, class_names=None) -> list:
    """Returns a (class id, class name) per class; see `decode_predictions`."""
    if class_names is None:
        known = list_of(classes)
        hint = f', class_names="{known}" if they are ImageNet\'s' if known else ""
        raise ValueError(
            f"No class names are known for {classes} classes: pass class_names, one "
            f"per class{hint}."
        )
    names = checked_names(class_names, classes)
    if isinstance(names, str):
        return zoo.class_names(names)
    return list(enumerate(names))
