"""Losses per example, which micro-batches and devices can add up."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


def softmax_cross_entropy(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
) -> Any:
    """Returns -sum over the classes of label log softmax(logits), for each example.

    Labels are an int tensor (batch,), or a float tensor (batch, classes) whose rows sum
    to one; `label_smoothing` is the part of them that goes to all classes alike. With
    `class_weights`, one float per class, an example counts as its class does, one with
    several labels as their mean; the losses are not divided by the weights. Returns
    float32 (batch,), and raises a `ValueError` for what does not fit.

    Source:
        Released code, `train.py`; the smoothing of Rethinking the Inception
        Architecture for Computer Vision, section 7.

    Example:
        >>> import numpy as np
        >>> logits = np.zeros((3, 4), "float32")
        >>> losses = softmax_cross_entropy(logits, np.array([0, 1, 3]))
        >>> bool(abs(losses[0] - np.log(4)) < 1e-6)
        True
    """
    if len(labels.shape) == 1 and not label_smoothing and class_weights is None:
        logits = ops.cast(logits, "float32")
        return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    logits, targets, weights = _prepare(logits, labels, label_smoothing, class_weights)
    return weights * ops.categorical_crossentropy(targets, logits, from_logits=True)


def sigmoid_cross_entropy(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
) -> Any:
    """Returns the sum of binary cross-entropies over the classes, for each example.

    That is the sum of -label log sigmoid(logit) - (1 - label) log(1 - sigmoid(logit)).

    As `softmax_cross_entropy`, but values of labels (batch, classes) are in [0, 1], and
    the weights of an example's classes are added up where these do not sum to one.

    Source:
        How to train your ViT?, section 3.2; big_vision, `utils.py`.
    """
    logits, targets, weights = _prepare(logits, labels, label_smoothing, class_weights)
    losses = ops.binary_crossentropy(targets, logits, from_logits=True)
    return weights * ops.sum(losses, axis=-1)


def count_correct(logits: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
    """Returns 1.0 for each example whose largest logit is that of its label, else 0.0.

    See `softmax_cross_entropy` for the labels; of rows the largest counts.
    """
    if len(labels.shape) == 2:
        labels = ops.argmax(labels, axis=-1)
    predicted = ops.argmax(logits, axis=-1)
    return ops.cast(ops.equal(predicted, ops.cast(labels, predicted.dtype)), "float32")


def _prepare(logits, labels, label_smoothing, class_weights):
    """Returns float32 logits, a row of targets for each, and their weights."""
    classes = logits.shape[-1]
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}.")
    if len(labels.shape) == 1:
        targets = ops.one_hot(labels, classes, dtype="float32")
    elif len(labels.shape) == 2 and labels.shape[-1] == classes:
        targets = ops.cast(labels, "float32")
    else:
        raise ValueError(
            f"For logits of shape {tuple(logits.shape)} labels must be integers of "
            f"shape (batch,) or rows of shape (batch, {classes}), got shape "
            f"{tuple(labels.shape)}."
        )
    weights = 1.0
    if class_weights is not None:
        if len(class_weights) != classes:
            raise ValueError(
                f"class_weights must have one weight for each of the {classes} "
                f"classes, got {len(class_weights)}."
            )
        class_weights = ops.convert_to_tensor(class_weights, dtype="float32")
        weights = ops.sum(targets * class_weights, axis=-1)
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets + label_smoothing / classes
    return ops.cast(logits, "float32"), targets, weights
