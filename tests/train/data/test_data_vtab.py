"""VTAB's tasks: their splits and labels, by the definitions of the benchmark."""

import functools
import socket
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from train.data.sources import DataError, load, vtab
from train.data.sources.vtab import COMPUTED, TASKS, mean_by_group

# A tenth of what VTAB takes of a data set, and of the one that stands in for them.
FEW = {"_FEW_TRAIN": 80, "_FEW_VALIDATION": 20}
SIZES = {"train": 240, "validation": 23, "test": 60}
CLASSES = {"label": 7, "label_x_position": 32, "label_orientation": 40}
CLASSES |= {"label_azimuth": 18, "label_elevation": 9}


def example(number):
    random = np.random.RandomState(number)
    objects = random.randint(3, 11)
    kinds = random.randint(0, 8, objects) if number % 3 else np.full(objects, 5)
    return {name: number % classes for name, classes in CLASSES.items()} | {
        "image": np.eye(4, dtype="uint8")[..., None],
        "objects": {
            "size": random.randint(0, 2, objects),
            "type": kinds,
            "pixel_coords": random.uniform(7, 14, (objects, 3)).astype("float32"),
            "location": random.uniform(0, 60, (objects, 3)).astype("float32"),
        },
    }


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A TFDS data set with the features of all tasks."""
    import tensorflow_datasets as tfds

    place = tfds.features.Tensor(shape=(3,), dtype=np.float32)
    objects = {
        name: tfds.features.ClassLabel(num_classes=8) for name in ("size", "type")
    }
    objects |= {"pixel_coords": place, "location": place}
    features = {
        name: tfds.features.ClassLabel(num_classes=classes)
        for name, classes in CLASSES.items()
    }
    features["image"] = tfds.features.Image(shape=(None, None, 1))
    features["objects"] = tfds.features.Sequence(objects)

    class StandIn(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            described = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=described)

        def _split_generators(self, dl_manager):
            return {name: map(self.numbered, range(SIZES[name])) for name in SIZES}

        def numbered(self, number):
            return number, example(number)

        def _generate_examples(self):
            """Has nothing to do: the splits have their generators."""

    data_dir = tmp_path_factory.mktemp("tfds")
    StandIn(data_dir=data_dir).download_and_prepare()
    return data_dir


@pytest.fixture
def instead(monkeypatch, stand_in, png_only):
    """Loads a task with its own splits and label, but of the data set made here."""
    for name, count in FEW.items():
        assert getattr(vtab, name) == 10 * count
        monkeypatch.setattr(vtab, name, count)
    for name, task in TASKS.items():
        classes = "7" if task["feature"] == "label" else task["classes"]
        changed = {"dataset": "stand_in:1.*.*", "classes": classes}
        monkeypatch.setitem(TASKS, name, task | changed)
    return lambda name, fraction=0.5: load(
        name, data_dir=stand_in, validation_fraction=fraction
    )


@pytest.fixture(scope="module")
def in_order(stand_in):
    """The first examples to train on, in the order of TFDS."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("stand_in", data_dir=stand_in)
    return list(tfds.as_numpy(builder.as_dataset("train[0:80]")))


def expected_label(name, example):
    """The definitions of the benchmark, in NumPy."""
    objects = example["objects"]
    if name == "clevr_count":
        return len(objects["size"]) - 3
    if name == "clevr_distance":
        bounds = np.array([0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0])
        return np.nonzero(bounds < objects["pixel_coords"][:, 2].min())[0].max()
    if name == "kitti_distance":
        metres = objects["location"][:, 2][np.isin(objects["type"], [0, 1, 2])]
        return int(min(metres) > 8) + int(min(metres) > 20) if len(metres) else 3
    buckets = {"dsprites_location": 2.0, "dsprites_orientation": 2.5}
    return int(example[TASKS[name]["feature"]] // buckets.get(name, 1))


# The examples for training, validation and the test. Other tasks are divided as one of
# these is, says the table of the docs.
SPLITS = {
    "caltech101": "train[0:80] train[216:236] test[0:60]",
    "oxford_iiit_pet": "train[0:80] train[192:212] test[0:60]",
    "dtd": "train[0:80] validation[0:20] test[0:60]",
    "eurosat": "train[0:80] train[144:164] train[192:240]",
    "clevr_count": "train[0:80] train[216:236] validation[0:23]",
    "clevr_distance": "train[0:80] train[216:236] validation[0:23]",
    "dsprites_location": "train[0:80] train[192:212] train[216:240]",
    "dsprites_orientation": "train[0:80] train[192:212] train[216:240]",
    "smallnorb_azimuth": "train[0:80] test[0:20] test[30:60]",
    "smallnorb_elevation": "train[0:80] test[0:20] test[30:60]",
    "kitti_distance": "train[0:80] validation[0:20] test[0:60]",
}


def taken(*splits):
    """Returns which examples the splits are."""
    return [split.name.removeprefix("stand_in:1.*.* ") for split in splits]


@pytest.mark.parametrize("name", SPLITS)
def test_splits_and_labels_are_those_of_the_benchmark(instead, in_order, name):
    source = instead(f"vtab/{name}")
    parts = taken(source.train, source.validation, source.test)
    assert parts == SPLITS[name].split()
    labels = [expected_label(name, example) for example in in_order]
    assert source.train.labels().tolist() == labels
    assert max(labels) < int(TASKS[name]["classes"]) == len(source.class_names)


def test_parts_of_a_task_are_its_examples_however_it_is_divided(instead):
    both, whole = (instead("vtab/resisc45", fraction) for fraction in (0.0, None))
    assert both.name == "vtab/resisc45" and both.validation is None
    few = "train[0:80]+train[144:164]"
    assert taken(both.train, both.test) == [few, "train[192:240]"]
    assert taken(whole.all) == [f"{few}+train[192:240]"]
    assert both.total == whole.total == whole.all.num_examples == 148
    every = instead("vtab-full/eurosat")
    parts = taken(every.train, every.validation, every.test)
    assert parts == ["train[0:144]", "train[144:192]", "train[192:240]"]
    assert instead("vtab-full/eurosat", 0.0).train.num_examples == 192


def test_black_and_white_images_are_made_visible(instead):
    split = instead("vtab/dsprites_location", 0.0).train
    record, _ = next(iter(split.records()))
    assert set(np.unique(split.decode(record))) == {0, 255}


# The labels of distances: a bound belongs to the interval below it.
CLEVR = {8: 0, 8.00001: 1, 8.5: 1, 8.50001: 2, 9: 2, 9.00001: 3, 9.5: 3, 9.50001: 4}
CLEVR |= {10: 4, 10.00001: 5}
KITTI = {-2.5: 0, 8: 0, 8.00001: 1, 20: 1, 20.00001: 2, 998: 2}


def test_distances_at_the_bounds():
    for distance, label in CLEVR.items():
        objects = {"pixel_coords": tf.constant([[0.0, 0, 50], [1, 90, distance]])}
        assert int(vtab.clevr_distance({"objects": objects})) == label
    for distance, label in KITTI.items():
        # The truck or nothing, not the pedestrian and the tram, which are nearer.
        for kind, expected in ((2, label), (3, 3)):
            places = tf.constant([[0.0, 0, 1], [5, 5, distance], [0, 0, 3]])
            objects = {"type": tf.constant([3, kind, 7]), "location": places}
            assert int(vtab.kitti_distance({"objects": objects})) == expected


@functools.cache
def features_of(dataset):
    import tensorflow_datasets as tfds

    return tfds.builder(dataset, data_dir="/nowhere").info.features


@pytest.mark.parametrize("name", TASKS)
def test_the_table_agrees_with_tfds_and_the_docs(name):
    """Names, versions, features and class counts, by TFDS's own definitions."""
    task = TASKS[name]
    features = features_of(task["dataset"])
    assert type(features["image"]).__name__ == "Image"
    _, names = COMPUTED.get(name, (None, features[task["feature"]]))
    classes = len(getattr(names, "names", names))
    if name == "kitti_distance":
        assert features["objects"]["type"].names[:3] == ["Car", "Van", "Truck"]
    row = [task["group"], f"`{task['dataset']}`"]
    for part in ("train", "validation", "test"):
        split, *percents = task[part].split()
        whole = percents == ["0", "100"]
        row.append(split if whole else "{} {}-{}%".format(split, *percents))
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    assert f"\n| `{name}` | {' | '.join(row)} | {classes} | " in page
    assert classes == int(task["classes"])


def test_names_of_buckets():
    assert COMPUTED["dsprites_location"][1][:2] == ("0 to 1", "2 to 3")
    _, names = COMPUTED["dsprites_orientation"]
    assert names[:3] == ("0 to 2", "3 to 4", "5 to 7") and names[-1] == "38 to 39"


def test_cifar100_is_read_without_a_network_as_the_benchmark_has_it(
    shared, monkeypatch, capfd
):
    import tensorflow_datasets as tfds

    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(socket, "getaddrinfo", None)
    source = load("vtab/cifar100", data_dir=shared / "tfds", validation_fraction=0.2)
    for split, count, part in (
        (source.train, 800, "train[0:800]"),
        (source.validation, 200, "train[45000:45200]"),
        (source.test, 10_000, "test[0:10000]"),
    ):
        assert split.num_examples == count and split.name == f"cifar100:3.*.* {part}"
        plain = tfds.load(
            "cifar100", split=part, data_dir=shared / "tfds", as_supervised=True
        )
        assert len(plain) == count
        pairs = zip(split.records().take(20), plain.take(20), strict=True)
        for (content, label), (image, expected) in pairs:
            np.testing.assert_array_equal(tf.io.decode_png(content), image)
            assert int(label) == int(expected)
    whole = load("vtab/cifar100", data_dir=shared / "tfds").train
    records = {record.numpy() for record, _ in whole.records()}
    assert len(records) == whole.num_examples == 1000
    out, err = capfd.readouterr()
    assert out == "" and "WARNING" not in err and "%|" not in err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": "47"}, "has 7 classes, but VTAB 47"),
        ({"validation": "dev 0 100"}, r"has the splits .*but VTAB needs dev"),
        ({"train": "train 0 33"}, "80 from number 0 to 79 for train: prepare"),
    ],
)
def test_other_data_than_the_benchmarks_are_refused(
    instead, monkeypatch, changes, message
):
    monkeypatch.setitem(TASKS, "dtd", TASKS["dtd"] | changes)
    with pytest.raises(DataError, match=message):
        instead("vtab/dtd")


def test_means_are_those_of_tasks():
    accuracies = {name: number / 100 for number, name in enumerate(TASKS)}
    # The mean of the groups would be 0.0867.
    means = {"natural": 0.03, "specialized": 0.085, "structured": 0.145, "mean": 0.09}
    assert mean_by_group(accuracies) == pytest.approx(means)
    del accuracies["dtd"], accuracies["dmlab"]
    accuracies["imagenet"] = 0.5
    with pytest.raises(
        DataError, match=r"2 are .* \(dtd, dmlab\) and 1 .*\(imagenet\)"
    ):
        mean_by_group(accuracies)
