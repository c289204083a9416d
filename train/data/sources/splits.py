"""What every data set looks like to the trainer: splits of undecoded examples."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.common.errors import RunError
from train.common.progress import progress_bar
from train.data.sources.pieces import Pieces, some
from train.data.transforms.decoding import ChooseWindow, decode_image
from zoo.text import is_safe, printable

HOLD_OUT_SEED = 0
NAMED = 10
UNWATCHED = 5_000


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
        """Finds the label of every example; no image is decoded.

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
        name: What the user asked for.
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
    """Makes a split of records that are all in memory, such as paths.

    Args:
        name: As in `Split`.
        records: Of the examples.
        labels: Their integer labels.
        read: As in `Split`.
        locate: As in `Split`.

    Returns:
        The split.
    """
    return Split(
        name=name,
        num_examples=len(records),
        records=lambda: tf.data.Dataset.from_tensor_slices((records, labels)),
        read=read,
        locate=locate,
        known_labels=labels,
        arrays=(records, labels),
    )


def hold_out(labels: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides examples in two parts with the same mix of classes, always alike.

    The examples are shuffled with a fixed seed and sorted by class, then evenly
    spaced ones are held out, so every class gives its share to within one example.

    Args:
        labels: One integer label an example.
        count: How many examples to hold out, at most `len(labels)`.

    Returns:
        The indices kept and the indices held out, both ascending.
    """
    labels = np.asarray(labels)
    # RandomState because NumPy keeps its stream the same in every version.
    shuffled = np.random.RandomState(HOLD_OUT_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    spaced = (2 * np.arange(count) + 1) * len(labels) // (2 * max(count, 1))
    held = np.sort(by_class[spaced])
    return np.setdiff1d(np.arange(len(labels)), held), held


def validation_size(name: str, num_examples: int, fraction: float) -> int:
    """Counts the examples that a fraction of a training set holds out.

    Args:
        name: The training split, for the error message.
        num_examples: How many examples it has.
        fraction: The part to hold out, 0 for none.

    Returns:
        The number of examples, 0 exactly when `fraction` is 0.

    Raises:
        DataError: when the fraction is out of range or leaves a part empty.
    """
    count = round(num_examples * fraction) if 0 <= fraction < 1 else -1
    if count < 0 or count >= num_examples or (count == 0) != (fraction == 0):
        raise DataError(
            f"validation_fraction={fraction} of the {num_examples} examples of {name} "
            "must leave at least one for validation and one for training: pass a "
            "number in [0, 1), such as 0.02, or 0 for no validation split"
        )
    return count


def divide(
    name: str,
    class_names: Sequence[str],
    parts: Mapping[str, Split],
    validation_fraction: float,
    layout: str,
) -> Source:
    """Makes a source of the parts that the data come in.

    "validation" is the test where there is no other, as in ImageNet. Otherwise it is
    the validation split, and where there is none, that is a fixed part of "train",
    stratified by class.

    Args:
        name: What the user asked for.
        class_names: The name of each label.
        parts: Some of "train", "validation" and "test".
        validation_fraction: The part of train to hold out, 0 for no validation split.
        layout: What the data should look like, for error messages.

    Returns:
        The source.

    Raises:
        DataError: when there is nothing to train or to test on, or when the fraction
            is unusable.
    """
    if "train" not in parts or len(parts) == 1:
        lacking = "test" if "train" in parts else "train"
        raise DataError(f"{name} has nothing for {lacking}: {layout}")
    train = parts["train"]
    if "test" in parts and "validation" in parts:
        validation = parts["validation"] if validation_fraction else None
    else:
        count = validation_size(train.name, train.num_examples, validation_fraction)
        validation = None
        if count:
            kept, held = hold_out(train.labels(), count)
            validation = replace(
                pick(train, held), name=f"the validation part of {train.name}"
            )
            train = pick(train, kept)
    return Source(
        name=name,
        class_names=tuple(class_names),
        train=train,
        validation=validation,
        test=parts.get("test") or parts["validation"],
    )


def pick(split: Split, indices: Sequence[int]) -> Split:
    """Picks a few examples of a split, without decoding the others.

    Args:
        split: The split.
        indices: Which examples, distinct and ascending.

    Returns:
        A split of these examples.
    """
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


def find_corrupt(split: Split) -> list[str]:
    """Names every record that cannot be read and decoded, by decoding them all.

    Args:
        split: The split to go through.

    Returns:
        One description a bad record: a file path, or the example's number.

    Raises:
        DataError: when the files that hold the records are damaged.
    """
    return [name for _, name in _corrupt(split)]


def without_corrupt(source: Source) -> Source:
    """Leaves out what cannot be decoded, by decoding every image once.

    What is left keeps its order and its split.

    Args:
        source: The data set.

    Returns:
        The source without these images, which its `skipped` names.

    Raises:
        DataError: when nothing of a split is left.
    """
    parts = {}
    skipped = []
    for part in ("train", "validation", "test"):
        split = getattr(source, part)
        if split is None:
            continue
        corrupt = _corrupt(split)
        if len(corrupt) == split.num_examples:
            raise DataError(
                f"none of the {split.num_examples} images of {split.name} can be "
                f"decoded: {named([name for _, name in corrupt])}; save them again as "
                "RGB JPEG or PNG"
            )
        if corrupt:
            rest = np.delete(np.arange(split.num_examples), [i for i, _ in corrupt])
            parts[part] = pick(split, rest)
            skipped += [name for _, name in corrupt]
    return replace(source, **parts, skipped=tuple(skipped))


def check_name(name: str, place: str) -> None:
    """Refuses the name of a class or file that lists of names could not hold.

    Args:
        name: The name.
        place: Where it is, for the error message.

    Raises:
        DataError: it has line breaks or other control characters, such as those that
            reorder the text after them, or is not UTF-8.
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
    more = len(names) - NAMED
    return f"{', '.join(names[:NAMED])}{f' and {more} more' if more > 0 else ''}"


def _corrupt(split):
    """Returns `(index, name)` of every record that cannot be decoded."""
    threads = os.cpu_count()
    options = tf.data.Options()
    options.autotune.enabled = False
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1

    def decode(index, example):
        return index, tf.size(split.decode(example[0]))

    good = (
        split.records()
        .enumerate()
        .map(decode, num_parallel_calls=2 * threads, deterministic=True)
        .ignore_errors()
        .batch(64)
        .with_options(options)
    )
    is_good = np.zeros(split.num_examples, bool)
    bar = progress_bar(
        total=split.num_examples,
        unit="image",
        desc=f"checking {split.name}",
        # Nobody waits long for these.
        disable=split.num_examples < UNWATCHED,
    )
    with bar:
        for indices, _ in good.as_numpy_iterator():
            is_good[indices] = True
            bar.update(len(indices))
    corrupt = np.flatnonzero(~is_good)
    if not corrupt.size:
        return []
    try:
        records = list(pick(split, corrupt).records().as_numpy_iterator())
    except tf.errors.DataLossError as error:
        raise DataError(
            f"the files of {split.name} are damaged ({error.message}): prepare or copy "
            "them again"
        ) from error
    return [
        (int(index), split.locate(int(index), record))
        for index, (record, _) in zip(corrupt, records, strict=True)
    ]
