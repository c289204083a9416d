"""Image-classification data sets of TensorFlow Datasets."""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from train.common.errors import first_line
from train.data.checking import DataError, open_builder
from train.data.options import DataOptions
from train.data.registry import PARTS, DataDir
from train.data.sources.record_ranges import (
    RecordFile,
    RecordFiles,
    find_offsets,
    interleaved,
)
from train.data.sources.splits import Source, Split
from train.data.sources.subset import validation_size

_UNLABELLED = -1
# TFDS reads files that it shuffled so; others are read one after the other.
_FILES_AT_ONCE, _BLOCK = 16, 16


def load_tfds(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads a TFDS data set by name; downloads it only when it is not prepared yet.

    The validation split is the end of `train`, as in the released code's `train[98%:]`
    (vision_transformer, configs/common.py). The test split is "validation" where "test"
    is missing or has no labels, as in imagenet2012.
    """
    builder = prepared_builder(dataset, options.data_dir)
    image, label = _check_features(builder, dataset)

    def split(instruction: str) -> Any:
        return tfds_split(builder, dataset, instruction, image, label)

    splits = builder.info.splits
    names = tuple(builder.info.features[label].names)
    if fraction is None:
        labelled = [part for part in splits if _is_labelled(split(part))]
        if not labelled:
            raise DataError(f"{dataset} has no labels: choose a data set that has some")
        whole = split("+".join(labelled))
        return Source(dataset, names, all=whole, total=whole.num_examples)
    if "train" not in splits:
        raise DataError(
            f"{dataset} has no train split, only {sorted(splits)}: "
            "choose a data set to train on"
        )

    for test in (split(part) for part in ("test", "validation") if part in splits):
        if _is_labelled(test):
            break
    else:
        raise DataError(
            f"{dataset} has no labelled test or validation split, only "
            f"{sorted(splits)}: choose a data set that can be evaluated"
        )
    total = splits["train"].num_examples
    count = validation_size(f"{dataset} train", total, fraction)
    return Source(
        name=dataset,
        class_names=names,
        train=split(f"train[:{total - count}]" if count else "train"),
        validation=split(f"train[{total - count}:]") if count else None,
        test=test,
        total=sum(splits[part].num_examples for part in PARTS if part in splits),
    )


def _is_labelled(split):
    _, label = next(iter(split.records().take(1)))
    return int(label) != _UNLABELLED


def prepared_builder(dataset: str, data_dir: DataDir) -> Any:
    """Returns the `tfds.core.DatasetBuilder` of a data set, prepared."""
    import tensorflow_datasets as tfds

    builder = open_builder(dataset, data_dir)
    if builder.is_prepared():
        return builder
    if sys.stderr is None or not sys.stderr.isatty():
        tfds.disable_progress_bar()  # which would flood a log file
    try:
        builder.download_and_prepare()
    except Exception as error:
        # The remedy is the same for the network, the disk and manual downloads.
        raise DataError(
            f"{dataset} is not prepared in {builder.data_path} and could not be "
            f"downloaded ({type(error).__name__}: {first_line(error)}): prepare it on "
            f'a machine with network access, tfds.load("{dataset}", data_dir=...), '
            "copy that folder here and pass it as --data_dir"
        ) from error
    return builder


def _check_features(builder, dataset):
    """Returns the names of the features of image and label."""
    import tensorflow_datasets as tfds

    features, keys = builder.info.features, builder.info.supervised_keys
    if (
        not isinstance(keys, tuple)
        or len(keys) != 2
        or not all(isinstance(key, str) and key in features for key in keys)
        or not isinstance(features[keys[0]], tfds.features.Image)
        or features[keys[0]].np_dtype != np.uint8
        or not isinstance(features[keys[1]], tfds.features.ClassLabel)
    ):
        raise DataError(
            f"{dataset} is not an image classification: its supervised keys are {keys} "
            f"of the features {sorted(features)}, not a uint8 Image and a ClassLabel; "
            "choose another data set or export it to folders"
        )
    return keys


def tfds_split(
    builder: Any,
    dataset: str,
    instruction: str,
    image: str,
    label_feature: str,
    label: Callable[[dict], tf.Tensor] | None = None,
    read: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> Split:
    """Makes a `Split` of a TFDS instruction, "train[:800]"; parses what is needed only.

    `label` turns an example with the two features into its label, None where that is
    the second; `dataset` is for messages, `read` as in `Split`.
    """
    import tensorflow_datasets as tfds

    decoders = tfds.decode.PartialDecoding(
        {image: True, label_feature: True}, decoders={image: tfds.decode.SkipDecoding()}
    )
    # An index means one example in `records` and in `record_files`.
    order = {
        "cycle_length": 1 if builder.info.disable_shuffling else _FILES_AT_ONCE,
        "block_length": _BLOCK,
    }

    def pair(example: dict) -> tuple:
        return example[image], label(example) if label else example[label_feature]

    def records() -> Any:
        # The training pipeline caches and prefetches by itself.
        config = tfds.ReadConfig(
            try_autocache=False,
            skip_prefetch=True,
            **{f"interleave_{name}": number for name, number in order.items()},
        )
        settings = {"decoders": decoders, "read_config": config}
        return builder.as_dataset(split=instruction, **settings).map(pair)

    @functools.cache
    def record_files() -> RecordFiles:
        features = decoders.extract_features(builder.info.features)
        parse = functools.partial(
            features.deserialize_example, decoders=decoders.decoders
        )
        files = list(_record_files(builder, instruction))
        indices = interleaved([file.take for file in files], **order)
        return RecordFiles(files, lambda _, record: pair(parse(record)), indices)

    # Files of other formats have no records that can be told apart.
    is_tfrecord = builder.info.file_format is tfds.core.FileFormat.TFRECORD
    name = f"{dataset} {instruction}"
    return Split(
        name=name,
        num_examples=builder.info.splits[instruction].num_examples,
        records=records,
        read=read,
        locate=lambda index: f"example {index} of {name}",
        record_files=record_files if is_tfrecord else None,
        # TFDS decodes without EXIF, and so did the published results.
        honour_exif=False,
    )


def _record_files(builder, instruction):
    """Yields the files of a split, with places in them where TFDS did not shuffle."""
    for file in builder.info.splits[instruction].file_instructions:
        path, total = os.fspath(file.filename), file.examples_in_shard
        take = total - file.skip if file.take == -1 else file.take
        one = RecordFile(path, file.skip, take, total, offsets=None)
        if builder.info.disable_shuffling and one.has_places:
            one = one._replace(offsets=find_offsets(path, total))
        yield one
