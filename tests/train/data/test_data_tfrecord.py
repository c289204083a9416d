import dataclasses
import functools
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from train.data import pipeline
from train.data.pipeline import evaluation_batches, training_batches
from train.data.sources import DataError, load
from train.data.sources.record_ranges import find_offsets


def png(number):
    return tf.io.encode_png(np.full((2, 3, 3), number, np.uint8)).numpy()


def example(number, label, text=None, **changes):
    values = {"image/encoded": png(number), "image/class/label": label}
    if text is not None:
        values["image/class/text"] = text
    features = {}
    for key, value in {**values, **changes}.items():
        if isinstance(value, bytes):
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif value is None:
            continue
        else:
            value = value if isinstance(value, list) else [value]
            feature = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
        features[key] = feature
    whole = tf.train.Example(features=tf.train.Features(feature=features))
    return whole.SerializeToString()


def write(path, records, options=None):
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for record in records:
            writer.write(record)


def examples(split):
    return [
        (int(split.decode(record)[0, 0, 0]), int(label))
        for record, label in split.records()
    ]


def undecoded(split):
    """The split with a black pixel for each image: the graph of decoding is large."""
    return dataclasses.replace(split, read=lambda record: tf.zeros((1, 1, 3), tf.uint8))


@pytest.fixture
def folder(tmp_path, png_only):
    write(tmp_path / "train-00001-of-00002.tfrecord", [example(3, 1), example(4, 0)])
    write(tmp_path / "train-00000-of-00002.tfrecord", [example(i, i) for i in range(3)])
    write(tmp_path / "test-0.tfrecords", [example(5, 2)])
    return tmp_path


def test_files_of_a_folder_in_order(folder):
    (folder / "notes.txt").write_text("")
    source = load(str(folder))
    assert source.class_names == ("0", "1", "2")
    assert examples(source.train) == [(0, 0), (1, 1), (2, 2), (3, 1), (4, 0)]
    assert examples(source.test) == [(5, 2)]
    assert source.train.num_examples == 5
    assert source.train.class_counts(3).tolist() == [2, 2, 1]
    assert source.validation is None
    where = source.train.locate(3)
    assert where == f"{folder / 'train-00001-of-00002.tfrecord'} record 1"


def test_batches(folder):
    source = load(str(folder), validation_fraction=0.4)
    assert len(source.validation.labels()) == source.validation.num_examples == 2
    images, labels = next(
        iter(evaluation_batches(source.validation, image_size=(4, 4), batch_size=8))
    )
    np.testing.assert_array_equal(source.validation.labels(), labels)
    numbers = np.rint(images[:, 0, 0, 0].numpy() * 127.5 + 127.5).astype(int)
    seen = examples(source.train)
    assert sorted([*seen, *zip(numbers, labels.numpy(), strict=True)]) == [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 1),
        (4, 0),
    ]
    train = undecoded(source.train)
    batches = training_batches(train, image_size=(4, 4), batch_size=3, seed=0)
    _, labels = next(iter(batches))
    assert sorted(labels.numpy()) == sorted(label for _, label in seen)


def test_a_pattern_takes_some_of_the_files(folder):
    write(folder / "train-9.old", [example(9, 9)])
    write(folder / "test-00000-of-00001", [example(7, 1)])
    source = load(str(folder / "*-00000-of-*"))
    assert examples(source.train) == [(0, 0), (1, 1), (2, 2)]
    assert examples(source.test) == [(7, 1)]
    with pytest.raises(DataError, match=r"no TFRecord files .*none\*: expected"):
        load(str(folder / "none*"))


def test_files_of_other_names_are_named(folder, capsys):
    (folder / "class_names.txt").write_text("a\nb\nc\n")
    (folder / ".hidden.tfrecord").write_bytes(b"")
    assert load(str(folder)).ignored == ()
    assert capsys.readouterr().out == ""
    for name in ("train_2.tfrecord", "Train-3.tfrecord", "val-0.tfrecord"):
        write(folder / name, [example(8, 0)])
    (folder / "older").mkdir()
    source = load(str(folder))
    assert source.train.num_examples == 5
    names = ("Train-3.tfrecord", "older/", "train_2.tfrecord", "val-0.tfrecord")
    assert source.ignored == names
    assert capsys.readouterr().out == (
        f"{folder}: 4 entries are ignored, no TFRecord files of train, validation or "
        f"test by their names: {', '.join(names)}\n"
    )
    # Of a pattern, what it means.
    assert load(str(folder / "t*")).ignored == ("train_2.tfrecord",)


def test_files_for_validation(folder):
    write(folder / "validation.tfrecord", [example(6, 1)])
    source = load(str(folder), validation_fraction=0.1)
    assert examples(source.validation) == [(6, 1)]
    assert source.train.num_examples == 5
    (folder / "test-0.tfrecords").unlink()
    source = load(str(folder))
    assert examples(source.test) == [(6, 1)]
    assert source.validation is None


def test_names_without_an_ending_and_compressed_files(tmp_path):
    write(tmp_path / "train-00000-of-00002", [example(0, 0)])
    write(tmp_path / "train-00001-of-00002.tfrecord.gz", [example(1, 1)], "GZIP")
    write(tmp_path / "validation-00000-of-00001", [example(2, 1)])
    source = load(str(tmp_path))
    assert examples(source.train) == [(0, 0), (1, 1)]
    assert examples(source.test) == [(2, 1)]


def test_a_folder_of_images_goes_first(folder):
    for part in ("train", "test"):
        (folder / part / "daisy").mkdir(parents=True)
        (folder / part / "daisy" / "1.png").write_bytes(png(1))
    assert load(str(folder)).class_names == ("daisy",)


def test_names_from_the_records(tmp_path):
    write(
        tmp_path / "train.tfrecord", [example(0, 2, b"rose"), example(1, 0, b"aster")]
    )
    write(tmp_path / "test.tfrecord", [example(0, 2, b"rose")])
    assert load(str(tmp_path)).class_names == ("aster", "1", "rose")
    write(tmp_path / "test.tfrecord", [example(0, 2, b"lily")])
    with pytest.raises(DataError, match=r"label 2 has the names \['lily', 'rose'\]"):
        load(str(tmp_path))
    (tmp_path / "class_names.txt").write_text("a\nb\nc\n\n")
    assert load(str(tmp_path)).class_names == ("a", "b", "c")


def test_a_label_beyond_the_names(tmp_path):
    write(tmp_path / "train.tfrecord", [example(0, 1), example(1, 2)])
    write(tmp_path / "test.tfrecord", [example(0, 1)])
    (tmp_path / "class_names.txt").write_text("a\nb\n")
    with pytest.raises(
        DataError, match=r"record 2 has the label 2, .* 2 lines.*least label is 1"
    ):
        load(str(tmp_path))


BAD = {
    "no label": (
        example(1, None),
        r"record 3 has no image/class/label .*\['image/encoded'\]",
    ),
    "no image": (example(1, 0, **{"image/encoded": None}), "3 has no image/encoded"),
    "empty image": (example(1, 0, **{"image/encoded": b""}), "3 has an empty image"),
    "text label": (example(1, b"daisy"), "3 has no image/class/label with one value"),
    "two labels": (example(1, [0, 1]), "3 has no image/class/label with one value"),
    "negative label": (example(1, -1), "record 3 has the label -1: labels count from"),
    "other records": (b"\xff\xff\xff", r"record 3 is no tf\.train\.Example"),
}


@pytest.mark.parametrize("name", BAD)
def test_records_with_other_features(folder, name):
    record, message = BAD[name]
    path = folder / "train-9.tfrecord"
    write(path, [example(0, 0), example(1, 0), record])
    with pytest.raises(DataError, match=rf"{path} .*{message}|{path} {message}"):
        load(str(folder))


@pytest.mark.parametrize("damage", ["flipped", "cut", "text"])
def test_damaged_files(folder, damage):
    path = folder / "train-00000-of-00002.tfrecord"
    content = bytearray(path.read_bytes())
    size = len(content) // 3
    if damage == "flipped":
        content[size + size // 2] ^= 1
    elif damage == "cut":
        content = content[: size + size // 2]
    else:
        content = content[:size] + b"no record at all, but text"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path} is damaged after 1 whole records"):
        load(str(folder))


def test_an_image_that_cannot_be_decoded(folder):
    path = folder / "train-9.tfrecord"
    write(path, [example(0, 0), example(0, 0, **{"image/encoded": b"no image"})])
    source = load(str(folder), skip_corrupt=True)
    assert source.skipped == (f"{path} record 2",)
    assert source.train.num_examples == 6


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_part_without_records(folder, part):
    for path in folder.glob(f"{part}-*"):
        write(path, [])
    with pytest.raises(DataError, match=f"files of .* for {part} are empty"):
        load(str(folder))


def test_only_files_to_test_on(folder):
    for path in folder.glob("train-*"):
        path.unlink()
    with pytest.raises(DataError, match=r"has nothing for train: expected TFRecord"):
        load(str(folder))


def test_places_of_records(tmp_path):
    records = [b"x" * length for length in (0, 1, 300, 7)]
    write(tmp_path / "train.tfrecord", records)
    places = find_offsets(tmp_path / "train.tfrecord", 4)
    assert np.diff(places).tolist() == [16 + 0, 16 + 1, 16 + 300, 16 + 7]
    assert places[0] == 0 and places[-1] == (tmp_path / "train.tfrecord").stat().st_size


def test_large_and_compressed_files_are_read_from_several_at_a_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 8)
    for file in range(4):
        path = tmp_path / f"train-{file}.tfrecord.gz"
        write(path, [example(file, file * 40 + i) for i in range(40)], "GZIP")
    write(tmp_path / "test.tfrecord", [example(0, 0)])
    split = undecoded(load(str(tmp_path)).train)
    batches = training_batches(split, image_size=(4, 4), batch_size=40, seed=0)
    labels = np.stack([labels for _, labels in batches.take(4).as_numpy_iterator()])
    assert (np.sort(labels, axis=None) == np.arange(160)).all()
    assert len(set(labels[0] // 40)) == 4


@pytest.mark.parametrize("text", [b"two\nlines", b"latin\xff", b"\x1b[31m"])
def test_names_that_no_list_could_hold(tmp_path, text):
    write(tmp_path / "train.tfrecord", [example(0, 0, text)])
    write(tmp_path / "test.tfrecord", [example(1, 0, text)])
    with pytest.raises(DataError, match="tfrecord: the image/class/text .*not UTF-8"):
        load(str(tmp_path))
    (tmp_path / "class_names.txt").write_text("rose\x0bred\n")
    with pytest.raises(DataError, match="class_names.txt line 1 has line breaks"):
        load(str(tmp_path))


def test_photos_in_records_stand_upright(tmp_path):
    described = Image.Exif()
    described[0x0112] = 6
    stream = io.BytesIO()
    Image.new("RGB", (9, 4)).save(stream, "JPEG", exif=described)
    photo = {"image/encoded": stream.getvalue()}
    for part in ("train", "test"):
        write(tmp_path / f"{part}.tfrecord", [example(0, 0, **photo)])
    [(record, _)] = load(str(tmp_path)).train.records()
    assert load(str(tmp_path)).train.decode(record).shape == (9, 4, 3)


def test_whole_files_need_no_parts(folder):
    whole = load(str(folder), validation_fraction=None)
    files = [(5, 2), (0, 0), (1, 1), (2, 2), (3, 1), (4, 0)]
    assert sorted(examples(whole.all)) == sorted(files) and whole.total == 6
    only = load(str(folder / "test-*"), validation_fraction=None)
    assert examples(only.all) == [(5, 2)]


@pytest.mark.parametrize("hosts, options", [(2, ""), (4, "GZIP")])
def test_workers_share_the_records(tmp_path, monkeypatch, hosts, options):
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 8)
    ending = ".gz" if options else ""
    for file in range(5):
        records = [example(file, file * 16 + i) for i in range(16)]
        write(tmp_path / f"train-{file}.tfrecord{ending}", records, options or None)
    write(tmp_path / "test.tfrecord", [example(0, i) for i in range(9)])
    source = load(str(tmp_path))
    train, settings = undecoded(source.train), {"image_size": (4, 4)}

    def labels(batches, steps=None, **share):
        share = pipeline.Share(devices=hosts, filled=True, **share)
        found = batches(share=share)
        found = found if steps is None else found.take(steps)
        return [labels.tolist() for _, labels in found.as_numpy_iterator()]

    def joined(batches, host_steps):
        """What the workers read, batch by batch; one alone reads the same."""
        alone = labels(batches, host_steps and host_steps * hosts)
        shares = [
            labels(batches, host_steps, host=host, hosts=hosts) for host in range(hosts)
        ]
        together = [part for step in zip(*shares, strict=True) for part in step]
        assert together == alone
        return np.concatenate(together)

    training = functools.partial(
        training_batches, train, batch_size=8, seed=3, **settings
    )
    two_epochs = joined(training, 20).reshape(2, 80)
    assert (np.sort(two_epochs) == np.arange(80)).all()
    assert (two_epochs[0] != two_epochs[1]).any()
    later = joined(functools.partial(training, start_step=13), 7)
    assert (later == two_epochs.ravel()[13 * 8 :]).all()
    test = undecoded(source.test)
    read = joined(
        functools.partial(evaluation_batches, test, batch_size=8, **settings), None
    )
    assert read.tolist() == [*range(9), *[pipeline.NO_LABEL] * 7]
