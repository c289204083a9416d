"""Metrics of a classifier: accuracy, F1, confusions, intervals, calibration."""

import numpy as np

CONFUSIONS = 10
CALIBRATION_BINS = 15


def check_predictions(labels, probabilities, class_names):
    """Returns labels (n,) and probabilities (n, classes) as arrays, if they are valid.

    Raises:
        ValueError: the arguments do not fit each other, or a probability is not finite.
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


def classification_summary(labels, probabilities, class_names):
    """Returns the metrics of a classifier on a split.

    Ratios whose denominator is zero are 0. Classes without examples have no recall, so
    the macro averages leave them out and "absent_classes" names them.

    The arguments are those of `check_predictions`.

    Returns:
        A dict with "examples" and "accuracy", with its 95% interval (`interval`)
        "accuracy_low" and "accuracy_high"; "top5_accuracy" and its interval likewise
        where there are more than five classes; "per_class", a list in the order of the
        classes of dicts with "name", "precision", "recall", "f1", "examples" (with this
        true class) and "predictions" (of this class); "macro", a dict with "precision",
        "recall" and "f1"; "absent_classes", a list of names; "confusions", the most
        frequent mistakes as dicts with "true", "predicted", "count" and "share" (of the
        examples with this true class); and "confusion_matrix", an int64 array of shape
        (classes, classes) that counts true classes in rows, predicted ones in columns.

    Raises:
        ValueError: see `check_predictions`.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    class_names = [str(name) for name in class_names]
    labels, probabilities = check_predictions(labels, probabilities, class_names)
    classes = np.arange(len(class_names))
    predicted = probabilities.argmax(axis=1)
    matrix = confusion_matrix(labels, predicted, labels=classes)
    *ratios, examples = precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    present = examples > 0
    ratios = dict(zip(("precision", "recall", "f1"), ratios, strict=True))
    summary = {
        "examples": len(labels),
        **_share("accuracy", predicted == labels),
        "macro": {key: float(ratio[present].mean()) for key, ratio in ratios.items()},
        "per_class": [
            {
                "name": name,
                **{key: float(ratio[index]) for key, ratio in ratios.items()},
                "examples": int(examples[index]),
                "predictions": int(matrix[:, index].sum()),
            }
            for index, name in enumerate(class_names)
        ],
        "absent_classes": [class_names[index] for index in classes[~present]],
        "confusions": [
            {
                "true": class_names[true],
                "predicted": class_names[guess],
                "count": int(matrix[true, guess]),
                "share": float(matrix[true, guess] / examples[true]),
            }
            for true, guess in confused_pairs(matrix)[:CONFUSIONS]
        ],
        "confusion_matrix": matrix,
    }
    if len(class_names) > 5:
        summary.update(_share("top5_accuracy", _ranks(labels, probabilities) < 5))
    return summary


def _share(name, hits):
    low, high = interval(hits.sum(), len(hits))
    return {name: float(hits.mean()), f"{name}_low": low, f"{name}_high": high}


def _ranks(labels, probabilities):
    """Counts the classes before the true one; of equals, argmax takes the first."""
    chances = np.take_along_axis(probabilities, labels[:, None], axis=1)
    earlier = np.arange(probabilities.shape[1]) < labels[:, None]
    ahead = (probabilities > chances) | ((probabilities == chances) & earlier)
    return ahead.sum(axis=1)


def confused_pairs(matrix):
    """Returns [true, predicted] of all mistakes in a confusion matrix, by frequency."""
    mistakes = matrix * ~np.eye(len(matrix), dtype=bool)
    order = np.argsort(-mistakes, axis=None, kind="stable")
    pairs = np.stack(np.unravel_index(order, matrix.shape), axis=1)
    return pairs[: np.count_nonzero(mistakes)].tolist()


def interval(correct, examples):
    """Returns the 95% confidence interval (low, high) of a counted share.

    Source:
        Wilson, Probable inference, the law of succession, and statistical inference
        (1927); without continuity correction.

    Example:

    >>> [round(bound, 4) for bound in interval(90, 100)]
    [0.8256, 0.9448]
    """
    from scipy.stats import binomtest

    bounds = binomtest(int(correct), int(examples)).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def calibration(labels, probabilities):
    """Returns the expected calibration error and the reliability diagram's bins.

    The confidence is the largest probability. Bins are of equal width, (0, 1/15],
    (1/15, 2/15] and so on; the error is the mean over the examples of |accuracy - mean
    confidence| of their bin.

    The arguments are those of `check_predictions`.

    Returns:
        A dict with "error", and "bins", a list of dicts with "low", "high", "examples"
        and, None in an empty bin, "confidence" and "accuracy".

    Source:
        Guo et al., On Calibration of Modern Neural Networks (2017), equation 3.

    Example:

    >>> calibration(np.array([0, 1]), np.array([[0.75, 0.25]] * 2))["error"]
    0.25
    """
    confidence = probabilities.max(axis=1).astype(np.float64)
    correct = probabilities.argmax(axis=1) == labels
    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    places = np.digitize(confidence, edges[1:-1], right=True)
    counts, confidences, accuracies = (
        np.bincount(places, weights, minlength=CALIBRATION_BINS)
        for weights in (None, confidence, correct)
    )
    gaps = np.abs(accuracies - confidences)
    return {
        "error": float(gaps.sum() / len(confidence)),
        "bins": [
            {
                "low": float(edges[index]),
                "high": float(edges[index + 1]),
                "examples": int(count),
                "confidence": float(confidences[index] / count) if count else None,
                "accuracy": float(accuracies[index] / count) if count else None,
            }
            for index, count in enumerate(counts)
        ],
    }
