"""Splits of undecoded examples: what every data source gives to the trainer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.common.errors import RunError
from train.data.sources.pieces import Pieces, some
from train.data.transforms.decoding import ChooseWindow, decode_image
from zoo.text import is_safe, printable

_SHOWN_NAMES = 10


class DataError(RunError):
    """The data cannot be used; the message says what, where and what to do."""


@dataclass(frozen=True)
class Split:
    """One split of a data set, undecoded and in a fixed order.

    Attributes:
        name: The split as a person writes it, "cifar100 train[:49000]".
        num_examples: How many examples `records` yields.
        records: Returns a `tf.data.Dataset` of `(record, label)` in the same order
            every time; `label` is an integer scalar.
        read: Turns one record tensor into an encoded image, a scalar string, or into
            uint8 pixels, `(height, width, 1)` or `(height, width, 3)`; works inside
            `tf.data` maps.
        locate: Names a record for a person, from its index and its NumPy value.
        known_labels: The labels in the order of `records`, where they are known
            without reading these, or `labels` has read them; None otherwise.
        arrays: The records and the labels as arrays, where they are in memory; None
            otherwise.
        pieces: Returns parts of `records` that can be read in any order; None where
            there is one order only.
        honour_exif: Whether photos are turned as their EXIF says.
    """

    name: str
    num_examples: int
    records: Callable[[], tf.data.Dataset]
    read: Callable[[tf.Tensor], tf.Tensor]
    locate: Callable[[int, Any], str]
    known_labels: np.ndarray | None = None
    arrays: tuple[np.ndarray, np.ndarray] | None = None
    pieces: Callable[[], Pieces] | None = None
    honour_exif: bool = True

    def labels(self) -> np.ndarray:
        """Returns the label of every example; no image is decoded.

        Where they are not known, all records are read, once.

        Returns:
            Integers `(num_examples,)`, in the order of `records`.
        """
        # A copy by `dataclasses.replace` may have fewer examples.
        known = self.known_labels
        if known is not None and len(known) == self.num_examples:
            return known
        batches = self.records().map(lambda _, label: label).batch(4096)
        labels = np.concatenate([np.zeros(0, np.int64), *batches.as_numpy_iterator()])
        object.__setattr__(self, "known_labels", labels)
        return labels

    def class_counts(self, classes: int) -> np.ndarray:
        """Counts the examples of each class; no image is decoded.

        Args:
            classes: How many classes the data set has.

        Returns:
            Integers `(classes,)`.
        """
        return np.bincount(self.labels(), minlength=classes)

    def decode(
        self, record: tf.Tensor, choose_window: ChooseWindow | None = None
    ) -> tf.Tensor:
        """Turns one record tensor into a uint8 `(height, width, 3)` image.

        Args:
            record: Of `records`.
            choose_window: None for the whole image; see `decode_image`.
        """
        return decode_image(
            self.read(record), choose_window, honour_exif=self.honour_exif
        )


@dataclass(frozen=True)
class Source:
    """A data set ready to train on.

    Attributes:
        name: The name that it was loaded by.
        class_names: The name of each label, in label order.
        train: The examples to learn from.
        validation: The part of the training set held out, or None.
        test: The examples to report on.
        skipped: Names the images of all splits that were left out because they
            cannot be read.
        ignored: Names what else is in the folders of the data, and is not used.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split
    validation: Split | None
    test: Split
    skipped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def in_memory(
    name: str,
    records: np.ndarray,
    labels: np.ndarray,
    read: Callable[[tf.Tensor], tf.Tensor],
    locate: Callable[[int, Any], str],
) -> Split:
    """Makes a `Split` of records that are all in memory, such as paths."""
    return Split(
        name=name,
        num_examples=len(records),
        records=lambda: tf.data.Dataset.from_tensor_slices((records, labels)),
        read=read,
        locate=locate,
        known_labels=labels,
        arrays=(records, labels),
    )


def pick(split: Split, indices: Sequence[int]) -> Split:
    """Returns a split of the examples at some indices, distinct and ascending."""
    indices = np.asarray(indices, np.int64)

    def locate(index, record):
        return split.locate(int(indices[index]), record)

    if split.arrays is not None:
        records, labels = (values[indices] for values in split.arrays)
        part = in_memory(split.name, records, labels, split.read, locate)
        return replace(part, honour_exif=split.honour_exif)
    picked = np.zeros(split.num_examples, bool)
    picked[indices] = True
    known = split.known_labels

    def records():
        return (
            split.records()
            .enumerate()
            .filter(lambda index, _: tf.gather(picked, index))
            .map(lambda _, example: example)
        )

    return replace(
        split,
        num_examples=len(indices),
        records=records,
        locate=locate,
        known_labels=None if known is None else split.labels()[picked],
        pieces=split.pieces and (lambda: some(split.pieces(), picked)),
    )


def check_name(name: str, place: str) -> None:
    """Raises `DataError` for a name at some place that lists of names could not hold.

    Such names have line breaks or other control characters, such as those that reorder
    the text after them, or are not UTF-8.
    """
    # Surrogates stand for bytes that are not UTF-8.
    if not is_safe(name):
        raise DataError(
            f"{printable(place)} has line breaks or other control characters in its "
            "name, or is not UTF-8: rename it"
        )


def named(names: Sequence[str]) -> str:
    """Joins the first ten names and counts the others.

    Example:

    >>> named(["1.jpg", "2.jpg"]), named([str(i) for i in range(12)])
    ('1.jpg, 2.jpg', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    more = len(names) - _SHOWN_NAMES
    shown = ", ".join(names[:_SHOWN_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown
