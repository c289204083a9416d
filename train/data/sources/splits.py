"""Splits of undecoded examples: what every data source gives to the trainer."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.data import labels
from train.data.checking import DataError
from train.data.registry import PARTS
from train.data.sources.record_ranges import RecordFiles
from train.data.transforms.decoding import decode_image
from zoo.common.safe_text import is_safe, printable

CORES = os.cpu_count()


@dataclass(frozen=True)
class Split:
    """One split of a data set, undecoded and in a fixed order.

    Attributes:
        name: The split as a person writes it, "cifar100 train[:49000]".
        num_examples: How many examples `records` yields.
        records: Returns a `tf.data.Dataset` of `(record, label)` in the same order
            every time; `label` is an integer scalar, the number of a class; of several
            labels int8 `(classes,)`, of a number float32 `(1,)`; or the path of a mask.
        read: Turns one record tensor into an encoded image, a scalar string, or into
            uint8 pixels, `(height, width, 1)` or `(height, width, 3)`; works inside
            `tf.data` maps.
        locate: Names an example for a person, from its index in the split.
        known_labels: The labels in the order of `records`, where they are known.
        arrays: The records and the labels as arrays, where they are in memory.
        record_files: Returns the same records as parts of TFRecord files, the same
            object every time; None where they are in no such files.
        honour_exif: Whether photos are turned as their EXIF says.
        bits: How many bits values have in files of 16, see `zoo.photos.decode`.
        hashes: An integer for each example's encoded image, equal where two are; None
            where reading the data has not made any.
        read_mask: Turns a label into class numbers, int32 `(height, width)` of the size
            of its image, `train.data.registry.IGNORED` where a pixel does not count;
            works inside `tf.data` maps. None where labels are no masks.
    """

    name: str
    num_examples: int
    records: Callable[[], tf.data.Dataset]
    read: Callable[[tf.Tensor], tf.Tensor]
    locate: Callable[[int], str]
    known_labels: np.ndarray | None = None
    arrays: tuple[np.ndarray, np.ndarray] | None = None
    record_files: Callable[[], RecordFiles] | None = None
    honour_exif: bool = True
    bits: int | None = None
    hashes: np.ndarray | None = None
    read_mask: Callable[[tf.Tensor], tf.Tensor] | None = None

    def labels(self) -> np.ndarray:
        """Returns the label of every example, in order; no image is decoded."""
        if self.known_labels is None:
            batches = self.records().map(lambda _, label: label).batch(4096)
            parts = [np.zeros(0, np.int64), *batches.as_numpy_iterator()]
            object.__setattr__(self, "known_labels", np.concatenate(parts))
        return self.known_labels

    def names(self) -> list[str]:
        """Names every example for a person, in order, such as files; reads nothing."""
        return list(map(self.locate, range(self.num_examples)))

    def class_counts(self, classes: int) -> np.ndarray:
        """Counts the examples of each class: integers `(classes,)`."""
        return labels.counts(self.labels(), classes)

    def decode(
        self,
        record: tf.Tensor,
        choose_window: Callable[[tf.Tensor], tf.Tensor] | None = None,
        fast: bool = False,
    ) -> tf.Tensor:
        """Turns one record tensor into a uint8 `(height, width, 3)` image.

        `choose_window` turns the image's shape, int32 `(3,)`, into top, left, height
        and width, int32 `(4,)`; None for the whole image. For `fast` see
        `decode_image`.
        """
        are_paths = self.read is tf.io.read_file
        return decode_image(
            self.read(record),
            choose_window,
            honour_exif=self.honour_exif,
            bits=self.bits,
            fast=fast,
            name=record if are_paths else f"A file of {self.name}",
        )


@dataclass(frozen=True)
class Source:
    """A data set ready to train on.

    `validation` is the part of the training set held out, or None. Where the data set
    was not divided, `all` has every example and the three parts are None. `total` is
    the number of examples of the data set, with parts that are not used. `skipped`
    names the images that were left out because they cannot be read; `ignored` what else
    is in the folders of the data, and is not used. `left_out` names the images that the
    user left out, `relabelled` has the new class of those that the user corrected,
    `added` the class of those that the user added. `notes` are sentences on what is no
    error.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split | None = None
    validation: Split | None = None
    test: Split | None = None
    all: Split | None = None
    total: int = 0
    skipped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    relabelled: dict[str, str] = field(default_factory=dict)
    added: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def splits(self) -> dict[str, Split]:
        """Returns the splits that there are, by the names of their fields."""
        parts = {part: getattr(self, part) for part in (*PARTS, "all")}
        return {part: split for part, split in parts.items() if split is not None}


def in_memory(
    name: str,
    records: np.ndarray,
    labels: np.ndarray,
    read: Callable[[tf.Tensor], tf.Tensor],
    locate: Callable[[int], str],
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


def pick(split: Split, indices: Sequence[int] | np.ndarray) -> Split:
    """Returns a split of the examples at some indices, distinct and ascending."""
    indices = np.asarray(indices, np.int64)

    def locate(index: int) -> str:
        return split.locate(int(indices[index]))

    if split.arrays is not None:
        records, labels = (values[indices] for values in split.arrays)
        part = in_memory(split.name, records, labels, split.read, locate)
        part = replace(part, honour_exif=split.honour_exif, bits=split.bits)
        return replace(part, read_mask=split.read_mask)
    picked = np.zeros(split.num_examples, bool)
    picked[indices] = True

    def records() -> Any:
        numbered = split.records().enumerate()
        kept = numbered.filter(lambda index, _: tf.gather(picked, index))
        return kept.map(lambda _, example: example)

    @functools.cache
    def record_files() -> RecordFiles:
        return split.record_files().picked(indices)

    return replace(
        split,
        num_examples=len(indices),
        records=records,
        locate=locate,
        known_labels=None if split.known_labels is None else split.labels()[picked],
        hashes=None if split.hashes is None else split.hashes[picked],
        record_files=split.record_files and record_files,
    )


def relabelled(split: Split, labels: np.ndarray) -> Split:
    """Returns a split whose examples have other labels, integers (examples,)."""
    if split.arrays is not None:
        values, _ = split.arrays
        part = in_memory(split.name, values, labels, split.read, split.locate)
        return replace(part, honour_exif=split.honour_exif, bits=split.bits)
    with tf.device("CPU:0"):
        label_of = tf.constant(labels)

    def records() -> tf.data.Dataset:
        return (
            split.records()
            .enumerate()
            .map(lambda index, example: (example[0], tf.gather(label_of, index)))
        )

    @functools.cache
    def record_files() -> RecordFiles:
        return split.record_files().relabelled(label_of)

    return replace(
        split,
        records=records,
        known_labels=labels,
        record_files=split.record_files and record_files,
    )


def is_of_files(split: Split) -> bool:
    """Returns whether the examples of a split are files of their own."""
    return split.arrays is not None and split.read is tf.io.read_file


def appended(split: Split, paths: Sequence[str], labels: Sequence[int]) -> Split:
    """Returns a split of image files with further ones at its end."""
    files = np.concatenate([split.arrays[0], np.array(paths, object)])
    numbers = np.concatenate([split.arrays[1], np.array(labels, np.int32)])
    part = in_memory(split.name, files, numbers, split.read, lambda index: files[index])
    return replace(part, honour_exif=split.honour_exif, bits=split.bits)


def tf_options() -> tf.data.Options:
    """Returns how images are prepared: in parallel, without threads of the model."""
    options = tf.data.Options()
    # Autotuning has a thread that sleeps ever longer, and an iterator often waits for
    # it at its end: in TensorFlow 2.21 an evaluation took up to twice its time.
    options.autotune.enabled = False
    # Leave the pool of threads that runs the model alone.
    options.threading.private_threadpool_size = CORES
    # Images are prepared in parallel: sharing one among threads only takes them away
    # from the model.
    options.threading.max_intra_op_parallelism = 1
    # Sharding by files would make a batch depend on the number of workers.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return options


def check_name(name: str, place: str) -> None:
    """Refuses a name with line breaks and the like, which no list of names can hold."""
    # Surrogates stand for bytes that are not UTF-8.
    if not is_safe(name):
        raise DataError(
            f"{printable(place)} has line breaks or other control characters in its "
            "name, or is not UTF-8: rename it"
        )
