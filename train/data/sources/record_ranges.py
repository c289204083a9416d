"""Ranges of the records of a file, which can be read in any order.

A shuffle buffer mixes what is near in the files: where these have their classes in
order and are larger than the buffer, it is filled with ranges from all over them.
Folders and CSV files do not need this: their whole list of files is in memory.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Records of a range: enough for a disk, and few enough that thousands of ranges are in
# the buffer at a time.
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


class RecordRanges(NamedTuple):
    """A split in `count` parts; `read` turns the number of one into a data set.

    It has pairs of an index in the split and an example. It works in `flat_map` and
    `interleave` only: elsewhere TensorFlow 2.21 ignores where to begin.
    """

    count: int
    read: Callable[[tf.Tensor], tf.data.Dataset]


def offsets_of(lengths):
    """Returns where the records of an uncompressed file begin, and where it ends.

    `lengths` are the bytes per record: of [10, 5] the offsets are [0, 26, 47].
    """
    whole = np.asarray(lengths, np.int64) + _HEADER + _FOOTER
    return np.concatenate([[0], np.cumsum(whole)])


def find_offsets(path):
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


def interleaved(counts, **order):
    """Returns the place of each record in `tf.data.Dataset.interleave` of files.

    Of `counts` [3, 2] read in turns the places are [0, 2, 4] and [1, 3].
    """
    ends = np.cumsum(counts, dtype=np.int64)
    records = tf.data.Dataset.from_tensor_slices((ends - counts, ends)).interleave(
        tf.data.Dataset.range, **order
    )
    found = np.concatenate(list(records.batch(4096).as_numpy_iterator()))
    places = np.empty_like(found)
    places[found] = np.arange(len(found))
    return places


def cut(files, example, indices=None) -> RecordRanges:
    """Cuts files into ranges of 16 records, or leaves whole what must be read whole.

    `example` turns the index of a record and its bytes into an example. `indices` has
    the index in the split of each record, file by file; None where this is their order.
    """
    rows = []
    first = 0
    for number, file in enumerate(files):
        if file.offsets is None:
            rows.append((number, first, file.take, file.skip, 0, _BYTES))
        else:
            for begin in range(0, file.take, RECORDS):
                count = min(RECORDS, file.take - begin)
                start = file.skip + begin
                place, end = file.offsets[[start, start + count]]
                rows.append((number, first + begin, count, 0, place, end - place))
        first += file.take
    with tf.device("CPU:0"):
        paths = tf.constant([file.path for file in files])
        compressions = tf.constant([file.compression for file in files])
        ranges = tf.constant(np.array(rows, np.int64))
        index_of = None if indices is None else tf.constant(indices)

    def read(number):
        row = tf.gather(ranges, number)
        # With tf.unstack, TensorFlow 2.21 ends in a segmentation fault here.
        file, first, count, skip, place, size = (row[column] for column in range(6))
        # tf.data.TFRecordDataset has no argument for the place to begin at.
        records = tf.data.experimental.from_variant(
            tf.raw_ops.TFRecordDatasetV2(
                filenames=[tf.gather(paths, file)],
                compression_type=tf.gather(compressions, file),
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

    return RecordRanges(len(rows), read)


def keep(ranges: RecordRanges, is_kept) -> RecordRanges:
    """Keeps the examples where `is_kept`, bools `(examples,)`, and renumbers them."""
    with tf.device("CPU:0"):
        kept = tf.constant(is_kept)
        index_of = tf.constant(np.cumsum(is_kept) - 1)

    def read(number):
        found = ranges.read(number).filter(lambda index, _: tf.gather(kept, index))
        return found.map(lambda index, example: (tf.gather(index_of, index), example))

    return RecordRanges(ranges.count, read)
