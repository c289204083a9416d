"""Probabilities of classes from logits, with NumPy alone."""

import numpy as np


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
