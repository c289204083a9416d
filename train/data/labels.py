"""Labels of photos: read from texts in a table, and counted so that parts are alike."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.data.checking import DataError
from train.data.registry import PARTS

# Several labels of a photo are in one text with this between them.
SEPARATOR = "|"
# A column of a label has one of these.
INDICATED = {"0": False, "1": True, "0.0": False, "1.0": True}
# Numbers are held out evenly over so many ranges of equally many photos.
_RANGES = 10


class Cell(NamedTuple):
    """The text of a label in a table, and where it is, for messages."""

    place: str
    label: str


Parts = dict[str, Sequence[Cell]]


class Labels(NamedTuple):
    """The labels of a table: names, values by the names of parts, and what is unused.

    `names` are of the classes or numbers; `unused` says in words which labels nothing
    to train on has.
    """

    names: tuple[str, ...]
    values: dict[str, np.ndarray]
    unused: tuple[str, ...] = ()


def of_classes(parts: Parts) -> Labels:
    """Returns the sorted names of classes, and their numbers for the rows of each part.

    `parts` are rows with a place and a label by the names of parts, or "all" of them.
    The numbers are int32 (rows,). Names that are numbers are sorted as such. Raises a
    `DataError` for a class that no row to train on has.

    Example:
        >>> labels = of_classes({"all": [Cell("1", "dog"), Cell("2", "cat")]})
        >>> labels.names, labels.values["all"]
        (('cat', 'dog'), array([1, 0], dtype=int32))
    """
    names = sorted_names({row.label for row in trained_on(parts)})
    numbers = {name: number for number, name in enumerate(names)}
    for row in held_out(parts):
        if row.label not in numbers:
            raise DataError(
                f'{row.place}: no image for training has the label "{row.label}"; add '
                "some, or remove this row"
            )
    labels = {
        part: np.array([numbers[row.label] for row in rows], np.int32)
        for part, rows in parts.items()
    }
    return Labels(names, labels)


def trained_on(parts: Parts) -> Sequence[Cell]:
    """Returns the rows of the part to train on, or all where there are no parts."""
    return parts.get("train") or [row for rows in parts.values() for row in rows]


def held_out(parts: Parts) -> list[Cell]:
    """Returns the rows of the other parts."""
    return [row for part in PARTS[1:] for row in parts.get(part, ())]


def sorted_names(labels: set[str]) -> tuple[str, ...]:
    """Returns names of classes in order, numbers by their value."""
    # Otherwise 10 comes before 2.
    is_number = all(re.fullmatch(r"0|[1-9][0-9]*", label) for label in labels)
    return tuple(sorted(labels, key=lambda one: (is_number and len(one), one)))


def indicators_in(header: Sequence[str], places: dict[str, int]) -> dict[str, int]:
    """Returns the numbers of the columns of labels by their names.

    They are all that `places` does not have, where it has no column of labels.
    """
    if "label" in places:
        return {}
    return {
        name: number
        for number, name in enumerate(header)
        if number not in places.values()
    }


def strata(labels: np.ndarray) -> np.ndarray:
    """Returns a number for each photo: parts of a data set get their share of each.

    Labels are integers (photos,), classes, which these numbers are; bools or 0 and 1
    (photos, classes), of which the rarest of a photo counts; numbers, floats
    (photos, 1), which are cut into ranges; or something else, which is all alike.

    Example:
        >>> strata(np.array([[1, 0], [1, 1], [1, 0]], np.int8)).tolist()
        [0, 1, 0]
    """
    labels = np.asarray(labels)
    if labels.ndim == 1 and labels.dtype.kind in "iu":
        return labels
    if labels.ndim == 2 and labels.dtype.kind == "f":
        order = np.argsort(np.argsort(labels[:, 0], kind="stable"), kind="stable")
        return order * _RANGES // max(len(labels), 1)
    if labels.ndim == 2:
        # One more for photos without any label.
        table = np.pad(labels.astype(bool), ((0, 0), (0, 1)))
        table[:, -1] = ~table.any(axis=1)
        counts = table.sum(axis=0)
        return np.where(table, counts, len(labels) + 1).argmin(axis=1)
    return np.zeros(len(labels), np.int64)


def counts(labels: np.ndarray, classes: int) -> np.ndarray:
    """Counts the photos of each class or label: integers (classes,).

    Labels are as in `strata`.
    """
    if labels.ndim > 1:
        return labels.sum(axis=0, dtype=int)
    return np.bincount(labels, minlength=classes)
