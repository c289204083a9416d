"""Metrics of a classifier: accuracy, F1, confusions, intervals, calibration."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from train.scoring.ranked import Ranked

if TYPE_CHECKING:
    from scipy.sparse import csr_array

CONFUSIONS = 10
CALIBRATION_BINS = 15
OTHER_CLASSES = "other classes"
# The quantile of the normal distribution that 95% intervals take.
Z95 = 1.959963984540054


def classification_summary(
    ranking: Ranked, class_names: Sequence[str], data_classes: ArrayLike | None = None
) -> dict:
    """Returns the metrics of a classifier, from a `train.scoring.ranked.Ranked`.

    `data_classes` are the places of the classes that the data set has, None for all. A
    model of more classes then also has the accuracy among these alone, its answers for
    the `other_classes`, and a confusion matrix where those are one class, the last.
    `ranking` is then ranked with the same `data_classes`.

    Ratios whose denominator is zero are 0. Classes without examples have no recall, so
    the macro averages leave them out. In "per_class", "examples" are those of the true
    class, "predictions" those of the predicted one; "share" of a confusion is of the
    examples of the true class, which are the rows of the "confusion_matrix", a
    `scipy.sparse.csr_array` of counts whose classes are "matrix_classes".
    """
    from sklearn.metrics import precision_recall_fscore_support

    labels, predicted = ranking.labels, ranking.predicted
    class_names = [str(name) for name in class_names]
    classes = np.arange(len(class_names))
    *ratios, examples = precision_recall_fscore_support(
        labels, predicted, labels=classes, zero_division=0
    )
    present = examples > 0
    predictions = np.bincount(predicted, minlength=len(classes))
    ratios = dict(zip(("precision", "recall", "f1"), ratios, strict=True))
    matrix = _confusion_matrix(labels, predicted, len(classes))
    summary = {
        "examples": len(labels),
        **share("accuracy", predicted == labels),
        **_balanced_accuracy(np.round(ratios["recall"] * examples), examples),
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
            for true, guess, count in confused_pairs(matrix)[:CONFUSIONS]
        ],
    }
    own = classes if data_classes is None else np.unique(data_classes)
    names = class_names
    if len(own) < len(classes):
        summary |= _beside_other_classes(ranking, class_names, own)
        # The place of each class in the matrix, the last one for all others.
        places = np.full(len(classes), len(own))
        places[own] = np.arange(len(own))
        names = [*(class_names[place] for place in own), OTHER_CLASSES]
        matrix = _confusion_matrix(places[labels], places[predicted], len(names))
    summary |= {"matrix_classes": names, "confusion_matrix": matrix}
    summary["calibration"] = calibration(ranking)
    if len(class_names) > 5:
        summary.update(share("top5_accuracy", ranking.ahead < 5))
    return summary


def _beside_other_classes(ranking, class_names, own):
    """Returns what a model of more classes than the data set's answers among these."""
    labels = ranking.labels
    others = ranking.predicted[~np.isin(ranking.predicted, own)]
    places, counts = np.unique(others, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:CONFUSIONS]
    return {
        **share("accuracy_among_data_classes", ranking.among == labels),
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


def _confusion_matrix(labels, predicted, classes):
    from scipy.sparse import coo_array

    # `coo_array` sums up what is at one place.
    counted = (np.ones(len(labels), np.int64), (labels, predicted))
    return coo_array(counted, (classes, classes)).tocsr()


def share(name: str, hits: np.ndarray) -> dict[str, float]:
    """Returns the share of hits, an array of bool, with its 95% interval."""
    low, high = interval(hits.sum(), len(hits))
    return {name: float(hits.mean()), f"{name}_low": low, f"{name}_high": high}


def confused_pairs(matrix: "csr_array") -> list[list[int]]:
    """Returns [true, predicted, count] of mistakes in a matrix, by frequency."""
    counts = matrix.tocoo()
    order = np.lexsort((counts.col, counts.row, -counts.data))
    pairs = np.stack((counts.row, counts.col, counts.data), axis=1)[order]
    return pairs[pairs[:, 0] != pairs[:, 1]].tolist()


def interval(correct: int, examples: int) -> tuple[float, float]:
    """Returns the 95% interval (low, high) of a counted share, Wilson's of 1927."""
    low, high = _intervals(np.array([correct]), np.array([examples]))
    return float(low[0]), float(high[0])


def _intervals(correct, examples):
    shares = correct / examples
    centres = shares + Z95**2 / (2 * examples)
    spreads = shares * (1 - shares) / examples + (Z95 / (2 * examples)) ** 2
    spreads = Z95 * np.sqrt(spreads)
    scale = 1 + Z95**2 / examples
    # Rounding may leave the bounds of 0 and of 1 a little outside.
    return (np.clip((centres + sign * spreads) / scale, 0, 1) for sign in (-1, 1))


def _balanced_accuracy(hits, examples):
    """Returns the mean recall of the classes that have examples, with its 95% interval.

    The interval is made from Wilson's of each class: Zou, Huang and Zhang, A note on
    confidence interval estimation for a linear function of binomial proportions,
    Computational Statistics and Data Analysis 53 (2009).
    """
    hits, examples = hits[examples > 0], examples[examples > 0]
    recalls = hits / examples
    low, high = _intervals(hits, examples)
    mean = recalls.mean()
    down, up = (
        np.sqrt(np.sum((recalls - bounds) ** 2)) / len(recalls)
        for bounds in (low, high)
    )
    return {
        "balanced_accuracy": float(mean),
        "balanced_accuracy_low": float(mean - down),
        "balanced_accuracy_high": float(mean + up),
    }


def calibration(ranking: Ranked) -> dict:
    """Returns the `reliability` of a `train.scoring.ranked.Ranked`.

    The confidence is the largest probability.
    """
    correct = ranking.predicted == ranking.labels
    return reliability(ranking.confidence, correct)


def reliability(confidence: np.ndarray, correct: np.ndarray) -> dict:
    """Returns the expected calibration error and the reliability diagram's bins.

    `confidence` are probabilities (answers,), and bools `correct` say which are of what
    is so. Bins are of equal width, (0, 1/15], (1/15, 2/15] and so on; the error is the
    mean over the answers of |accuracy - mean confidence| of their bin: Guo et al., On
    Calibration of Modern Neural Networks (2017), equation 3. An empty bin has
    None for confidence and accuracy. On few examples accuracies of bins differ from
    confidences that are right, too: "error_of_exact" is the mean error of these.
    """
    confidence = confidence.astype(np.float64)
    edges = np.linspace(0, 1, CALIBRATION_BINS + 1)
    places = np.digitize(confidence, edges[1:-1], right=True)
    counts, confidences, accuracies = (
        np.bincount(places, weights, minlength=CALIBRATION_BINS)
        for weights in (None, confidence, correct)
    )
    gaps = np.abs(accuracies - confidences)
    # Hits of a bin are about normal, whose mean distance is 0.8 of its deviation.
    variances = np.bincount(places, confidence * (1 - confidence))
    by_chance = np.sqrt(2 / np.pi * np.maximum(variances, 0))
    return {
        "error": float(gaps.sum() / len(confidence)),
        "error_of_exact": float(by_chance.sum() / len(confidence)),
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
