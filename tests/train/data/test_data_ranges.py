"""Large data are mixed as a whole, and shared by workers, by ranges of their files."""

import numpy as np
import pytest
import tensorflow as tf
from made_data import examples, lay_out, png, record, tiny_images, undecoded

from train.data import pipeline
from train.data.pipeline import training_batches
from train.data.sources import DataError, load, record_ranges
from train.data.sources.record_ranges import find_offsets
from train.data.sources.splits import in_memory, pick
from train.data.sources.subset import limited

pytestmark = pytest.mark.usefixtures("png_only")
SMALL = {"image_size": (1, 1), "crop": "resize", "seed": 0}
# Uneven, one a whole number of blocks, and more of them than are read at a time.
SHARDS = {True: [50, 17, 32, 70, 33], False: [33, *[5, 17, 16, 1] * 4, 20, 9]}


def labels_of(batches, count):
    return [labels for _, labels in batches.take(count).as_numpy_iterator()]


def examples_in_ranges(split):
    """Returns each example, as `examples` does, by its index in the ranges."""
    files = split.record_files()

    def decoded(index, example):
        return index, split.decode(example[0])[0, 0, 0], example[1]

    found = tf.data.Dataset.range(files.ranges).flat_map(files.read_range).map(decoded)
    rows = np.array(list(found.as_numpy_iterator()))
    return dict(zip(rows[:, 0].tolist(), map(tuple, rows[:, 1:].tolist()), strict=True))


@pytest.mark.parametrize("is_in_order", [False, True])
def test_large_tfds_data_are_read_in_ranges(tmp_path, monkeypatch, is_in_order):
    """Where TFDS did not shuffle, from all over the file."""
    labels = {"train": [0] * 100 + [1] * 100, "test": [0]}
    lay_out(tmp_path, tiny_images(labels, disableShuffling=is_in_order))
    # The rest of the file is for validation.
    split = load("tiny_images", data_dir=tmp_path, validation_fraction=0.1).train
    assert split.record_files().ranges == (12 if is_in_order else 1)
    assert examples_in_ranges(split) == dict(enumerate(examples(split)))
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 40)
    batches = labels_of(training_batches(split, batch_size=20, **SMALL), 9)
    assert np.sum(batches) == 80
    assert (0 < batches[0].sum() < 20) == is_in_order


@pytest.mark.parametrize("is_in_order", SHARDS)
def test_an_index_means_one_example_in_every_order(tmp_path, monkeypatch, is_in_order):
    shards = {"train": SHARDS[is_in_order]}
    labels = {"train": [0, 1] * (sum(shards["train"]) // 2), "test": [0]}
    settings = {"shards": shards, "disableShuffling": is_in_order}
    lay_out(tmp_path, tiny_images(labels, **settings))
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 40)
    # Both parts have a range of one file.
    source = load("tiny_images", data_dir=tmp_path, validation_fraction=0.25)
    # TFDS reads 16 of a file, then of the next one, whose first has this number.
    assert examples(source.train)[16][0] == (16 if is_in_order else 33)
    for split in (source.train, source.validation, limited(source.train, 90)):
        found = examples(split)
        assert (found == sorted(found)) == is_in_order
        assert examples_in_ranges(split) == dict(enumerate(found))
    assert len(found) == 90 and all(label == number % 2 for number, label in found)


# A byte of a record's length: up to 255 too long, 16 MB, beyond any file, and a file
# that ends early.
@pytest.mark.parametrize("place", [0, 3, 7, None])
def test_a_damaged_length_in_a_large_tfds_file(tmp_path, monkeypatch, place):
    files = tiny_images({"train": [0, 1] * 20, "test": [0]}, disableShuffling=True)
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 20)
    split = load("tiny_images", data_dir=lay_out(tmp_path, files)).train
    path = next(tmp_path.glob("*/*/*train*"))
    content = bytearray(path.read_bytes())
    if place is None:
        del content[-7:]
    else:
        content[find_offsets(str(path), 40)[10] + place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path.name} is damaged.* 40;"):
        training_batches(split, batch_size=2, **SMALL)
    path.unlink()
    with pytest.raises(DataError, match=f"cannot read .*{path.name}"):
        split.record_files()


# Files, and lists in memory, sorted by class


def sorted_files(tmp_path, count, files=1, ending=""):
    """Returns examples of TFRecord files whose label is their number."""
    shares = np.array_split(np.arange(count), files)
    records = {
        f"train-{file}.tfrecord{ending}": [record(0, int(number)) for number in share]
        for file, share in enumerate(shares)
    }
    lay_out(tmp_path, records | {"test.tfrecord": [record(0, 0)]})
    return undecoded(load(str(tmp_path)).train)


def sorted_in_memory(count):
    labels = np.arange(count, dtype=np.int32)
    return undecoded(
        in_memory("sorted", np.full(count, png(0), object), labels, tf.identity, str)
    )


def test_ranges_of_records_have_the_images_of_their_labels(tmp_path):
    records = [record(number, number) for number in range(40)]
    files = {"train-0.tfrecord": records[:33], "train-1.tfrecord.gz": records[33:]}
    lay_out(tmp_path, files | {"test.tfrecord": records[:1]})
    split = load(str(tmp_path), validation_fraction=0.2).train
    assert split.record_files().ranges == 4 and split.num_examples == 32
    assert examples_in_ranges(split) == dict(enumerate(examples(split)))
    assert all(number == label for number, label in examples(split))


@pytest.mark.parametrize(("kind", "count"), [("memory", 200_000), ("file", 4_000)])
def test_data_sorted_by_class_are_mixed_as_a_whole(monkeypatch, tmp_path, kind, count):
    """Of 200,000 examples of 100 classes, the first 512 had 26 of them."""
    if kind == "memory":
        split = sorted_in_memory(count)
    else:
        # 200,000 examples have as many buffers, and more ranges in one.
        monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 1_000)
        monkeypatch.setattr(record_ranges, "RECORDS", 1)
        split = sorted_files(tmp_path, count)
    # An epoch begins at the first step, and ends at the last.
    for step in (0, count // 512 - 1):
        batches = training_batches(split, start_step=step, batch_size=512, **SMALL)
        [labels] = labels_of(batches, 1)
        counts = np.bincount(labels * 100 // count, minlength=100)
        # A uniform draw misses 0.6, and hardly ever 5.
        assert (counts == 0).sum() < 5, step
        # A uniform draw has 1, and hardly ever 1 + 4 * sqrt(2 / 99) = 1.57.
        assert ((counts - 5.12) ** 2 / 5.12).sum() / 99 < 1.57, step


def test_large_compressed_files_are_read_from_several_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 8)
    split = sorted_files(tmp_path, 160, files=4, ending=".gz")
    labels = np.stack(labels_of(training_batches(split, batch_size=40, **SMALL), 4))
    assert (np.sort(labels, axis=None) == np.arange(160)).all()
    assert len(set(labels[0] // 40)) == 4


@pytest.mark.parametrize("kind", ["memory", "files", "some of files"])
def test_large_data_are_taken_once_and_resume_exactly(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 20)
    numbers = np.arange(100)
    if kind == "memory":
        split = sorted_in_memory(100)
    else:
        split = sorted_files(tmp_path, 100, files=3)
    if kind == "some of files":
        numbers = np.delete(numbers, [0, 17, 18, 40, 99])
        # Take a part of a part.
        split = pick(pick(split, np.arange(99)), numbers)
    options = {**SMALL, "batch_size": 5}
    steps = len(numbers) // 5
    whole = labels_of(training_batches(split, **options), 2 * steps)
    labels = np.concatenate(whole).reshape(2, -1)
    assert (np.sort(labels) == numbers).all()
    assert (labels[0] != labels[1]).any() and (labels[0] != numbers).any()
    for start in (steps - 1, steps + 3):
        resumed = labels_of(training_batches(split, start_step=start, **options), 4)
        np.testing.assert_array_equal(resumed, whole[start : start + 4])
