"""Preprocessing of images, and decoding of predictions to names of classes."""

import sys

import numpy as np
from keras import ops

import zoo


def preprocess_input(images):
    """Scales images from [0, 255] to [-1, 1], as every released model expects.

    Args:
        images: NumPy array or tensor of any shape, uint8 or float in [0, 255], with
            every backend also a tensor of TensorFlow, as in `tf.data.Dataset.map`.

    Returns:
        float32 array (for a NumPy array) or tensor of the same shape and library,
        x / 127.5 - 1.

    Source:
        `input_pipeline.py` of the released code; the AugReg models as well.

    Example:
        >>> preprocess_input(np.array([0, 255], "uint8"))
        array([-1.,  1.], dtype=float32)
    """
    # A tensor of TensorFlow comes from code that imported it. Where another backend
    # computes, keras.ops has no use for one.
    tf = sys.modules.get("tensorflow")
    if isinstance(images, np.ndarray):
        images = images.astype("float32")
    elif hasattr(tf, "is_tensor") and tf.is_tensor(images):
        images = tf.cast(images, "float32")
    else:
        images = ops.cast(images, "float32")
    return (images - 127.5) / 127.5


def decode_predictions(predictions, top=5, class_names=None):
    """Returns the names and scores of the most likely classes.

    Args:
        predictions: array or tensor (batch, classes), logits or probabilities.
        top: int, how many classes per image.
        class_names: sequence of str, the name of every class; by default those of
            ImageNet-1k for 1000 classes and of ImageNet-21k for 21843, which are
            fetched once.

    Returns:
        A list per image of (class id, class name, score), the best first. The id is
        the WordNet id where the names are ImageNet's, else the class's number.

    Raises:
        ValueError: the names are unknown, or not as many as the classes; or all
            scores are equal, which a new head's are.
        zoo.StoreError: the names cannot be fetched.

    Source:
        `keras.applications`; the released class order.

    Example:
        >>> outputs = np.array([[0.1, 0.9]])
        >>> decode_predictions(outputs, top=1, class_names=["cat", "dog"])
        [[(1, 'dog', 0.9)]]
    """
    predictions = ops.convert_to_numpy(predictions)
    if predictions.ndim != 2:
        raise ValueError(
            f"decode_predictions expects (batch, classes), got {predictions.shape}."
        )
    classes = predictions.shape[1]
    if classes > 1 and (np.ptp(predictions, axis=1) == 0).any():
        raise ValueError(
            "Every class has the same score: the head is new, or all zeros as in the "
            "original ImageNet-21k files. Fine-tune it first, or load a model with "
            'a trained head, such as weights="augreg-imagenet21k".'
        )
    names = names_of_classes(classes, class_names)
    best = np.argsort(-predictions, axis=1, kind="stable")[:, :top]
    return [
        [(*names[index], float(scores[index])) for index in indices]
        for indices, scores in zip(best, predictions, strict=True)
    ]


def names_of_classes(classes, class_names=None):
    """Returns a (class id, class name) per class; see `decode_predictions`."""
    if class_names is None:
        data_sets = {1000: "imagenet2012", 21843: "imagenet21k"}
        if classes not in data_sets:
            raise ValueError(
                f"No class names are known for {classes} classes: pass class_names."
            )
        return zoo.class_names(data_sets[classes])
    names = list(enumerate(class_names))
    if len(names) != classes:
        raise ValueError(
            f"{len(names)} class names for predictions of {classes} classes: pass one "
            "per class."
        )
    return names
