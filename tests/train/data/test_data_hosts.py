"""Several hosts read what they prepare, and together the batches of one host."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from made_data import images, lay_out, packed, png, record, tiny_images, undecoded

from train.data import pipeline
from train.data.pipeline import (
    NO_LABEL,
    Share,
    evaluation_batches,
    training_batches,
)
from train.data.sources import load
from train.data.sources.record_ranges import find_offsets

pytestmark = pytest.mark.usefixtures("png_only")
SMALL = {"image_size": (1, 1), "batch_size": 8}
TRAINING = {**SMALL, "crop": "resize", "seed": 0}


def taken(batches, count=99):
    return list(batches.take(count).as_numpy_iterator())


def of_host(read, split, host, hosts, count=99, **options):
    """Returns the part of each batch that one of several hosts prepares."""
    share = Share(host, hosts, devices=hosts, filled=True)
    return taken(read(split, **{**options, "share": share}), count)


def together(parts):
    """Returns the batches of several hosts, put together."""
    return [
        tuple(np.concatenate(columns) for columns in zip(*batch, strict=True))
        for batch in zip(*parts, strict=True)
    ]


def assert_same(batches, expected):
    assert len(batches) == len(expected) > 0
    for one, other in zip(batches, expected, strict=True):
        for values, wanted in zip(one, other, strict=True):
            np.testing.assert_array_equal(values, wanted)


# Sources whose classes are in order in the files: the label is the image's number,
# or half of it.


def record_folder(tmp_path, monkeypatch, ending="", **settings):
    shares = np.array_split(np.arange(56), 3)
    files = {
        f"train-{number}.tfrecord{ending if number == 1 else ''}": [
            record(int(one), int(one)) for one in share
        ]
        for number, share in enumerate(shares)
    }
    lay_out(tmp_path / "data", {**files, "test.tfrecord": files["train-2.tfrecord"]})
    monkeypatch.chdir(tmp_path)
    return load("data", **{"validation_fraction": 0.25, **settings})


def corrected(tmp_path, monkeypatch):
    lay_out(
        tmp_path,
        {
            "out.csv": "path\ntrain-0.tfrecord record 2\n",
            "new.csv": "path,label\ntrain-1.tfrecord record 4,0\n",
        },
    )
    files = {"without": "out.csv", "relabel": "new.csv", "validation_fraction": 0}
    return record_folder(tmp_path, monkeypatch, **files)


def tfds(tmp_path, monkeypatch, is_in_order=False):
    labels = {"train": [0] * 30 + [1] * 30, "test": [0, 1, 0]}
    settings = {"shards": {"train": [9, 33, 18]}, "disableShuffling": is_in_order}
    lay_out(tmp_path, tiny_images(labels, **settings))
    return load("tiny_images", data_dir=tmp_path, validation_fraction=0.2)


SOURCES = {
    "records": record_folder,
    "compressed": lambda *fixtures: record_folder(*fixtures, ending=".gz"),
    "corrected": corrected,
    "tfds": tfds,
    "tfds in order": lambda *fixtures: tfds(*fixtures, is_in_order=True),
}


# A buffer that holds all examples, and one that does not.
@pytest.mark.parametrize(
    ("kind", "buffer", "hosts"),
    [
        *((kind, 20, 2) for kind in SOURCES),
        ("records", 20, 4),
        ("records", 50_000, 2),
        ("tfds", 50_000, 4),
    ],
)
def test_hosts_train_on_the_batches_of_one_and_resume(
    tmp_path, monkeypatch, kind, buffer, hosts
):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", buffer)
    split = SOURCES[kind](tmp_path, monkeypatch).train
    is_compressed = not split.record_files().can_read_each
    assert is_compressed == (kind == "compressed")
    # Two epochs and a part of the third.
    steps = 2 * split.num_examples // 8 + 2
    one = taken(training_batches(split, **TRAINING), steps)
    assert len({int(label) for _, labels in one[:2] for label in labels}) > 1
    parts = [
        of_host(training_batches, split, host, hosts, steps, **TRAINING)
        for host in range(hosts)
    ]
    assert_same(together(parts), one)
    # In the first epoch and in the third.
    for host, start in ((0, 3), (hosts - 1, steps - 1)):
        options = {**TRAINING, "start_step": start}
        count = steps - start
        resumed = of_host(training_batches, split, host, hosts, count, **options)
        assert_same(resumed, parts[host][start:])


@pytest.mark.parametrize(("kind", "hosts"), zip(SOURCES, [2, 2, 2, 4, 2], strict=True))
def test_hosts_evaluate_what_one_does(tmp_path, monkeypatch, kind, hosts):
    source = SOURCES[kind](tmp_path, monkeypatch)
    split = source.validation or source.test
    one = taken(evaluation_batches(split, **SMALL))
    [(images, labels)] = together([[batch] for batch in one])
    parts = [
        of_host(evaluation_batches, split, host, hosts, **SMALL)
        for host in range(hosts)
    ]
    batches = together(parts)
    assert all(len(labels) == 8 for _, labels in batches)
    [(found, numbers)] = together([[batch] for batch in batches])
    count = split.num_examples
    assert count % 8
    assert_same([(found[:count], numbers[:count])], [(images, labels)])
    assert (numbers[count:] == NO_LABEL).all()


# What a host reads


def bytes_read():
    """Returns how many bytes this process has asked of files."""
    counted = pathlib.Path("/proc/self/io").read_text()
    return int(counted.split("rchar: ")[1].split()[0])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="needs /proc")
@pytest.mark.parametrize("hosts", [2, 4])
@pytest.mark.parametrize("read", [training_batches, evaluation_batches])
def test_a_host_reads_the_bytes_of_its_own_examples(tmp_path, hosts, read):
    size, count = 100_000, 256
    noise = np.random.RandomState(0).bytes(size)
    records = [
        packed(**{"image/encoded": noise, "image/class/label": number})
        for number in range(count)
    ]
    lay_out(tmp_path, {"train-0.tfrecord": records, "test-0.tfrecord": records})
    split = undecoded(load(str(tmp_path), validation_fraction=0).train)
    options = {"image_size": (1, 1), "batch_size": 32}
    if read is training_batches:
        options |= {"crop": "resize", "seed": 0}
    share = Share(hosts - 1, hosts, hosts, filled=True)
    batches = read(split, share=share, **options)
    # Import and trace first.
    taken(batches, 1)
    before = bytes_read()
    assert len(taken(batches, count // 32)) == count // 32
    found = (bytes_read() - before) / (size * count)
    # In training, records of the next epoch are on their way.
    ahead = 64 / count if read is training_batches else 0
    assert 1 / hosts <= found <= 1 / hosts + 0.02 + ahead


def damage(path, kept):
    """Damages all records of a file but some, so that their checksums are wrong."""
    content = bytearray(path.read_bytes())
    offsets = find_offsets(str(path), 64)
    for number in set(range(64)) - set(kept):
        content[offsets[number] + 20] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("buffer", [50_000, 20])
def test_a_host_does_not_notice_damage_in_records_of_others(
    tmp_path, monkeypatch, buffer
):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", buffer)
    records = [record(number, number) for number in range(64)]
    lay_out(tmp_path, {"train-0.tfrecord": records, "test-0.tfrecord": records})
    source = load(str(tmp_path), validation_fraction=0)
    # A quarter of the epoch: the next records are on their way.
    options = {**TRAINING, "start_step": 6}
    of_one = [of_host(training_batches, source.train, 1, 2, 6, **options)]
    of_one += [of_host(evaluation_batches, source.test, 1, 2, **SMALL)]
    numbers = [np.concatenate([labels for _, labels in batches]) for batches in of_one]
    assert numbers[1].tolist() == [n for n in range(64) if n % 8 >= 4]
    damage(tmp_path / "train-0.tfrecord", numbers[0])
    damage(tmp_path / "test-0.tfrecord", numbers[1])
    again = of_host(evaluation_batches, source.test, 1, 2, **SMALL)
    assert_same(again, of_one[1])
    with pytest.raises(tf.errors.DataLossError):
        of_host(evaluation_batches, source.test, 0, 2, **SMALL)
    with pytest.raises(tf.errors.DataLossError):
        taken(training_batches(source.train, **TRAINING), 8)


def test_a_file_that_ends_early_is_an_error(tmp_path):
    records = [record(number, number) for number in range(64)]
    lay_out(tmp_path, {"train-0.tfrecord": records, "test-0.tfrecord": records})
    test = load(str(tmp_path)).test
    path = tmp_path / "test-0.tfrecord"
    os.truncate(path, find_offsets(str(path), 64)[40])
    batches = evaluation_batches(test, **{**SMALL, "share": Share(0, 2, 2, True)})
    with pytest.raises(tf.errors.InvalidArgumentError, match="image/encoded"):
        taken(batches)


def test_a_host_opens_its_own_files_of_a_folder(tmp_path):
    lay_out(tmp_path, images({"train/a": 16, "train/b": 16, "test/a": 1, "test/b": 1}))
    source = load(str(tmp_path), validation_fraction=0)
    batches = of_host(evaluation_batches, source.train, 0, 2, **SMALL)
    files = [source.train.locate(index) for index in range(32)]
    for index, path in enumerate(files):
        if index % 8 >= 4:
            pathlib.Path(path).unlink()
    assert_same(of_host(evaluation_batches, source.train, 0, 2, **SMALL), batches)
    assert png(0) == pathlib.Path(files[0]).read_bytes()
