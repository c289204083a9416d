"""Label errors: images whose labels a classifier contradicts with confidence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from train.scoring import probes
from train.scoring.ranked import Ranked, ranked
from train.scoring.temperature import temperature
from zoo.network.head import softmax

# With fewer examples the mean probability of a class is too uncertain.
LEAST_EXAMPLES = 5
# The probe that judges all photos of a data set, and the part of the thresholds that is
# enough in each round: the second one knows better.
_PROBE, _PARTS = "lda", (1.0, 0.9)


@dataclass(frozen=True)
class LabelErrors:
    """Images whose labels may be wrong, the clearest disagreement first.

    Arrays (errors,): the places of the images in the split, the class that each may be
    instead, its probability, and that from which on the model is as sure of the class
    as on average of images with its label.
    """

    places: np.ndarray
    suggested: np.ndarray
    probabilities: np.ndarray
    thresholds: np.ndarray


def label_errors(
    answers: Ranked, classes: int, is_new: np.ndarray, part: float = 1.0
) -> LabelErrors | None:
    """Finds `LabelErrors` by confident learning, None where no class can be judged.

    A class's threshold is the mean of its probability over the images labelled so. An
    image is counted for the most probable of the classes whose threshold it reaches
    (of the ten most probable, which alone are kept); if that is not its label, and the
    model's answer is not its label either, the label is suspected. Only images that the
    model was not trained on count: `is_new`, bools (images,). Classes of fewer than
    `LEAST_EXAMPLES` of them are not suggested. With a `part` below 1, that part of each
    threshold is enough: more labels are suspected.

    Source: Northcutt, Jiang and Chuang, Confident Learning (2021), section 3.1,
    https://arxiv.org/abs/1911.00068.
    """
    labels = answers.labels
    counts = np.bincount(labels[is_new], minlength=classes)
    sums = np.bincount(labels[is_new], answers.of_truth[is_new], minlength=classes)
    is_judged = counts >= LEAST_EXAMPLES
    if np.count_nonzero(is_judged) < 2:
        return None
    thresholds = np.full(classes, np.inf)
    thresholds[is_judged] = part * sums[is_judged] / counts[is_judged]
    is_reached = answers.probabilities >= thresholds[answers.classes]
    # Take the first one, as the most probable come first.
    first = np.take_along_axis(
        answers.classes, is_reached.argmax(axis=1)[:, None], axis=1
    )[:, 0]
    suggested = np.where(is_reached.any(axis=1), first, labels)
    places = np.flatnonzero(
        (suggested != labels) & (answers.predicted != labels) & is_new
    )
    suggested = suggested[places]
    probabilities = answers.probability_of(places, suggested)
    order = np.argsort(answers.of_truth[places] - probabilities, kind="stable")
    suggested = suggested[order]
    return LabelErrors(
        places[order], suggested, probabilities[order], thresholds[suggested]
    )


def by_cross_validation(
    features: ArrayLike,
    labels: ArrayLike,
    classes: int,
    groups: ArrayLike | None = None,
) -> LabelErrors | None:
    """Finds `LabelErrors` among all images, None where no class can be judged.

    Each image is judged by a probe that was fitted on others. Wrong labels blur what a
    probe learns: in a second round the probes are fitted without the images that the
    first one suspects, and judge all again. Features are (images, size), labels
    integers (images,); `groups` are those of `train.data.copies`: a copy of an image
    would tell its label.
    """
    features, labels = np.asarray(features), np.asarray(labels)
    if np.count_nonzero(np.bincount(labels) >= LEAST_EXAMPLES) < 2:
        return None
    every = np.ones(len(labels), bool)
    is_trusted, errors = every, None
    for part in _PARTS:
        logits = probes.out_of_fold_logits(
            _PROBE, features, labels, classes, groups=groups, fitted_on=is_trusted
        )
        own_groups = None if groups is None else np.asarray(groups)[is_trusted]
        scale = temperature(logits[is_trusted], labels[is_trusted], own_groups)
        answers = ranked(labels, softmax(logits / scale))
        errors = label_errors(answers, classes, every, part)
        is_trusted = ~np.isin(np.arange(len(labels)), errors.places)
    return errors
