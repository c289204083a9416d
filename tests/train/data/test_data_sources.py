import json
import os
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from train.data import finding, pipeline
from train.data.pipeline import evaluation_batches, explained
from train.data.registry import kind_of
from train.data.sources import DataError, corrupt, find_corrupt, load, splits
from train.data.sources.folder_source import load_folder
from train.data.sources.record_ranges import find_offsets
from train.data.sources.subset import hold_out, limited
from zoo.catalog.registry import PublishedModel
from zoo.text import printable

TFDS_DIR = Path(__file__).parents[4] / "shared" / "tfds"
PARTS = ("train", "validation", "test")
needs_cifar100 = pytest.mark.skipif(
    not (TFDS_DIR / "cifar100").is_dir(), reason=f"no cifar100 in {TFDS_DIR}"
)


def write_image(path, mode="RGB", size=(6, 4)):
    path.parent.mkdir(parents=True, exist_ok=True)
    count = size[0] * size[1] * len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.RandomState(len(path.name)).bytes(count)
    Image.frombytes(mode, size, pixels).save(path)


@pytest.fixture
def folder(tmp_path):
    for part, count in (("train", 5), ("test", 2)):
        for name in ("daisy", "tulip"):
            for i in range(count):
                write_image(tmp_path / part / name / f"{i}.png")
    return tmp_path


def labels_of(split):
    return [int(label) for _, label in split.records().as_numpy_iterator()]


def names_and_labels(split):
    return [
        (record.decode(), int(label))
        for record, label in split.records().as_numpy_iterator()
    ]


def names_of(split):
    return [Path(name).name for name, _ in names_and_labels(split)]


# Folders


def test_folder_reads_every_format_as_rgb(tmp_path):
    files = {
        "a.jpg": "RGB",
        "b.JPEG": "L",
        "c.PNG": "RGB",
        "d.png": "RGBA",
        "e.png": "L",
        "f.png": "LA",
        "g.BMP": "RGB",
        "h.gif": "RGB",
        "i.png": "P",
        "j.jpg": "CMYK",
    }
    for part in ("train", "test"):
        for name, mode in files.items():
            path = tmp_path / part / "rose" / name
            if mode == "P":
                write_image(path)
                Image.open(path).convert("P").save(path)
            else:
                write_image(path, mode)
        (tmp_path / part / "rose" / ".hidden.jpg").write_bytes(b"")
        (tmp_path / part / "rose" / "notes.txt").write_text("")
        (tmp_path / part / ".cache").mkdir()
    source = load(str(tmp_path))
    assert source.class_names == ("rose",)
    assert source.train.num_examples == len(files)
    assert names_of(source.train) == list(files)
    for (record, label), (name, mode) in zip(
        source.train.records(), files.items(), strict=True
    ):
        image = source.train.decode(record)
        assert image.shape == (4, 6, 3)
        assert image.dtype == tf.uint8
        assert int(label) == 0
        if name.lower().endswith((".png", ".bmp")):
            pixels = np.asarray(Image.open(record.numpy().decode()))
            if mode == "P":
                pixels = np.asarray(Image.open(record.numpy().decode()).convert("RGB"))
            elif mode in ("L", "LA"):
                gray = pixels if mode == "L" else pixels[..., 0]
                pixels = np.repeat(gray[..., None], 3, axis=-1)
            np.testing.assert_array_equal(image, pixels[..., :3])


def test_folder_labels_follow_sorted_class_names(folder):
    source = load(str(folder))
    assert source.class_names == ("daisy", "tulip")
    assert source.validation is None
    assert labels_of(source.train) == [0] * 5 + [1] * 5
    assert labels_of(source.test) == [0] * 2 + [1] * 2
    assert names_of(source.train) == [f"{i}.png" for i in range(5)] * 2


def test_folder_names_of_other_systems(tmp_path):
    """macOS has accents as characters of their own (NFD)."""
    for part, name in (("train", "e\u0301te\u0301"), ("test", "\xe9t\xe9")):
        write_image(tmp_path / part / name / "1.png")
        write_image(tmp_path / part / "zebra" / "1.png")
    source = load(str(tmp_path))
    assert source.class_names == ("zebra", "\xe9t\xe9")
    assert labels_of(source.train) == labels_of(source.test) == [0, 1]


def test_folder_validation_is_stratified_and_fixed(folder):
    source = load(str(folder), validation_fraction=0.4)
    again = load(str(folder), validation_fraction=0.4)
    assert labels_of(source.train) == [0] * 3 + [1] * 3
    assert labels_of(source.validation) == [0] * 2 + [1] * 2
    assert names_of(source.validation) == names_of(again.validation)
    daisies = names_of(source.train)[:3] + names_of(source.validation)[:2]
    assert sorted(daisies) == [f"{i}.png" for i in range(5)]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 1.5, 0.04, 0.97, float("nan")])
def test_unusable_validation_fraction(folder, fraction):
    with pytest.raises(
        DataError, match="validation_fraction=.* 10 examples of .*train"
    ):
        load(str(folder), validation_fraction=fraction)


@pytest.mark.parametrize("part", ["train", "test"])
def test_folder_without_a_part(folder, part):
    (folder / part).rename(folder / "elsewhere")
    with pytest.raises(DataError, match=rf"no folder .*{part}: expected one folder"):
        load(str(folder))


def test_a_folder_of_classes_has_a_fifth_for_the_test(tmp_path):
    sizes = {"daisy": 11, "rose": 2, "tulip": 5}
    for name, count in sizes.items():
        for number in range(count):
            write_image(tmp_path / name / f"{number}.png")
    source = load(str(tmp_path), validation_fraction=0.25)
    again = load(str(tmp_path), validation_fraction=0.25)
    assert source.class_names == ("daisy", "rose", "tulip")
    assert source.test.class_counts(3).tolist() == [2, 1, 1]
    everything = sorted(
        record.numpy().decode()
        for part in PARTS
        for record, _ in getattr(source, part).records()
    )
    assert everything == sorted(str(path) for path in tmp_path.glob("*/*.png"))
    for part in PARTS:
        split, other = getattr(source, part), getattr(again, part)
        assert names_and_labels(split) == names_and_labels(other)
        for name, label in names_and_labels(split):
            assert Path(name).parent.name == source.class_names[label]
    assert source.validation.num_examples == round((10 - 2 + 1 + 5) * 0.25)


def test_a_folder_of_classes_with_a_single_image(tmp_path):
    write_image(tmp_path / "daisy" / "0.png")
    with pytest.raises(DataError, match="daisy has one image, .*: add some"):
        load(str(tmp_path))


@pytest.mark.parametrize("name", ["validation", "val"])
def test_folder_with_a_validation_part(folder, name):
    for flower in ("daisy", "tulip"):
        write_image(folder / name / flower / "0.png")
    source = load(str(folder), validation_fraction=0.02)
    assert names_of(source.validation) == ["0.png"] * 2
    assert source.train.num_examples == 10
    assert load(str(folder)).validation is None
    (folder / "test").rename(folder / "elsewhere")
    source = load(str(folder), validation_fraction=0.2)
    assert names_of(source.test) == ["0.png"] * 2
    assert source.validation.num_examples == 2


def test_folder_with_two_validation_parts(folder):
    (folder / "validation").mkdir()
    (folder / "val").mkdir()
    with pytest.raises(DataError, match="has both validation and val: keep one"):
        load(str(folder))


@pytest.mark.parametrize(("part", "other"), [("train", "test"), ("test", "train")])
def test_folder_with_a_class_in_one_part_only(folder, part, other):
    write_image(folder / part / "rose" / "0.png")
    with pytest.raises(DataError, match=rf"{part} has .*'rose'.*{other} lacks"):
        load(str(folder))


def test_folder_with_an_empty_class(folder):
    (folder / "test" / "daisy" / "0.png").rename(folder / "0.png")
    (folder / "test" / "daisy" / "1.png").rename(folder / "test" / "daisy" / "1.psd")
    message = r"test/daisy has no images: expected .*; remove it, or add some \(\.jpg"
    with pytest.raises(DataError, match=message):
        load(str(folder))


@pytest.mark.parametrize("part", ["", "train"])
def test_a_folder_without_images_of_a_class_is_found_before_it_is_loaded(folder, part):
    finding.check(str(folder))
    place = folder / "train"
    (place / "rose" / "older").mkdir(parents=True)
    (place / "rose" / ".hidden.png").touch()
    with pytest.raises(DataError, match=r"train/rose has no images: expected"):
        finding.check(str(folder if part else place))
    with pytest.raises(DataError, match=f"daisy has no class .* above it, {place}$"):
        finding.check(str(place / "daisy"))


def test_folder_without_classes(tmp_path):
    write_image(tmp_path / "train" / "0.png")
    (tmp_path / "test").mkdir()
    with pytest.raises(DataError, match=r"train has no class folders: expected"):
        load(str(tmp_path))


@pytest.mark.parametrize("fraction", [None, 0.1])
def test_a_class_in_place_of_its_folder_names_the_folder_above(folder, fraction):
    train = folder / "train"
    with pytest.raises(DataError, match=f"directly: .* the folder above it, {train}$"):
        load_folder(str(train / "daisy"), None, fraction, False)


def test_a_file_in_place_of_a_folder_says_so(folder, monkeypatch):
    monkeypatch.chdir(folder / "train" / "daisy")
    for file in (str(folder / "train" / "daisy" / "0.png"), "0.png"):
        with pytest.raises(DataError, match='0.png", it is a file: pass the folder'):
            load(file)
    with pytest.raises(DataError, match="did you mean .*train/daisy\\? pass one"):
        load(str(folder / "trian" / "daisy"))


def test_one_image_that_is_left_out_is_one_image(folder, capsys):
    (folder / "train" / "daisy" / "0.png").write_bytes(b"no image")
    load(str(folder), skip_corrupt=True)
    assert "left out 1 image that cannot be read: " in capsys.readouterr().out


def test_find_corrupt_names_files_across_batches(tmp_path):
    for part in ("train", "test"):
        write_image(tmp_path / part / "a" / "000.png", size=(1, 1))
    content = (tmp_path / "train" / "a" / "000.png").read_bytes()
    for i in range(1, 150):
        (tmp_path / "train" / "a" / f"{i:03}.png").write_bytes(content)
    bad = [tmp_path / "train" / "a" / f"{i}.png" for i in (140, 141, 142)]
    bad[0].write_bytes(content[:40])
    bad[1].write_text("not an image")
    split = load(str(tmp_path)).train
    bad[2].unlink()
    assert find_corrupt(split) == [str(path) for path in bad]


def test_corrupt_images_are_left_out_when_asked(folder, capsys):
    before = load(str(folder), validation_fraction=0.4)
    every = {part: names_and_labels(getattr(before, part)) for part in PARTS}
    bad = [
        before.train.locate(1),
        str(folder / "test" / "tulip" / "1.png"),
        before.validation.locate(2),
    ]
    Path(bad[0]).write_text("not an image")
    Path(bad[1]).write_bytes(Path(bad[1]).read_bytes()[:40])
    Path(bad[2]).write_bytes(b"")

    source = load(str(folder), validation_fraction=0.4, skip_corrupt=True)
    assert sorted(source.skipped) == sorted(bad)
    for part in PARTS:
        split = getattr(source, part)
        rest = [pair for pair in every[part] if pair[0] not in bad]
        assert names_and_labels(split) == rest
        assert split.num_examples == len(rest)
        assert split.labels().tolist() == [label for _, label in rest]
        assert all(
            split.decode(record).shape == (4, 6, 3) for record, _ in split.records()
        )
        assert split.names() == [name for name, _ in rest]
    out = capsys.readouterr().out
    assert out.startswith(f"{folder}: left out 3 images that cannot be read: ")
    assert all(name in out for name in bad)


@pytest.mark.usefixtures("png_only")
def test_a_split_of_corrupt_images_alone(folder):
    for path in (folder / "test").glob("*/*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"none of the 4 images of .*test can be dec"):
        load(str(folder), skip_corrupt=True)


@pytest.mark.usefixtures("png_only")
def test_whole_images_are_checked_with_progress_and_stay(folder, monkeypatch, capsys):
    monkeypatch.setattr(corrupt, "_SHOWN_IMAGES", 10)
    source = load(str(folder), skip_corrupt=True)
    assert source.skipped == ()
    assert source.train.num_examples == 10
    out, err = capsys.readouterr()
    assert out == ""
    assert f"checking {folder / 'train'}: 100%" in err
    assert f"checking {folder / 'test'}" not in err


def test_pick_and_counts(folder):
    split = load(str(folder)).train
    assert split.class_counts(3).tolist() == [5, 5, 0]
    for indices in ([], [0], [1, 4, 5, 9]):
        part = splits.pick(split, indices)
        assert part.num_examples == len(indices)
        assert names_and_labels(part) == [names_and_labels(split)[i] for i in indices]
        assert part.labels().tolist() == labels_of(part)


# Names


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("digits", "digits"),
        ("vtab/dtd", "vtab"),
        ("vtab-full/kitti_distance", "vtab"),
        ("photos.csv", "csv"),
        ("cifar100/Photos.CSV", "csv"),
        ("records/train-*", "tfrecord"),
        ("/data/*.tfrecord", "tfrecord"),
        ("photos/", "folder"),
        ("~/photos", "folder"),
        ("a/b/c", "folder"),
        ("cifar100", "tfds"),
        ("cifar100:3.*.*", "tfds"),
        ("eurosat/rgb:2.*.*", "tfds"),
    ],
)
def test_what_a_name_means(name, kind):
    assert kind_of(name).name == kind


def test_an_existing_folder_is_none_of_these(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "photos.csv", "cifar100", "vtab/dtd"):
        Path(name).mkdir(parents=True)
    found = [kind_of(name).name for name in ("photos.csv", "cifar100", "./vtab/dtd")]
    assert found == ["folder"] * 3
    assert kind_of("digits").name == "digits"
    assert kind_of("vtab/dtd").name == "vtab"


# Digits


def test_digits_are_split_by_class():
    from sklearn.datasets import load_digits

    source = load("digits", validation_fraction=0.1)
    sizes = [source.train, source.validation, source.test]
    assert (
        source.test.class_counts(10).tolist()
        == np.bincount(labels_of(source.test), minlength=10).tolist()
    )
    assert [split.num_examples for split in sizes] == [1293, 144, 360]
    assert source.class_names == tuple("0123456789")
    seen = []
    for split in sizes:
        counts = np.bincount(labels_of(split), minlength=10)
        share = np.bincount(load_digits().target) * split.num_examples / 1797
        assert np.all(np.abs(counts - share) < 2)
        seen += [
            (record.tobytes(), int(label))
            for record, label in split.records().as_numpy_iterator()
        ]
    levels = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    expected = [
        (image.tobytes(), int(label))
        for image, label in zip(levels, load_digits().target, strict=True)
    ]
    assert sorted(seen) == sorted(expected)


def test_digits_decode_to_gray_rgb():
    split = load("digits").test
    record, _ = next(iter(split.records()))
    image = split.decode(record).numpy()
    assert image.shape == (8, 8, 3)
    assert image.dtype == np.uint8
    assert image.max() == 255
    np.testing.assert_array_equal(image, np.repeat(record.numpy(), 3, axis=-1))
    assert find_corrupt(split) == []


def test_hold_out_gives_each_class_its_share():
    labels = np.repeat([0, 1, 2], [50, 7, 143])
    kept, held = hold_out(labels, 40)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held])), range(200))
    assert np.all(np.abs(np.bincount(labels[held]) - [10, 1.4, 28.6]) < 1)
    assert hold_out(labels, 0)[1].size == 0


# TFDS


@pytest.fixture(scope="module")
def cifar100():
    return load("cifar100", TFDS_DIR, validation_fraction=0.02)


@needs_cifar100
def test_cifar100_sizes_and_names(cifar100):
    whole = load("cifar100:3.*.*", str(TFDS_DIR))
    assert (whole.train.num_examples, whole.test.num_examples) == (50_000, 10_000)
    assert whole.validation is None
    assert (cifar100.train.num_examples, cifar100.validation.num_examples) == (
        49_000,
        1_000,
    )
    assert len(cifar100.class_names) == 100
    assert cifar100.class_names[0] == "apple"
    assert cifar100.class_names[99] == "worm"


@needs_cifar100
def test_cifar100_is_what_tfds_gives(cifar100):
    import tensorflow_datasets as tfds

    for split, instruction in (
        (cifar100.train, "train[:98%]"),
        (cifar100.validation, "train[98%:]"),
        (cifar100.test, "test"),
    ):
        plain = tfds.load(
            "cifar100",
            split=instruction,
            data_dir=TFDS_DIR,
            as_supervised=True,
            read_config=tfds.ReadConfig(try_autocache=False),
        )
        assert len(plain) == split.num_examples
        for (record, label), (image, expected) in zip(
            split.records().take(20), plain.take(20), strict=True
        ):
            assert record.dtype == tf.string
            np.testing.assert_array_equal(split.decode(record), image)
            assert int(label) == int(expected)


@needs_cifar100
def test_prepared_data_need_no_network_and_say_nothing(monkeypatch, capfd):
    def refuse(*args):
        raise AssertionError(f"network access to {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    source = load("cifar100", TFDS_DIR)
    next(iter(source.train.records()))
    out, err = capfd.readouterr()
    assert out == ""
    assert "WARNING" not in err
    assert "%|" not in err


def write_tfds(
    data_dir,
    splits,
    label=("classLabel", {"numClasses": "2"}),
    shards=None,
    image=None,
    **info,
):
    """Writes the files of a TFDS data set without code, "tiny_images".

    Labels of each split, in the order of its files; their lengths where there are
    several, by split; and the bytes of all images, by default PNG whose pixels are
    their place.
    """
    shards = {name: [len(labels)] for name, labels in splits.items()} | (shards or {})
    folder = data_dir / "tiny_images" / "1.0.0"
    folder.mkdir(parents=True)
    python = "tensorflow_datasets.core.features"
    kind = {"classLabel": "class_label_feature.ClassLabel", "text": "text_feature.Text"}
    features = {
        "image": {
            "image": {"dtype": "uint8", "shape": {"dimensions": ["-1", "-1", "1"]}},
            "pythonClassName": f"{python}.image_feature.Image",
        },
        "label": {label[0]: label[1], "pythonClassName": f"{python}.{kind[label[0]]}"},
    }
    (folder / "features.json").write_text(
        json.dumps(
            {
                "featuresDict": {"features": features},
                "pythonClassName": f"{python}.features_dict.FeaturesDict",
            }
        )
    )
    (folder / "label.labels.txt").write_text("no\nyes\n")
    keys = [{"featureKey": "image"}, {"featureKey": "label"}]
    info |= {
        "fileFormat": "tfrecord",
        "name": "tiny_images",
        "version": "1.0.0",
        "supervisedKeys": {"tuple": {"items": keys}},
        "splits": [
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": name,
                "numBytes": "1000",
                "shardLengths": [str(length) for length in shards[name]],
            }
            for name in splits
        ],
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
    for name, labels in splits.items():
        ends = np.cumsum(shards[name])
        for shard, end in enumerate(ends):
            path = f"tiny_images-{name}.tfrecord-{shard:05}-of-{len(ends):05}"
            with tf.io.TFRecordWriter(str(folder / path)) as writer:
                for i in range(end - shards[name][shard], end):
                    content = image or gray_png(i)
                    writer.write(tfds_example(content, labels[i]))


def gray_png(value):
    return tf.io.encode_png(np.full((3, 2, 1), value, np.uint8)).numpy()


def tfds_example(image, label):
    if label == "corrupt":
        image, label = image[:30], 0
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    return example.SerializeToString()


def test_tfds_gray_images_and_its_own_test_split(tmp_path):
    write_tfds(tmp_path, {"train": [0, 1] * 5, "test": [1, 0], "validation": [1]})
    source = load("tiny_images", tmp_path, validation_fraction=0.3)
    assert source.class_names == ("no", "yes")
    assert source.test.num_examples == 2
    record, _ = next(iter(source.validation.records()))
    np.testing.assert_array_equal(
        source.train.decode(record), np.full((3, 2, 3), 7, np.uint8)
    )


@pytest.mark.usefixtures("png_only")
@pytest.mark.parametrize("is_in_order", [False, True])
def test_large_tfds_data_are_read_in_ranges(tmp_path, monkeypatch, is_in_order):
    """Where TFDS did not shuffle, from all over the file."""
    write_tfds(
        tmp_path,
        {"train": [0] * 100 + [1] * 100, "test": [0]},
        disableShuffling=is_in_order,
    )
    # The rest of the file is for validation.
    split = load("tiny_images", tmp_path, validation_fraction=0.1).train
    assert split.ranges()[0] == (12 if is_in_order else 1)
    plain = list(zip(values_of(split), labels_of(split), strict=True))
    seen = found_in_ranges(split)
    assert [seen[index] for index in range(180)] == plain
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 40)
    options = {"image_size": (2, 2), "batch_size": 20, "seed": 0}
    whole = pipeline.training_batches(split, **options).take(9).as_numpy_iterator()
    labels = [labels for _, labels in whole]
    assert np.concatenate(labels).sum() == 80
    assert (0 < labels[0].sum() < 20) == is_in_order
    resumed = pipeline.training_batches(split, start_step=5, **options).take(4)
    for (_, again), once in zip(resumed, labels[5:], strict=True):
        np.testing.assert_array_equal(again, once)


# Uneven, one a whole number of blocks, and more of them than are read at a time.
SHARDS = [[50, 17, 32, 70, 33], [33, *[5, 17, 16, 1] * 4, 20, 9]]


def found_in_ranges(split):
    """The value and label of each example by its index, as the ranges have them."""
    count, read = split.ranges()
    found = tf.data.Dataset.range(count).flat_map(read)
    found = found.map(
        lambda index, example: (index, split.decode(example[0])[0, 0, 0], example[1])
    )
    return {
        int(index): (int(value), int(label))
        for index, value, label in found.as_numpy_iterator()
    }


def values_of(split):
    records = split.records().map(lambda record, _: split.decode(record)[0, 0, 0])
    return [int(value) for value in records.as_numpy_iterator()]


def epoch_of(split):
    """The values and labels of one epoch of training."""
    options = {"image_size": (1, 1), "batch_size": split.num_examples, "crop": "resize"}
    [batch] = (
        pipeline.training_batches(split, seed=0, flip=False, **options)
        .take(1)
        .as_numpy_iterator()
    )
    values = np.rint((batch[0][:, 0, 0, 0] + 1) * 127.5).astype(int)
    return sorted(zip(values.tolist(), batch[1].tolist(), strict=True))


@pytest.mark.usefixtures("png_only")
@pytest.mark.parametrize(
    ("lengths", "is_in_order"), [(SHARDS[0], True), (SHARDS[1], False)]
)
def test_an_index_means_one_example_in_every_order(
    tmp_path, monkeypatch, lengths, is_in_order
):
    labels = np.arange(sum(lengths)) % 2
    write_tfds(
        tmp_path,
        {"train": labels.tolist(), "test": [0]},
        shards={"train": lengths},
        disableShuffling=is_in_order,
    )
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 40)
    # Both parts have a range of one file.
    source = load("tiny_images", tmp_path, validation_fraction=0.25)
    for split in (source.train, source.validation):
        values = values_of(split)
        assert (values == sorted(values)) == is_in_order
        seen = found_in_ranges(split)
        assert [seen[index][0] for index in range(split.num_examples)] == values
    part = limited(source.train, 90)
    values = values_of(part)
    seen = found_in_ranges(part)
    assert [seen[index][0] for index in range(90)] == values
    kept = sorted(values)
    assert len(kept) == 90
    assert epoch_of(part) == [(value, value % 2) for value in kept]


@pytest.mark.usefixtures("png_only")
@pytest.mark.parametrize("is_in_order", [False, True])
def test_corrupt_images_of_large_tfds_data_are_left_out(
    tmp_path, monkeypatch, is_in_order
):
    labels = [0, 1] * 101
    write_tfds(
        tmp_path,
        {"train": [*labels[:60], "corrupt", *labels[61:]], "test": [0]},
        shards={"train": SHARDS[0]},
        disableShuffling=is_in_order,
    )
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 40)
    source = load("tiny_images", tmp_path, skip_corrupt=True)
    # The eleventh of the second file.
    index = 60 if is_in_order else 16 + 10
    assert source.skipped == (f"example {index} of tiny_images train",)
    whole = sorted(set(range(202)) - {60})
    assert [value for value, _ in epoch_of(source.train)] == whole


# A byte of a record's length: up to 255 too long, 16 MB, beyond any file, and a file
# that ends early.
@pytest.mark.parametrize("place", [0, 3, 7, None])
def test_a_damaged_length_in_a_large_tfds_file(tmp_path, monkeypatch, place):
    write_tfds(tmp_path, {"train": [0, 1] * 20, "test": [0]}, disableShuffling=True)
    monkeypatch.setattr(pipeline, "SHUFFLE_BUFFER", 20)
    split = load("tiny_images", tmp_path).train
    path = next(tmp_path.glob("*/*/*train*"))
    content = bytearray(path.read_bytes())
    start = find_offsets(str(path), 40)[10]
    if place is None:
        del content[-7:]
    else:
        content[start + place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(
        DataError, match="train.tfrecord-00000-of-00001 is damaged.* 40;"
    ):
        pipeline.training_batches(split, image_size=(1, 1), batch_size=2, seed=0)
    path.unlink()
    with pytest.raises(DataError, match="cannot read .*train.tfrecord-00000-of-00001"):
        split.ranges()


def test_tfds_takes_validation_where_test_has_no_labels(tmp_path):
    write_tfds(tmp_path, {"train": [0, 1], "test": [-1, -1], "validation": [1, 0, 1]})
    source = load("tiny_images", tmp_path)
    assert source.test.name == "tiny_images validation"
    assert labels_of(source.test) == [1, 0, 1]


def test_tfds_without_labelled_test(tmp_path):
    write_tfds(tmp_path, {"train": [0, 1], "test": [-1, -1]})
    with pytest.raises(DataError, match=r"no labelled test .* \['test', 'train'\]"):
        load("tiny_images", tmp_path)


def test_tfds_without_train(tmp_path):
    write_tfds(tmp_path, {"test": [0, 1]})
    with pytest.raises(DataError, match=r"no train split, only \['test'\]"):
        load("tiny_images", tmp_path)


def test_tfds_that_is_no_classification(tmp_path):
    write_tfds(tmp_path, {"train": [0], "test": [0]}, label=("text", {}))
    with pytest.raises(
        DataError, match="not an image classification.*'label'.*ClassLabel"
    ):
        load("tiny_images", tmp_path)


@pytest.mark.usefixtures("png_only")
def test_find_corrupt_counts_tfds_examples(tmp_path):
    write_tfds(tmp_path, {"train": [0, 1, "corrupt", 1], "test": [0]})
    assert find_corrupt(load("tiny_images", tmp_path).train) == [
        "example 2 of tiny_images train"
    ]
    source = load("tiny_images", tmp_path, skip_corrupt=True)
    assert source.skipped == ("example 2 of tiny_images train",)
    assert labels_of(source.train) == source.train.labels().tolist() == [0, 1, 1]


@pytest.mark.usefixtures("png_only")
def test_damaged_tfds_files(tmp_path):
    write_tfds(tmp_path, {"train": [0, 1, 0, 1], "test": [0]})
    path = next(tmp_path.glob("*/*/*train*"))
    content = bytearray(path.read_bytes())
    content[len(content) * 5 // 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="files of tiny_images train are damaged"):
        load("tiny_images", tmp_path, skip_corrupt=True)
    split = load("tiny_images", tmp_path).train
    with pytest.raises(DataError, match="files of tiny_images train are damaged"):
        list(
            explained(evaluation_batches(split, image_size=(4, 4), batch_size=2), split)
        )


@pytest.mark.parametrize(
    ("name", "near"),
    [("cifar1000", "cifar100"), ("digit", "digits"), ("mnst", "mnist")],
)
def test_unknown_name_offers_near_ones(tmp_path, name, near):
    with pytest.raises(DataError, match=rf"did you mean .*{near}.*test}}/class/"):
        load(name, tmp_path)


@pytest.mark.parametrize("name", ["my photos", "cifar100:9.9.9"])
def test_name_that_tfds_refuses(tmp_path, name):
    with pytest.raises(DataError, match=f'"{name}" is not an existing folder, and'):
        load(name, tmp_path)


def test_data_that_cannot_be_downloaded(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def offline(self):
        raise ConnectionError("no route to host\n\nA page of help:\n- more")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", offline)
    with pytest.raises(
        DataError, match=r"oxford_iiit_pet is not prepared .*no route to host\): prep"
    ) as told:
        load("oxford_iiit_pet", tmp_path)
    assert "--data_dir" in str(told.value) and "help" not in str(told.value)


def test_of_a_long_refusal_by_tfds_the_first_line_is_shown(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    def refused(name, data_dir):
        raise ValueError("No such version.\nAvailable versions:\n- 1.0.0")

    monkeypatch.setattr(tfds, "builder", refused)
    with pytest.raises(DataError, match="cannot open it: No such version.$"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize("dataset", ["photoz/", "./photoz", "/no/photoz", "~/photoz"])
def test_a_path_that_is_no_folder_is_not_taken_for_a_name(dataset):
    with pytest.raises(DataError, match=f'there is no folder "{dataset}"'):
        load(dataset)


def test_a_file_does_not_hide_the_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cifar100", "cifar1000", "photos.zip"):
        Path(name).touch()
    finding.check("cifar100", tmp_path)
    for name in ("cifar1000", "photos.zip", "./cifar100"):
        with pytest.raises(DataError, match=f'no folder "{name}", it is a file: pass'):
            finding.check(name, tmp_path)


def test_a_similar_folder_is_asked_for_without_its_control_characters(tmp_path):
    (tmp_path / "pho\n\x1btos").mkdir()
    with pytest.raises(DataError) as found:
        finding.check(f"{tmp_path}/photos")
    assert rf"did you mean {tmp_path}/pho\x0a\x1btos? pass" in str(found.value)


# Names, and what is ignored


def test_ten_names_are_all_shown():
    names = list("abcdefghijk")
    ten = "a, b, c, d, e, f, g, h, i, j"
    assert splits.named(names[:10]) == ten
    assert splits.named(names) == f"{ten} and 1 more"


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("daisy", "tulip"):
        for i in range(3):
            write_image(folder / name / f"{i}.webp")
    return folder


def test_what_is_ignored_is_counted_and_named_in_one_line(photos, monkeypatch):
    for name in ("notes.txt", "tulip/x.heic", "Thumbs.db", "daisy/.DS_Store", "a.jpg"):
        (photos / name).write_bytes(b"")
    write_image(photos / "daisy" / "older" / "1.png")
    (photos / "daisy" / "gone.png").symlink_to("nowhere")
    lines = []
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    source = load(str(photos), log=lines.append)
    names = ("a.jpg", "daisy/gone.png", "daisy/older/", "notes.txt", "tulip/x.heic")
    assert source.ignored == names
    assert lines == [
        f"{photos}: 5 entries are ignored, no images in class folders: "
        f"{', '.join(names)}; HEIC photos are read where pillow-heif is: pip install "
        "pillow-heif"
    ]
    assert source.train.num_examples + source.test.num_examples == 6
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: True)
    assert load(str(photos), log=str).ignored == names[:-1]


def test_nothing_ignored_is_nothing_said(photos, capsys):
    load(str(photos))
    assert capsys.readouterr().out == ""


def test_only_heic_without_its_decoder_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.photos.files.reads_heic", lambda: False)
    (tmp_path / "daisy").mkdir()
    (tmp_path / "daisy" / "1.HEIC").write_bytes(b"")
    with pytest.raises(DataError, match="no images: .*pip install pillow-heif"):
        load(str(tmp_path))


NAMES = {
    b"two\nlines": r"two\x0alines",
    b"return\r": r"return\x0d",
    b"\x1b[31mred": r"\x1b[31mred",
    b"latin\xff": r"latin\udcff",
    "paragraph\u2029": r"paragraph\u2029",
    "\u202egpj": r"\u202egpj",
    "\u2067\u05e9\u2069": "\\u2067\u05e9\\u2069",
}


# With the marks that Hebrew and Arabic names have.
MARKED = ("\u05e9\u05dc\u05d5\u05dd\u200f (1)", "\u061cعبّاد", "a\u200e")


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("is_class", [True, False])
def test_names_that_no_list_could_hold_are_refused_by_path(photos, name, is_class):
    name = os.fsdecode(name)
    path = photos / name if is_class else photos / "tulip" / f"{name}.webp"
    if is_class:
        shutil.copytree(photos / "daisy", path)
    else:
        shutil.copy(photos / "daisy" / "0.webp", path)
    with pytest.raises(DataError) as raised:
        load(str(photos))
    [shown] = [NAMES[key] for key in NAMES if os.fsdecode(key) == name]
    place = f"{photos}/{shown}" if is_class else f"{photos}/tulip/{shown}.webp"
    assert str(raised.value).startswith(f"{place} has line breaks or other control")


def test_names_in_every_script_are_taken(photos):
    names = ("Gänse blümchen", "向日葵\u3000", "👩\u200d🌾", "عبّاد\u200c", *MARKED)
    for name in names:
        shutil.copytree(photos / "daisy", photos / name)
    classes = load(str(photos)).class_names
    assert {"daisy", "tulip", *names} == set(classes)
    # What a data set takes, a card takes when the model is published.
    card = PublishedModel(
        name="flowers",
        architecture={"hidden_size": 48},
        image_size=(32, 32),
        channels=3,
        classes=len(classes),
        class_names=classes,
        parameters=10,
        weights="model.npz",
        file_size=40,
        sha256=64 * "0",
        data_set="photos",
        metrics={},
        base=None,
        variant=None,
        licence="apache-2.0",
    )
    assert card.class_names == classes


def test_ignored_names_are_printable(photos):
    for name in (*NAMES, *MARKED):
        (photos / os.fsdecode(name)).write_bytes(b"")
    shown = load(str(photos)).ignored
    assert set(shown) == {*NAMES.values(), *MARKED}
    assert all(printable(name) == name for name in shown)


# Data that are not divided


def test_a_whole_folder(folder):
    """Classes may be in one part only, and have one image."""
    write_image(folder / "val" / "rose" / "0.png")
    whole = load(str(folder), validation_fraction=None)
    assert whole.class_names == ("daisy", "rose", "tulip")
    assert labels_of(whole.all) == [0] * 7 + [1] + [2] * 7
    assert whole.total == 15 and whole.train is whole.validation is whole.test is None
    parts = {Path(name).parts[-3] for name, _ in names_and_labels(whole.all)}
    assert parts == {"train", "test", "val"}
    shutil.rmtree(folder / "train")
    assert load(str(folder), validation_fraction=None).total == 5
    divided = load(str(folder / "test"), validation_fraction=0.5)
    assert divided.total == 4 and divided.test.num_examples == 2


def test_a_whole_folder_with_a_class_called_train(tmp_path):
    for name in ("train", "plane"):
        write_image(tmp_path / name / "0.png")
    whole = load(str(tmp_path), validation_fraction=None)
    assert whole.class_names == ("plane", "train") and labels_of(whole.all) == [0, 1]


def test_whole_digits():
    whole, parts = load("digits", validation_fraction=None), load("digits")
    assert whole.all.num_examples == whole.total == parts.total == 1797
    assert sorted(labels_of(whole.all)) == sorted(
        labels_of(parts.train) + labels_of(parts.test)
    )


@pytest.mark.usefixtures("png_only")
def test_corrupt_images_of_a_whole_folder(folder):
    (folder / "train" / "daisy" / "0.png").write_bytes(b"\x89PNG")
    whole = load(str(folder), validation_fraction=None, skip_corrupt=True)
    assert whole.all.num_examples == 13 and len(whole.skipped) == 1


def test_whole_tfds_data(tmp_path):
    """All labelled splits, without any for training too."""
    write_tfds(tmp_path, {"train": [0, 1], "test": [-1, -1], "extra": [1, 0, 1]})
    whole = load("tiny_images", tmp_path, validation_fraction=None)
    assert set(whole.all.name.split()[1].split("+")) == {"extra", "train"}
    assert sorted(labels_of(whole.all)) == [0, 0, 1, 1, 1] and whole.total == 5


def test_whole_tfds_data_without_labels(tmp_path):
    write_tfds(tmp_path, {"test": [-1, -1]})
    with pytest.raises(DataError, match="has no labels"):
        load("tiny_images", tmp_path, validation_fraction=None)
