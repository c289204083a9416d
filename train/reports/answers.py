"""The answers of a classifier to each image, and the tables of them."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from train.common import tables
from train.scoring.label_errors import LabelErrors
from train.scoring.ranked import Ranked

if TYPE_CHECKING:
    from train.data.sources.splits import Split


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

    def texts(place: int, guess: int, *cells: Any) -> tuple:
        truth = class_names[answers.labels[place]]
        return names[place], truth, class_names[guess], *cells

    tables.write(path, ("file", "truth", *header), (texts(*row) for row in rows))
