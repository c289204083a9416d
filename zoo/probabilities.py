"""Probabilities of classes from logits, with NumPy alone."""

import numpy as np

from zoo.head import NUMBERS, SEVERAL_CLASSES


def softmax(logits):
    """Returns the probabilities of classes.

    Args:
        logits: float array (..., classes).

    Returns:
        Array of the same shape and dtype, whose rows add up to 1.

    Example:
        >>> softmax(np.array([[0.0, 1000.0], [3.0, 3.0]]))
        array([[0. , 1. ],
               [0.5, 0.5]])
    """
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def sigmoid(logits):
    """Returns the probability of each class for itself.

    Args:
        logits: float array.

    Returns:
        Array of the same shape and dtype.

    Example:
        >>> sigmoid(np.array([0.0, -1000.0]))
        array([0.5, 0. ])
    """
    # No power overflows.
    small = np.exp(-np.abs(logits))
    return np.where(logits < 0, small, 1) / (1 + small)


def answers_of(logits, problem_type):
    """Returns what logits answer: probabilities of classes, or the numbers they are.

    Args:
        logits: float array (..., outputs).
        problem_type: one of `zoo.head.PROBLEM_TYPES`.

    Returns:
        Array of the same shape and dtype.

    Example:
        >>> answers_of(np.array([0.0, 0.0]), "single_label_classification")
        array([0.5, 0.5])
    """
    if problem_type == NUMBERS:
        return logits
    return (sigmoid if problem_type == SEVERAL_CLASSES else softmax)(logits)
