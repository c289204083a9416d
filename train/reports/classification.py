"""Metrics of a classifier: accuracy, F1, confusions, intervals, calibration."""

import numpy as np

CONFUSIONS = 10
CALIBRATION_BINS = 15
OTHER_CLASSES = "other classes"


def classification_summary(labels, probabilities, class_names, data_classes=None):
    """Returns the metrics of a classifier, from labels (n,) and (n, classes) floats.

    `data_classes` are the places of the classes that the data set has, None for all. A
    model of more classes then also has the accuracy among these alone, its answers for
    the `other_classes`, and a confusion matrix where those are one class, the last.

    Ratios whose denominator is zero are 0. Classes without examples have no recall, so
    the macro averages leave them out. In "per_class", "examples" are those of the true
    class, "predictions" those of the predicted one; "share" of a confusion is of the
    examples of the true class, which are the rows of the "confusion_matrix", whose
    classes are "matrix_classes".
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    class_names = [str(name) for name in class_names]
    classes = np.arange(len(class_names))
    predicted = probabilities.argmax(axis=1)
    *ratios, examples = precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    present = examples > 0
    predictions = np.bincount(predicted, minlength=len(classes))
    ratios = dict(zip(("precision", "recall", "f1"), ratios, strict=True))
    summary = {
        "examples": len(labels),
        **share("accuracy", predicted == labels),
        "macro": {key: float(ratio[present].mean()) for key, ratio in ratios.items()},
        "per_class": [
            {
                "name": name,
                **{key: float(ratio[index]) for key, ratio in ratios.items()},
                "examples": int(examples[index]),
                "predictions": int(predictions[index]),
            }
            for index, name in enumerate(class_names)
        ],
        "absent_classes": [class_names[index] for index in classes[~present]],
        "confusions": [
            {
                "true": class_names[true],
                "predicted": class_names[guess],
                "count": count,
                "share": float(count / examples[true]),
            }
            for true, guess, count in _most_confused(labels, predicted, len(classes))
        ],
    }
    own = classes if data_classes is None else np.unique(data_classes)
    rows, columns, names = labels, predicted, class_names
    if len(own) < len(classes):
        summary |= _beside_other_classes(labels, probabilities, class_names, own)
        # The place of each class in the matrix, the last one for all others.
        places = np.full(len(classes), len(own))
        places[own] = np.arange(len(own))
        rows, columns = places[labels], places[predicted]
        names = [*(class_names[place] for place in own), OTHER_CLASSES]
    summary["matrix_classes"] = names
    summary["confusion_matrix"] = confusion_matrix(
        rows, columns, labels=np.arange(len(names))
    )
    if len(class_names) > 5:
        summary.update(share("top5_accuracy", _ranks(labels, probabilities) < 5))
    return summary


def _beside_other_classes(labels, probabilities, class_names, own):
    """Returns what a model of more classes than the data set's answers among these."""
    predicted = probabilities.argmax(axis=1)
    among = own[probabilities[:, own].argmax(axis=1)]
    others = predicted[~np.isin(predicted, own)]
    places, counts = np.unique(others, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:CONFUSIONS]
    return {
        **share("accuracy_among_data_classes", among == labels),
        "data_classes": len(own),
        "other_classes": {
            "predictions": len(others),
            "share": len(others) / len(labels),
            "most": [
                {"name": class_names[places[index]], "predictions": int(counts[index])}
                for index in most
            ],
        },
    }


def _most_confused(labels, predicted, classes):
    """Returns the most frequent mistakes: true class, predicted class, count."""
    pairs = (labels.astype(np.int64) * classes + predicted)[labels != predicted]
    pairs, counts = np.unique(pairs, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:CONFUSIONS]
    return [(*divmod(int(pairs[index]), classes), int(counts[index])) for index in most]


def share(name, hits):
    """Returns the share of hits, an array of bool, with its 95% interval."""
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
    """Returns the 95% interval (low, high) of a counted share, Wilson's of 1927."""
    from scipy.stats import binomtest

    bounds = binomtest(int(correct), int(examples)).proportion_ci(method="wilson")
    return float(bounds.low), float(bounds.high)


def calibration(labels, probabilities):
    """Returns the expected calibration error and the reliability diagram's bins.

    The confidence is the largest probability. Bins are of equal width, (0, 1/15],
    (1/15, 2/15] and so on; the error is the mean over the examples of |accuracy - mean
    confidence| of their bin: Guo et al., On Calibration of Modern Neural Networks
    (2017), equation 3. An empty bin has None for confidence and accuracy.
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
