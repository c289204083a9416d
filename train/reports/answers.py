"""The answers of a classifier to each image: mistakes, and suspected label errors."""

import csv
import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train.common.files import whole_file
from train.scoring.ranked import Ranked
from zoo.common.safe_text import plain_cell

if TYPE_CHECKING:
    from train.data.sources.splits import Split

# With fewer examples the mean probability of a class is too uncertain.
LEAST_EXAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class Answers(Ranked):
    """The answers of a classifier to all images of a `train.data` split."""

    split: "Split"
    class_names: tuple[str, ...]

    @property
    def is_mistake(self) -> np.ndarray:
        """Bools (images,): whether the answer is not the true class."""
        return self.predicted != self.labels

    @property
    def margin(self) -> np.ndarray:
        """Floats (images,), the probability of the answer minus the next one."""
        # A model of one class has no second one.
        second = np.pad(self.probabilities, ((0, 0), (0, 1)))[:, 1]
        return self.confidence - second

    @functools.cached_property
    def order(self) -> np.ndarray:
        """Integers (images,), places of the images in the split.

        Mistakes, the most confident first, then correct answers, the least certain
        first.
        """
        certainty = np.where(self.is_mistake, -self.confidence, self.confidence)
        places = np.arange(len(self.labels))
        return np.lexsort((places, certainty, ~self.is_mistake))

    @property
    def mistakes(self) -> np.ndarray:
        """The part of `order` that has the mistakes."""
        return self.order[: np.count_nonzero(self.is_mistake)]

    @property
    def correct(self) -> np.ndarray:
        """The part of `order` that has the correct answers."""
        return self.order[np.count_nonzero(self.is_mistake) :]

    def probability_of(
        self, places: int | np.ndarray, classes: int | np.ndarray
    ) -> np.ndarray:
        """Returns the probabilities of some classes of images, 0 if they are not kept.

        Both are integers, or integers (n,).
        """
        is_it = self.classes[places] == np.expand_dims(classes, -1)
        return (is_it * self.probabilities[places]).sum(axis=-1)


def answers_of(split: "Split", ranking: Ranked, class_names: Iterable[str]) -> Answers:
    """Returns the `Answers` to a split.

    Example:
        >>> import numpy as np
        >>> from train.scoring.ranked import ranked
        >>> probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
        >>> ranking = ranked(np.array([0, 1, 0]), probabilities)
        >>> answers_of(None, ranking, "ab").order
        array([2, 1, 0])
    """
    names = tuple(map(str, class_names))
    return Answers(**vars(ranking), split=split, class_names=names)


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


def label_errors(answers: Answers, is_new: np.ndarray) -> LabelErrors | None:
    """Finds `LabelErrors` by confident learning, None where no class can be judged.

    A class's threshold is the mean of its probability over the images labelled so. An
    image is counted for the most probable of the classes whose threshold it reaches
    (of the ten most probable, which alone are kept); if that is not its label, and the
    model's answer is not its label either, the label is suspected. Only images that the
    model was not trained on count: `is_new`, bools (images,). Classes of fewer than
    `LEAST_EXAMPLES` of them are not suggested.

    Source: Northcutt, Jiang and Chuang, Confident Learning (2021), section 3.1,
    https://arxiv.org/abs/1911.00068.
    """
    labels, classes = answers.labels, len(answers.class_names)
    counts = np.bincount(labels[is_new], minlength=classes)
    sums = np.bincount(labels[is_new], answers.of_truth[is_new], minlength=classes)
    is_judged = counts >= LEAST_EXAMPLES
    if np.count_nonzero(is_judged) < 2:
        return None
    thresholds = np.full(classes, np.inf)
    thresholds[is_judged] = sums[is_judged] / counts[is_judged]
    is_reached = answers.probabilities >= thresholds[answers.classes]
    # Take the first one, as the most probable come first.
    first = np.take_along_axis(
        answers.classes, is_reached.argmax(axis=1)[:, None], axis=1
    )[:, 0]
    suggested = np.where(is_reached.any(axis=1), first, labels)
    places = np.flatnonzero((suggested != labels) & answers.is_mistake & is_new)
    suggested = suggested[places]
    probabilities = answers.probability_of(places, suggested)
    order = np.argsort(answers.of_truth[places] - probabilities, kind="stable")
    suggested = suggested[order]
    return LabelErrors(
        places[order], suggested, probabilities[order], thresholds[suggested]
    )


def write_mistakes(path: Path, answers: Answers, names: Sequence[str]) -> None:
    """Writes every image with its answer as CSV; `names` are those of its images."""
    order = answers.order
    numbers = (answers.confidence, answers.of_truth, answers.margin)
    columns = (map(_text, values[order]) for values in numbers)
    correct = (
        "no" if is_mistake else "yes" for is_mistake in answers.is_mistake[order]
    )
    rows = zip(order, answers.predicted[order], *columns, correct, strict=True)
    header = ("answer", "probability", "probability_of_truth", "margin", "correct")
    _write_csv(path, answers, names, header, rows)


def write_label_errors(
    path: Path, answers: Answers, errors: LabelErrors, names: Sequence[str]
) -> None:
    """Writes `LabelErrors` as CSV; `names` are those of all images of the answers."""
    of_truth = answers.of_truth[errors.places]
    numbers = (errors.probabilities, of_truth, errors.thresholds)
    columns = (map(_text, values) for values in numbers)
    rows = zip(errors.places, errors.suggested, *columns, strict=True)
    header = ("suggested", "probability", "probability_of_truth", "threshold")
    _write_csv(path, answers, names, header, rows)


def _text(number):
    return f"{number:.6g}"


def _write_csv(path, answers, names, header, rows):
    """Writes the rows, each the place of an image, a class and other cells."""
    class_names = answers.class_names
    with (
        whole_file(path) as temporary,
        # Bytes of a file name that are not UTF-8 are written as \\udcff.
        temporary.open(
            "w", encoding="utf-8", errors="backslashreplace", newline=""
        ) as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("file", "truth", *header))
        for place, guess, *cells in rows:
            texts = names[place], class_names[answers.labels[place]], class_names[guess]
            writer.writerow((*map(plain_cell, texts), *cells))
