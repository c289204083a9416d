"""Records of TFRecord files, which can be read by ranges and one by one.

A shuffle buffer mixes what is near in the files: where these have their classes in
order and are larger than the buffer, it is filled with ranges from all over them.
Folders and CSV files do not need this: their whole list of files is in memory.
"""

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from train.data.checking import DataError

# A range has this many records: enough for a disk, and few enough that thousands of
# ranges are in the buffer at a time.
RECORDS = 16
# TensorFlow reads this many bytes of a file at a time.
_BYTES = 256 * 1024
# Records that are read one by one: the next ones are on their way meanwhile.
_READS_AT_ONCE = 16


class RecordFile(NamedTuple):
    """Some records of a TFRecord file: `take` of them after the first `skip`.

    `total` counts all records of the file. `offsets` has the byte at which each begins,
    and the end of the last; None where the file must be read from its front, as when
    `compression` is `"GZIP"`.
    """

    path: str
    skip: int
    take: int
    total: int
    offsets: np.ndarray | None
    compression: str = ""

    @property
    def has_places(self) -> bool:
        """Returns whether the byte of each record is known or soon found."""
        # Finding each record is slow on remote storage.
        return not self.compression and "://" not in self.path

    def find_places(self) -> np.ndarray:
        """Returns where each of these records begins, and its size: (take, 2)."""
        offsets = self.offsets
        if offsets is None:
            offsets = find_offsets(self.path, self.total)
        offsets = offsets[self.skip : self.skip + self.take + 1]
        return np.stack([offsets[:-1], np.diff(offsets)], axis=1)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns where records of these lengths begin in a file, and where it ends."""
    # A record has its length and a checksum before it, and a checksum after it.
    return np.concatenate([[0], np.cumsum(lengths + 16, dtype=np.int64)])


def find_offsets(path: str, total: int) -> np.ndarray:
    """Reads where each of the records of an uncompressed file begins, and its end."""
    offsets = [0]
    try:
        size = os.path.getsize(path)
        # With a buffer, 4 KB of each record would be read.
        with open(path, "rb", buffering=0) as file:
            # A record is its length, the checksum of that, its bytes and a checksum.
            while header := file.read(8):
                end = file.tell() + 4 + int.from_bytes(header, "little") + 4
                if end > size:
                    break
                offsets.append(file.seek(end))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if len(offsets) != total + 1:
        raise DataError(
            f"{path} is damaged: it has {len(offsets) - 1} whole records and should "
            f"have {total}; prepare or copy it again"
        )
    return np.array(offsets, np.int64)


def interleaved(counts: Sequence[int], **order: int) -> np.ndarray:
    """Returns the place of each record in `tf.data.Dataset.interleave` of files.

    For example, `counts` [3, 2] read in turns give the places [0, 2, 4] and [1, 3].
    """
    ends = np.cumsum(counts, dtype=np.int64)
    records = tf.data.Dataset.from_tensor_slices((ends - counts, ends)).interleave(
        tf.data.Dataset.range, **order
    )
    sequence = np.concatenate(list(records.batch(4096).as_numpy_iterator()))
    places = np.empty_like(sequence)
    places[sequence] = np.arange(len(sequence))
    return places


class RecordFiles:
    """The records of a split, in files.

    `example` turns the index of a record in the split and its bytes into an example.
    `indices` has the index of each record, file by file, and -1 where it is not in the
    split; None where all are, in this order.

    Attributes:
        ranges: Number of ranges, which can be read in any order. A file that must be
            read from its front is one.
        example: That function.
    """

    def __init__(
        self,
        files: Sequence[RecordFile],
        example: Callable[[tf.Tensor, tf.Tensor], tuple],
        indices: np.ndarray | None = None,
    ):
        self.files, self.example = files, example
        total = sum(file.take for file in files)
        self.indices = np.arange(total) if indices is None else indices
        rows = list(self._ranges())
        self.ranges = len(rows)
        with tf.device("CPU:0"):
            self._rows = tf.constant(np.array(rows, np.int64))
            self._paths = tf.constant([file.path for file in files])
            self._compressions = tf.constant([file.compression for file in files])
            self._index_of = tf.constant(self.indices)

    def _ranges(self):
        first = 0
        for number, file in enumerate(self.files):
            if file.offsets is None:
                yield number, first, file.take, file.skip, 0, _BYTES
            else:
                offsets = file.offsets[file.skip :]
                for begin in range(0, file.take, RECORDS):
                    count = min(RECORDS, file.take - begin)
                    place, end = offsets[[begin, begin + count]]
                    yield number, first + begin, count, 0, place, end - place
            first += file.take

    @property
    def can_read_each(self) -> bool:
        """Returns whether `read_each` works: the byte of each record is known."""
        return self._places is not None

    def picked(self, indices: np.ndarray) -> "RecordFiles":
        """Returns the records at some indices, distinct and ascending, as a split."""
        index_of = np.full(self.indices.max(initial=-1) + 1, -1)
        index_of[indices] = np.arange(len(indices))
        # The place of a record that is not in the split is -1, an index too.
        own = np.where(self.indices < 0, -1, index_of[self.indices])
        with tf.device("CPU:0"):
            old = tf.constant(indices)
        return RecordFiles(
            self.files,
            lambda index, record: self.example(tf.gather(old, index), record),
            own,
        )

    def relabelled(self, label_of: tf.Tensor) -> "RecordFiles":
        """Returns the same records with the labels of a tensor."""
        return RecordFiles(
            self.files,
            lambda index, record: (
                self.example(index, record)[0],
                tf.gather(label_of, index),
            ),
            self.indices,
        )

    def range_indices(self, number: tf.Tensor) -> tf.data.Dataset:
        """Returns the indices of the records of a range, and reads nothing."""
        row = tf.gather(self._rows, number)
        indices = self._index_of[row[1] : row[1] + row[2]]
        return tf.data.Dataset.from_tensor_slices(indices[indices >= 0])

    def read_range(self, number: tf.Tensor) -> tf.data.Dataset:
        """Reads a range: pairs of an index and an example.

        It works in `flat_map` and `interleave` only: elsewhere TensorFlow 2.21 ignores
        where to begin.
        """
        row = tf.gather(self._rows, number)
        # With tf.unstack, TensorFlow 2.21 ends in a segmentation fault here.
        file, first, count, skip, place, size = (row[column] for column in range(6))
        records = self._records(file, place, size).skip(skip).take(count)
        indices = self._index_of[first : first + count]
        numbered = tf.data.Dataset.zip(
            tf.data.Dataset.from_tensor_slices(indices), records
        )
        if (self.indices < 0).any():
            numbered = numbered.filter(lambda index, _: index >= 0)
        return numbered.map(lambda index, record: (index, self.example(index, record)))

    def read_each(self, numbered: tf.data.Dataset) -> tf.data.Dataset:
        """Reads records one by one, and no other bytes of their files.

        Turns pairs of any number and the index of a record into pairs of such a pair
        and the bytes of the record.
        """
        assert self._places is not None

        def read(number: tf.Tensor, index: tf.Tensor) -> tf.data.Dataset:
            row = tf.gather(self._places, index)
            record = self._records(row[0], row[1], row[2])
            # A file may have been cut meanwhile: an empty record instead of none is
            # one that cannot be parsed.
            record = record.concatenate(tf.data.Dataset.from_tensors("")).take(1)
            pair = tf.data.Dataset.from_tensors((number, index))
            return tf.data.Dataset.zip(pair, record)

        return numbered.interleave(
            read,
            cycle_length=_READS_AT_ONCE,
            num_parallel_calls=_READS_AT_ONCE,
            deterministic=True,
        )

    def _records(self, file, place, size):
        """Reads a file from a place on, so many bytes at a time."""
        # tf.data.TFRecordDataset has no argument for the place to begin at.
        return tf.data.experimental.from_variant(
            tf.raw_ops.TFRecordDatasetV2(
                filenames=[tf.gather(self._paths, file)],
                compression_type=tf.gather(self._compressions, file),
                buffer_size=size,
                byte_offsets=[place],
            ),
            tf.TensorSpec((), tf.string),
        )

    @functools.cached_property
    def _places(self):
        """Returns the file, the offset and the size of each record of the split."""
        if not all(file.has_places for file in self.files):
            return None
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(RecordFile.find_places, self.files))
        rows = np.zeros((len(self.indices), 3), np.int64)
        rows[:, 0] = np.repeat(range(len(found)), [len(places) for places in found])
        rows[:, 1:] = np.concatenate(found)
        is_own = self.indices >= 0
        places = np.empty((is_own.sum(), 3), np.int64)
        places[self.indices[is_own]] = rows[is_own]
        with tf.device("CPU:0"):
            return tf.constant(places)
