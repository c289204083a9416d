"""Pieces of record files that can be read in any order.

A shuffle buffer mixes what is near in the files: where these have their classes in
order and are larger than the buffer, it is filled with pieces from all over them.
Folders and CSV files do not need this: their whole list of files is in memory.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Records that are read one after the other: enough for a disk, and few enough that
# thousands of such parts are in the buffer at a time.
RECORDS = 16
# Bytes of a file that TensorFlow reads at a time.
_BYTES = 256 * 1024
# Of a record: its length, the checksum of that, and after it the checksum of the rest.
_HEADER, _FOOTER = 12, 4


class RecordFile(NamedTuple):
    """Some records of a TFRecord file: `take` of them after the first `skip`.

    `offsets` has the byte at which each record of the file begins, and its end; None
    where it can be read from its front only, as when `compression` is `"GZIP"`.
    """

    path: str
    skip: int
    take: int
    offsets: np.ndarray | None
    compression: str = ""


@dataclass(frozen=True)
class Pieces:
    """A split in `count` parts, each of which can be read by itself.

    `read` turns the number of one, an integer tensor, into a `tf.data.Dataset` of the
    index of each of its examples in the split, and the example. It works in `flat_map`
    and `interleave` only: elsewhere TensorFlow 2.21 ignores where to begin.
    """

    count: int
    read: Callable[[tf.Tensor], tf.data.Dataset]


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns where the records of an uncompressed file begin, and where it ends.

    Example:

    >>> offsets_of(np.array([10, 5])).tolist()  # bytes per record
    [0, 26, 47]
    """
    whole = np.asarray(lengths, np.int64) + _HEADER + _FOOTER
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(whole)])


def find_offsets(path: str) -> np.ndarray:
    """Reads the `offsets_of` a file, up to its end or the first damage."""
    lengths = []
    left = os.path.getsize(path)
    with open(path, "rb") as file:
        while header := file.read(_HEADER):
            length = int.from_bytes(header[:8], "little")
            left -= _HEADER + length + _FOOTER
            if left < 0:
                break
            lengths.append(length)
            file.seek(length + _FOOTER, 1)
    return offsets_of(lengths)


def interleaved(
    counts: Sequence[int], cycle_length: int, block_length: int
) -> np.ndarray:
    """Returns the place of each record in `tf.data.Dataset.interleave` of files.

    Args:
        counts: How many records each file has.
        cycle_length: How many files are read at a time.
        block_length: How many records are read of one before the next has its turn.

    Returns:
        Integers `(records,)`; the first file's come first.

    Example:

    >>> interleaved([3, 2], cycle_length=2, block_length=1).tolist()
    [0, 2, 4, 1, 3]
    """
    ends = np.cumsum(counts, dtype=np.int64)
    order = tf.data.Dataset.from_tensor_slices((ends - counts, ends)).interleave(
        tf.data.Dataset.range, cycle_length=cycle_length, block_length=block_length
    )
    indices = np.empty(ends[-1], np.int64)
    indices[np.concatenate(list(order.batch(4096).as_numpy_iterator()))] = np.arange(
        ends[-1]
    )
    return indices


def cut(
    files: Sequence[RecordFile],
    example: Callable[[tf.Tensor, tf.Tensor], tuple],
    indices: np.ndarray | None = None,
) -> Pieces:
    """Cuts files into pieces of 16 records, or leaves whole what must be read whole.

    Args:
        files: The files of the split.
        example: Turns the index of a record and its bytes into an example.
        indices: Integers `(examples,)`, the index in the split of each record, file by
            file; None where the split has them in this order.
    """
    paths, compressions, rows = [], [], []
    first = 0
    for number, file in enumerate(files):
        paths.append(file.path)
        compressions.append(file.compression)
        if file.offsets is None:
            begins = np.zeros(1, np.int64)
            counts, skips, places = file.take, file.skip, 0
            sizes = _BYTES
        else:
            begins = np.arange(0, file.take, RECORDS)
            counts, skips = np.minimum(RECORDS, file.take - begins), 0
            places = file.offsets[file.skip + begins]
            sizes = file.offsets[file.skip + begins + counts] - places
        columns = (number, first + begins, counts, skips, places, sizes)
        rows.append(np.stack(np.broadcast_arrays(*columns), axis=1))
        first += file.take
    table = np.concatenate(rows).astype(np.int64)
    with tf.device("CPU:0"):
        names = tf.constant(paths), tf.constant(compressions)
        pieces = tf.constant(table)
        index_of = None if indices is None else tf.constant(indices)

    def read(piece):
        row = tf.gather(pieces, piece)
        # With tf.unstack, TensorFlow 2.21 ends in a segmentation fault here.
        number, first, count, skip, place, size = (row[column] for column in range(6))
        # tf.data.TFRecordDataset has no argument for the place to begin at.
        records = tf.data.experimental.from_variant(
            tf.raw_ops.TFRecordDatasetV2(
                filenames=[tf.gather(names[0], number)],
                compression_type=tf.gather(names[1], number),
                buffer_size=size,
                byte_offsets=[place],
            ),
            tf.TensorSpec((), tf.string),
        )
        places = tf.data.Dataset.range(first, first + count)

        def numbered(place, record):
            index = place if index_of is None else tf.gather(index_of, place)
            return index, example(index, record)

        return tf.data.Dataset.zip(places, records.skip(skip).take(count)).map(numbered)

    return Pieces(len(table), read)


def some(pieces: Pieces, is_wanted: np.ndarray) -> Pieces:
    """Keeps the examples where `is_wanted`, bools `(examples,)`, and renumbers them."""
    with tf.device("CPU:0"):
        wanted = tf.constant(is_wanted)
        index_of = tf.constant(np.cumsum(is_wanted) - 1)

    def read(piece):
        return (
            pieces.read(piece)
            .filter(lambda index, _: tf.gather(wanted, index))
            .map(lambda index, example: (tf.gather(index_of, index), example))
        )

    return Pieces(pieces.count, read)
