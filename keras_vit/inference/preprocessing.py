"""Preprocessing of images, and decoding of predictions to names of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

import zoo
from keras_vit.structure.numbers import OF_PHOTOS, check_numbers, functions_of
from zoo.network import positive_int
from zoo.network.head import checked_names, likeliest, list_of


def preprocess_input(images: Any) -> Any:
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
        numbers = (functions_of(numbers) or ops).cast(numbers, "float32")
    return (numbers - 127.5) / 127.5


def decode_predictions(
    predictions: Any, top: int = 5, class_names: Sequence[str] | str | None = None
) -> list[list[tuple]]:
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


def check_scores(scores: np.ndarray) -> None:
    """Refuses scores (images, classes) of a head that knows nothing yet."""
    if scores.shape[1] > 1 and (np.ptp(scores, axis=1) == 0).any():
        raise ValueError(
            "Every class has the same score: the head is new, or all zeros as in the "
            "original ImageNet-21k files. Fine-tune it first, or load a model with "
            'a trained head, such as weights="augreg-imagenet21k".'
        )


def named(best: list[list[tuple]], names: Sequence[tuple]) -> list[list[tuple]]:
    """Returns (class id, class name, score) for each (class, score) of each image."""
    return [[(*names[place], score) for place, score in row] for row in best]


def names_of_classes(
    classes: int, class_names: Sequence[str] | str | None = None
) -> Sequence[tuple]:
    """Returns a (class id, class name) per class; see `decode_predictions`."""
    if class_names is None:
        known = list_of(classes)
        hint = f', class_names="{known}" if they are ImageNet\'s' if known else ""
        raise ValueError(
            f"No class names are known for {classes} classes: pass class_names, one "
            f"per class{hint}; those of a model are its head's class_names."
        )
    names = checked_names(class_names, classes)
    if isinstance(names, str):
        return zoo.class_names(names)
    return list(enumerate(names))
