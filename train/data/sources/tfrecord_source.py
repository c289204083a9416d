"""TFRecord files of `tf.train.Example`, as ImageNet is often kept."""

import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from train.data.checking import DataError, entries
from train.data.options import DataOptions
from train.data.registry import record_files
from train.data.sources.folder_source import ignored_names
from train.data.sources.record_ranges import RecordFile, RecordFiles, offsets_of
from train.data.sources.splits import Source, Split, check_name
from train.data.sources.subset import divide
from zoo.common.limits import TEXT_BYTES
from zoo.common.regular_files import expand_home, read_text
from zoo.store.progress import progress_bar

IMAGE, LABEL, TEXT = "image/encoded", "image/class/label", "image/class/text"
_CLASS_NAMES = "class_names.txt"
LAYOUT = (
    "expected TFRecord files train-*.tfrecord and test-*.tfrecord (or validation-*) of "
    f"tf.train.Example with {IMAGE} and {LABEL}"
)
_ABSENT = -1
_HASHES = 2**63 - 1


class _Content(NamedTuple):
    file: RecordFile
    labels: np.ndarray
    hashes: np.ndarray
    texts: set[tuple[int, bytes]]


def load_tfrecord(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads a folder or a pattern of files `train-*`, `test-*` and `validation-*`.

    docs/data.md has the rules. Every file is read once here: that counts the examples,
    and finds damage and labels out of range.
    """
    path = expand_home(dataset)
    folder, pattern = (path, "*") if path.is_dir() else (path.parent, path.name)
    files = record_files(folder, pattern)
    if not files:
        raise DataError(f"there are no TFRecord files {dataset}: {LAYOUT}")
    paths = [path for part in files.values() for path in part]
    contents = _read(paths)
    if fraction is None:
        files = {"all": paths}
    splits = {}
    for part, own in files.items():
        split = _split(f"{dataset} {part}", [contents[path] for path in own])
        splits[part] = replace(split, bits=options.bits)
        if not splits[part].num_examples:
            raise DataError(f"the files of {dataset} for {part} are empty: {LAYOUT}")
    names = _class_names(folder / _CLASS_NAMES, contents)
    used = {folder / _CLASS_NAMES, *paths}
    others = [Path(entry.path) for entry in entries(folder)]
    others = [path for path in others if path.match(pattern)]
    ignored = ignored_names(folder, [path for path in others if path not in used])
    return divide(dataset, names, splits, fraction, LAYOUT, ignored)


def _read(paths):
    """Returns the content of each file, and checks every record."""
    size = sum(path.stat().st_size for path in paths)
    bar = progress_bar(
        total=size,
        unit="B",
        unit_scale=True,
        desc="counting examples",
        disable=size < 500 * 2**20,
    )
    contents = {}
    with bar, ThreadPoolExecutor() as pool:
        for path, content in zip(paths, pool.map(_read_file, paths), strict=True):
            contents[path] = content
            bar.update(path.stat().st_size)
    return contents


def _read_file(path):
    compression = "GZIP" if path.suffix == ".gz" else ""
    features = {
        IMAGE: tf.io.FixedLenFeature((), tf.string, ""),
        LABEL: tf.io.FixedLenFeature((), tf.int64, _ABSENT),
        TEXT: tf.io.FixedLenFeature((), tf.string, ""),
    }

    def parse(records: tf.Tensor) -> tuple:
        parsed = tf.io.parse_example(records, features)
        has_image = tf.strings.length(parsed[IMAGE]) > 0
        hashes = tf.strings.to_hash_bucket_fast(parsed[IMAGE], _HASHES)
        lengths = tf.strings.length(records)
        return parsed[LABEL], parsed[TEXT], has_image, hashes, lengths

    labels, hashes, lengths = ([np.zeros(0, np.int64)] for _ in range(3))
    texts = set()
    records = tf.data.TFRecordDataset(str(path), compression)
    try:
        parsed = records.batch(64).map(parse).as_numpy_iterator()
        for numbers, names, has_image, own_hashes, sizes in parsed:
            labels.append(numbers)
            hashes.append(own_hashes)
            lengths.append(sizes)
            if not has_image.all() or (numbers < 0).any():
                raise DataError(_explained(path, records))
            pairs = zip(numbers.tolist(), names, strict=True)
            texts.update((label, text) for label, text in pairs if text)
    # TensorFlow quotes a record that it cannot parse, and fails where that is no text.
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise DataError(_explained(path, records, error)) from error
    labels = np.concatenate(labels)
    offsets = None if compression else offsets_of(np.concatenate(lengths))
    total = len(labels)
    file = RecordFile(str(path), 0, total, total, offsets, compression)
    return _Content(file, labels, np.concatenate(hashes), texts)


def _explained(path, records, error=None):
    """Says which record of a file is bad, and why; reads up to that one."""
    kinds = {IMAGE: "bytes_list", LABEL: "int64_list", TEXT: "bytes_list"}
    number = 0
    try:
        for number, record in enumerate(records.as_numpy_iterator(), 1):
            place = f"{path} record {number}"
            try:
                example = tf.train.Example.FromString(record)
            # The exception depends on the implementation of protobuf.
            except Exception:
                return f"{place} is no tf.train.Example: {LAYOUT}"
            present = example.features.feature
            for key, kind in kinds.items():
                feature = present.get(key)
                if feature is None and key == TEXT:
                    continue
                if feature is None or len(getattr(feature, kind).value) != 1:
                    return (
                        f"{place} has no {key} with one value of {kind}, only the "
                        f"features {sorted(present)}: {LAYOUT}"
                    )
            label = present[LABEL].int64_list.value[0]
            if label < 0:
                return f"{place} has the label {label}: labels count from 0"
            if not present[IMAGE].bytes_list.value[0]:
                return f"{place} has an empty {IMAGE}: remove the record"
    except tf.errors.DataLossError:
        return (
            f"{path} is damaged after {number} whole records (cut short, or its "
            "checksum is wrong): copy or write it again"
        )
    except tf.errors.OpError as reason:
        return f"cannot read {path}: {reason.message}"
    return f"cannot read {path}: {error}"


def _class_names(file, contents):
    if file.exists():
        try:
            text = read_text(file, TEXT_BYTES, "utf-8-sig").rstrip()
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read {file}: {error}") from error
        # Other line breaks are in the names, which are refused.
        names = tuple(text.split("\n")) if text else ()
        for number, name in enumerate(names, 1):
            check_name(name, f"{file} line {number}")
        _check_labels(contents, names)
        return names
    texts = {}
    for path, content in contents.items():
        for label, text in content.texts:
            name = text.decode("utf-8", "surrogateescape")
            check_name(name, f"{path}: the {TEXT} {text!r} of label {label}")
            texts.setdefault(label, set()).add(name)
    for label, spellings in sorted(texts.items()):
        if len(spellings) > 1:
            raise DataError(
                f"the label {label} has the names {sorted(spellings)} in {TEXT}: write "
                f"the name of each label to {file}, one per line"
            )
    most = max(content.labels.max(initial=0) for content in contents.values())
    return tuple(
        name for label in range(most + 1) for name in texts.get(label, [str(label)])
    )


def _check_labels(contents, names):
    for path, content in contents.items():
        most = content.labels.max(initial=0)
        if most >= len(names):
            least = min(c.labels.min(initial=most) for c in contents.values())
            raise DataError(
                f"{path} record {content.labels.argmax() + 1} has the label {most}, "
                f"but {_CLASS_NAMES} has {len(names)} lines, for labels from 0; the "
                f"least label is {least}: where they count from 1, begin the file with "
                "a line for 0"
            )


def _split(name, contents):
    feature = {IMAGE: tf.io.FixedLenFeature((), tf.string)}
    labels = np.concatenate([content.labels for content in contents])
    files = [content.file for content in contents]

    def records() -> Any:
        named = [file.path for file in files], [file.compression for file in files]
        return tf.data.Dataset.zip(
            tf.data.Dataset.from_tensor_slices(named).flat_map(tf.data.TFRecordDataset),
            tf.data.Dataset.from_tensor_slices(labels),
        )

    @functools.cache
    def record_files() -> RecordFiles:
        with tf.device("CPU:0"):
            label_of = tf.constant(labels)
        return RecordFiles(
            files, lambda index, record: (record, tf.gather(label_of, index))
        )

    starts = np.cumsum([0, *(file.take for file in files)])

    def locate(index: int) -> str:
        number = int(np.searchsorted(starts, index, side="right")) - 1
        return f"{files[number].path} record {index - starts[number] + 1}"

    return Split(
        name=name,
        num_examples=len(labels),
        records=records,
        read=lambda record: tf.io.parse_single_example(record, feature)[IMAGE],
        locate=locate,
        known_labels=labels,
        record_files=record_files,
        hashes=np.concatenate([content.hashes for content in contents]),
    )
