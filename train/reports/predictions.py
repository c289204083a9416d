"""What a classifier said of a split, checked and counted."""

import numpy as np


def check_predictions(labels, probabilities, class_names):
    """Check that predictions fit their labels and the classes.

    Args:
        labels: True classes, integers of shape (n,).
        probabilities: Predicted probabilities, floats of shape (n, classes).
        class_names: Names of the classes, a sequence of `classes` strings.

    Returns:
        Labels and probabilities as NumPy arrays.

    Raises:
        ValueError: The arguments do not fit each other, or a probability is not finite.
    """
    labels, probabilities = np.asarray(labels), np.asarray(probabilities)
    classes = len(class_names)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0:
        raise ValueError(
            "labels must be class indices, integers of shape (n,) with n at least 1, "
            f"got {labels.dtype} of shape {labels.shape}."
        )
    if probabilities.shape != (len(labels), classes):
        raise ValueError(
            f"probabilities for {len(labels)} labels and {classes} class names must be "
            f"of shape ({len(labels)}, {classes}), got {probabilities.shape}."
        )
    if labels.min() < 0 or labels.max() >= classes:
        row = int(np.argmax((labels < 0) | (labels >= classes)))
        raise ValueError(
            f"labels[{row}] is {labels[row]}, but {classes} class names leave the "
            f"labels 0 to {classes - 1}: pass the names of all classes."
        )
    finite = np.isfinite(probabilities).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{np.sum(~finite)} of {len(labels)} rows of the probabilities are not "
            f"finite, the first of them row {int(np.argmin(finite))}: the model has "
            "diverged, take an earlier checkpoint."
        )
    return labels, probabilities


def confused_pairs(matrix):
    """List which classes were taken for which, the most frequent mistake first.

    Args:
        matrix: Counts of true classes in rows and predicted ones in columns, integers
            of shape (classes, classes).

    Returns:
        List of [true, predicted], without those that never happened.
    """
    mistakes = matrix * ~np.eye(len(matrix), dtype=bool)
    order = np.argsort(-mistakes, axis=None, kind="stable")
    pairs = np.stack(np.unravel_index(order, matrix.shape), axis=1)
    return pairs[: np.count_nonzero(mistakes)].tolist()
