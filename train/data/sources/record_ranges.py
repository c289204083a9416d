"""Ranges of the records of a file, which can be read in any order.

A shuffle buffer mixes what is near in the files: where these have their classes in
order and are larger than the buffer, it is filled with ranges from all over them.
Folders and CSV files do not need this: their whole list of files is in memory.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from train.data.checking import DataError

# A range has this many records: enough for a disk, and few enough that thousands of
# ranges are in the buffer at a time.
RECORDS = 16
# TensorFlow reads this many bytes of a file at a time.
_BYTES = 256 * 1024


class RecordFile(NamedTuple):
    """Some records of a TFRecord file: `take` of them after the first `skip`.

    `offsets` has the byte at which each record of the file begins, and its end; None
    where it must be read from its front, as when `compression` is `"GZIP"`.
    """

    path: str
    skip: int
    take: int
    offsets: np.ndarray | None
    compression: str = ""


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Returns where records of these lengths begin in a file, and where it ends."""
    # A record has its length and a checksum before it, and a checksum after it.
    return np.concatenate([[0], np.cumsum(lengths + 16, dtype=np.int64)])


def find_offsets(path: str, total: int) -> np.ndarray:
    """Reads where each of the records of an uncompressed file begins, and its end."""
    offsets = [0]
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
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


def cut(
    files: Sequence[RecordFile],
    example: Callable[[tf.Tensor, tf.Tensor], tuple],
    indices: np.ndarray | None = None,
) -> tuple:
    """Cuts files into the `ranges` of a `Split`, and leaves whole what must be.

    `example` turns the index of a record and its bytes into an example. `indices` has
    the index in the split of each record, file by file; None where this is their order.
    """
    rows = []
    first = 0
    for number, file in enumerate(files):
        if file.offsets is None:
            rows.append((number, first, file.take, file.skip, 0, _BYTES))
        else:
            offsets = file.offsets[file.skip :]
            for begin in range(0, file.take, RECORDS):
                count = min(RECORDS, file.take - begin)
                place, end = offsets[[begin, begin + count]]
                rows.append((number, first + begin, count, 0, place, end - place))
        first += file.take
    with tf.device("CPU:0"):
        paths = tf.constant([file.path for file in files])
        compressions = tf.constant([file.compression for file in files])
        ranges = tf.constant(np.array(rows, np.int64))
        index_of = None if indices is None else tf.constant(indices)

    def read(number: tf.Tensor) -> Any:
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

        def numbered(place: tf.Tensor, record: tf.Tensor) -> tuple:
            index = place if index_of is None else tf.gather(index_of, place)
            return index, example(index, record)

        return tf.data.Dataset.zip(places, records.skip(skip).take(count)).map(numbered)

    return len(rows), read
