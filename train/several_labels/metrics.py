"""Metrics of several labels per photo: average precision, F1, thresholds, mistakes.

Scores are probabilities, floats (photos, classes), and the truth is bools of the same
shape. A class is answered where its score is at least its threshold.
"""

import dataclasses

import numpy as np

from train.scoring.bootstrap import Estimate, estimates, mean_of_finite, ratio
from train.scoring.metrics import reliability

# The best threshold of fewer positives is mostly chance.
FEWEST_POSITIVES = 10


@dataclasses.dataclass(frozen=True)
class Thresholds:
    """From which probability each class is answered.

    Attributes:
        values: float64 (classes,).
        pooled: the threshold of all classes together.
        is_pooled: bools (classes,), the classes whose threshold is `pooled`, because
            fewer than `FEWEST_POSITIVES` photos have them.
    """

    values: np.ndarray
    pooled: float
    is_pooled: np.ndarray


@dataclasses.dataclass(frozen=True)
class LabelMetrics:
    """How well photos' labels are answered; arrays have one value for each class.

    Means over classes ("macro") leave out those that no photo has; "micro" takes the
    labels of all classes together. Intervals are of 95%, over photos.

    Attributes:
        photos: how many photos were answered.
        positives: integers, how many photos have the class.
        average_precision: floats, NaN for a class that no photo has.
        map_macro: mean of `average_precision` with its interval.
        map_micro: the average precision of all labels together.
        f1: floats, 2 hits / (2 hits + missed + wrong), 0 without any of them.
        f1_macro, f1_micro: with their intervals.
        subset_accuracy: share of photos whose labels are all answered right.
        hamming_loss: share of answers, one per photo and class, that are not right.
        missed: integers, photos that have the class without being answered so.
        wrong: integers, photos that are answered so without having the class.
        calibration: the error and bins of `train.scoring.metrics.reliability`, of the
            probabilities of all labels.
        together: integers (classes, classes), the photos that have both classes.
    """

    photos: int
    positives: np.ndarray
    average_precision: np.ndarray
    map_macro: Estimate
    map_micro: float
    f1: np.ndarray
    f1_macro: Estimate
    f1_micro: Estimate
    subset_accuracy: float
    hamming_loss: float
    missed: np.ndarray
    wrong: np.ndarray
    calibration: dict
    together: np.ndarray


def label_metrics(
    scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray | float = 0.5
) -> LabelMetrics:
    """Returns the metrics of scores, with thresholds from `best_thresholds`.

    Example:
        >>> scores = np.array([[0.9, 0.2], [0.8, 0.7], [0.1, 0.6]])
        >>> truth = np.array([[True, False], [True, True], [False, False]])
        >>> found = label_metrics(scores, truth)
        >>> found.map_macro.value, found.f1.round(2).tolist(), found.wrong.tolist()
        (1.0, [1.0, 0.67], [0, 1])
    """
    truth = np.asarray(truth, bool)
    scores = _checked(scores, truth)
    photos, classes = truth.shape
    answers = scores >= thresholds
    hits, missed, wrong = truth & answers, truth & ~answers, ~truth & answers
    orders = [_Order(scores[:, place], truth[:, place]) for place in range(classes)]

    def mean_precision(counts):
        found = [order.average_precision(counts) for order in orders]
        # A class that no photo has, or none of those drawn, is left out.
        return mean_of_finite(np.stack(found, axis=1))[:, None]

    def f1_scores(counts):
        # Products of floats are far faster, and counts are exact in float64.
        counts = counts.astype(np.float64)
        *parts, positives = (
            counts @ one.astype(np.float64) for one in (hits, missed | wrong, truth)
        )
        macro = np.where(positives > 0, f1_of(*parts), np.nan)
        micro = f1_of(*(part.sum(axis=1) for part in parts))
        return np.stack((mean_of_finite(macro), micro), axis=1)

    (map_macro,) = estimates(mean_precision, photos, classes)
    f1_macro, f1_micro = estimates(f1_scores, photos, classes)
    return LabelMetrics(
        photos=photos,
        positives=truth.sum(axis=0),
        average_precision=average_precisions(scores, truth),
        map_macro=map_macro,
        map_micro=float(
            average_precisions(scores.reshape(-1, 1), truth.reshape(-1, 1))[0]
        ),
        f1=f1_of(hits.sum(axis=0), (missed | wrong).sum(axis=0)),
        f1_macro=f1_macro,
        f1_micro=f1_micro,
        subset_accuracy=float((answers == truth).all(axis=1).mean()),
        hamming_loss=float((answers != truth).mean()),
        missed=missed.sum(axis=0),
        wrong=wrong.sum(axis=0),
        calibration=reliability(scores.ravel(), truth.ravel()),
        together=truth.T.astype(np.int64) @ truth,
    )


def average_precisions(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Returns the average precision of each class, float64 (classes,).

    That is the mean over the photos that have the class of the precision among all with
    a score at least as high, as in scikit-learn; NaN for a class that no photo has.

    Example:
        >>> truth = np.array([[True], [False], [True]])
        >>> average_precisions(np.array([[0.9], [0.8], [0.7]]), truth).round(3).tolist()
        [0.833]
    """
    counts = np.ones((1, len(truth)), np.int32)
    orders = map(_Order, np.transpose(scores), np.transpose(truth))
    return np.array([order.average_precision(counts)[0] for order in orders])


class _Order:
    """The photos of a class by score, which all resamples share."""

    def __init__(self, scores, truth):
        self.order = np.argsort(-scores, kind="stable")
        ordered = scores[self.order]
        self.positives = truth[self.order].nonzero()[0]
        # The last photo with the score of each positive one.
        ends = np.append(ordered[1:] != ordered[:-1], True).nonzero()[0]
        self.ends = ends[np.searchsorted(ends, self.positives)]

    def average_precision(self, counts):
        """Returns float64 (resamples,) of how many times each photo counts."""
        counts = counts[:, self.order]
        answered = np.cumsum(counts, axis=1, dtype=np.float64)[:, self.ends]
        own = counts[:, self.positives]
        # Equal scores are answered together, with all positives among them.
        last = np.searchsorted(self.positives, self.ends, side="right") - 1
        hits = np.cumsum(own, axis=1, dtype=np.float64)[:, last]
        precisions = hits / np.maximum(answered, 1)
        return ratio((own * precisions).sum(axis=1), own.sum(axis=1))


def best_thresholds(scores: np.ndarray, truth: np.ndarray) -> Thresholds:
    """Returns the thresholds with the best F1 of each class, for validation photos.

    A threshold lies between two scores. A class that fewer than `FEWEST_POSITIVES`
    photos have takes the one with the best micro F1 of all classes together.

    Example:
        >>> scores = np.linspace(0, 1, 30)[:, None]
        >>> best_thresholds(scores, scores > 0.6).values.round(2).tolist()
        [0.6]
    """
    truth = np.asarray(truth, bool)
    scores = _checked(scores, truth)
    pooled = _best_threshold(scores.ravel(), truth.ravel())
    is_pooled = truth.sum(axis=0) < FEWEST_POSITIVES
    values = np.full(len(is_pooled), pooled)
    for place in np.flatnonzero(~is_pooled):
        values[place] = _best_threshold(scores[:, place], truth[:, place])
    return Thresholds(values, pooled, is_pooled)


def _best_threshold(scores, truth):
    if not truth.any():
        return 0.5
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order].astype(np.float64)
    ends = np.append(ordered[1:] != ordered[:-1], True).nonzero()[0]
    hits = np.cumsum(truth[order])[ends]
    best = f1_of(hits, ends + 1 + truth.sum() - 2 * hits).argmax()
    score = ordered[ends[best]]
    below = ordered[ends[best + 1]] if best + 1 < len(ends) else score
    return float((score + below) / 2)


def f1_of(hits: np.ndarray, mistakes: np.ndarray) -> np.ndarray:
    """Returns F1 of counts of hits, and of missed and wrong answers together."""
    return 2 * hits / np.maximum(2 * hits + mistakes, 1)


def mistakes(
    scores: np.ndarray, truth: np.ndarray, thresholds: np.ndarray | float = 0.5
) -> np.ndarray:
    """Returns the missed and the wrong labels, those with the surest answers first.

    They are integers (mistakes, 2), a photo and a class each: missed where the truth
    has it. The surest answers are the furthest from the truth; labels that the data
    have wrong are often among them.

    Example:
        >>> scores = np.array([[0.9, 0.2], [0.3, 0.6]])
        >>> mistakes(scores, np.array([[False, False], [True, False]])).tolist()
        [[0, 0], [1, 0], [1, 1]]
    """
    truth = np.asarray(truth, bool)
    scores = _checked(scores, truth)
    places = np.argwhere((scores >= thresholds) != truth)
    distances = np.abs(scores - truth)[tuple(places.T)]
    return places[np.argsort(-distances, kind="stable")]


def _checked(scores, truth):
    scores = np.asarray(scores)
    if scores.ndim != 2 or scores.shape != truth.shape or not scores.size:
        raise ValueError(
            "scores and truth must both have the shape (photos, classes), at least one "
            f"each, got {scores.shape} and {truth.shape}."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            f"{(~np.isfinite(scores)).sum()} scores are not finite: the model computes "
            "no probabilities for some photos."
        )
    return scores
