"""A user's own photos with masks, in folders."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import tensorflow as tf

from train.data.checking import DataError
from train.data.options import DataOptions
from train.data.registry import MASK_TABLES
from train.data.sources.folder_source import ignored_names
from train.data.sources.splits import Source, Split, check_name, in_memory
from train.data.sources.subset import divide, with_test_part
from train.masks import pairs as mask_pairs
from train.masks import reading
from train.masks.classes import MaskClasses, of_table, of_values
from zoo import photos
from zoo.common.regular_files import expand_home


def load_masks(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads photos and the masks of their names, see docs/data.md.

    Labels are the paths of masks, which `Split.read_mask` turns into class numbers. The
    classes are those of classes.csv, else the values that occur. All masks are read
    once, and refused by name where something is wrong with them.
    """
    folder = expand_home(dataset)
    check_name(str(folder), str(folder))
    parts, rest = mask_pairs.find(folder)
    if fraction is None:
        parts = {"all": [pair for pairs in parts.values() for pair in pairs]}
    for pairs in parts.values():
        for pair in pairs:
            check_name(pair.photo, pair.photo)
            check_name(pair.mask, pair.mask)
    tables = [folder / name for name in MASK_TABLES if (folder / name).is_file()]
    classes = of_table(tables[0], options.ignore) if tables else None
    colours = None if classes is None else classes.colours
    found = reading.survey(str(folder), parts, colours)
    whole = reading.joined(found)
    if classes is None:
        classes = of_values(whole, options.ignore, str(folder))
    reading.check_values(str(folder), whole, classes)
    splits = {}
    for part, pairs in parts.items():
        name = str(folder) if part == "all" else f"{folder} {part}"
        splits[part] = _split(name, pairs, classes, options.bits)
    if "all" in splits and fraction is not None:
        splits = with_test_part(splits["all"], classes.names)
    ignored = ignored_names(folder, rest)
    names = classes.names
    source = divide(str(folder), names, splits, fraction, mask_pairs.LAYOUT, ignored)
    return replace(source, notes=reading.notes(found, classes))


def photos_and_masks(split: Split) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yields the name, the photo and the mask of each example, in their own size.

    Threads read ahead. Photos are uint8 (height, width, 3), masks the class numbers of
    `Split.read_mask`, int32 (height, width).
    """
    files, masks = split.arrays

    def read(place: int) -> tuple[np.ndarray, np.ndarray]:
        mask = split.read_mask(tf.constant(masks[place]))
        return photos.decode(files[place], split.bits), mask.numpy()

    for place, (photo, mask) in photos.read_ahead(range(split.num_examples), read):
        yield split.locate(place), photo, mask


def _split(name, pairs, classes, bits):
    files, masks = (np.array(paths, object) for paths in zip(*pairs, strict=True))
    split = in_memory(name, files, masks, tf.io.read_file, lambda index: files[index])
    return replace(split, bits=bits, read_mask=mask_reader(classes))


def mask_reader(classes: MaskClasses) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function from the path of a mask to its class numbers, for `tf.data`.

    It takes a scalar string and returns int32 (height, width), `IGNORED` where a pixel
    does not count.
    """

    def class_numbers(path: bytes) -> tuple[np.ndarray, bytes]:
        # Graphs pass bytes, eager code an array of them.
        path = os.fsdecode(np.asarray(path, object).item())
        try:
            numbers = classes.numbers(reading.read_mask(path, classes.colours))
            if numbers.min(initial=0) < 0:
                raise DataError(f"{path} has other values than when it was checked")
        # Raised here, it would be another error in graphs than in eager code.
        except DataError as error:
            return np.zeros((0, 0), np.int32), str(error).encode()
        return numbers, b""

    def read(path: tf.Tensor) -> tf.Tensor:
        numbers, problem = tf.numpy_function(
            class_numbers, [path], (tf.int32, tf.string), stateful=False
        )
        with tf.control_dependencies([tf.debugging.Assert(problem == b"", [problem])]):
            return tf.ensure_shape(numbers, (None, None))

    return read
