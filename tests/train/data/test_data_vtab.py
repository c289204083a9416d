"""VTAB's tasks: their splits and labels, by the definitions of the benchmark."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from train.data.sources import DataError, load, vtab
from train.data.sources.vtab import GROUPS, TASKS, mean_by_group

# A tenth of what VTAB takes of a data set, and of the one that stands in for them.
FEW = {"_FEW_TRAIN": 80, "_FEW_VALIDATION": 20}
SIZES = {"train": 240, "validation": 23, "test": 60}
CLASSES = {
    "label": 7,
    "label_x_position": 32,
    "label_orientation": 40,
    "label_azimuth": 18,
    "label_elevation": 9,
}
OBJECTS = {"size": 2, "type": 8, "pixel_coords": None, "location": None}


def feature_values(number):
    """What example `number` of any split says about itself."""
    random = np.random.RandomState(number)
    objects = random.randint(3, 11)
    return {
        **{name: number % classes for name, classes in CLASSES.items()},
        "size": random.randint(0, 2, objects),
        "type": random.randint(0, 8, objects) if number % 3 else np.full(objects, 5),
        "pixel_coords": random.uniform(7, 14, (objects, 3)).astype("float32"),
        "location": random.uniform(0, 60, (objects, 3)).astype("float32"),
    }


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A TFDS data set with the features of all tasks; its images are numbered."""
    import tensorflow_datasets as tfds

    def feature(classes):
        if classes is None:
            return tfds.features.Tensor(shape=(3,), dtype=np.float32)
        return tfds.features.ClassLabel(num_classes=classes)

    objects = {name: feature(classes) for name, classes in OBJECTS.items()}
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 1)),
            "file_name": tfds.features.Text(),
            **{name: feature(classes) for name, classes in CLASSES.items()},
            "objects": tfds.features.Sequence(objects),
        }
    )

    class StandIn(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            starts = np.cumsum([0, *SIZES.values()])
            return {
                name: self._generate_examples(range(start, start + size))
                for start, (name, size) in zip(starts[:-1], SIZES.items(), strict=True)
            }

        def _generate_examples(self, numbers):
            for number in numbers:
                values = feature_values(number)
                bits = np.unpackbits(np.array([number], ">u2").view(np.uint8))
                yield (
                    number,
                    {
                        **{name: values[name] for name in CLASSES},
                        "objects": {name: values[name] for name in OBJECTS},
                        "image": bits.reshape(4, 4, 1),
                        "file_name": str(number),
                    },
                )

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
        classes = 7 if task.feature == "label" else task.classes
        changed = task._replace(dataset="stand_in:1.*.*", classes=classes)
        monkeypatch.setitem(TASKS, name, changed)
    return lambda name, fraction=0.5: load(name, stand_in, validation_fraction=fraction)


def numbers_and_labels(split):
    """The number in each image, 16 pixels of 0 and 1 (or 255), and the label."""
    examples = split.records().map(lambda record, label: (split.decode(record), label))
    images, labels = next(examples.batch(5000).as_numpy_iterator())
    assert len(images) == split.num_examples
    bits = images[..., 0].reshape(-1, 16) > 0
    return np.packbits(bits, axis=1).view(">u2")[:, 0].tolist(), labels.tolist()


def numbers_of(*splits):
    return sorted(number for split in splits for number in numbers_and_labels(split)[0])


@pytest.fixture(scope="module")
def in_order(stand_in):
    """The numbers of each split in the order of TFDS."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("stand_in", data_dir=stand_in)
    found = {name: tfds.as_numpy(builder.as_dataset(split=name)) for name in SIZES}
    return {name: [int(one["file_name"]) for one in found[name]] for name in SIZES}


def expected_label(name, values):
    """The definitions of the benchmark, in NumPy."""
    if name == "clevr_count":
        return len(values["size"]) - 3
    if name == "clevr_distance":
        thresholds = np.array([0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0])
        return np.nonzero(thresholds < values["pixel_coords"][:, 2].min())[0].max()
    if name == "kitti_distance":
        metres = values["location"][:, 2][np.isin(values["type"], [0, 1, 2])]
        if not len(metres):
            return 3
        return int(min(metres) > 8) + int(min(metres) > 20)
    if name == "dsprites_location":
        return int(np.floor(values["label_x_position"] / 2.0))
    if name == "dsprites_orientation":
        return int(np.floor(values["label_orientation"] / 2.5))
    return values[TASKS[name].feature]


# The first number of validation, and of the test, whose size is last.
SPLITS = {
    "caltech101": ("train", 216, "test", 0, 60),
    "oxford_iiit_pet": ("train", 192, "test", 0, 60),
    "dtd": ("validation", 0, "test", 0, 60),
    "eurosat": ("train", 144, "train", 192, 48),
    "clevr_count": ("train", 216, "validation", 0, 23),
    "clevr_distance": ("train", 216, "validation", 0, 23),
    "dsprites_location": ("train", 192, "train", 216, 24),
    "dsprites_orientation": ("train", 192, "train", 216, 24),
    "smallnorb_azimuth": ("test", 0, "test", 30, 30),
    "smallnorb_elevation": ("test", 0, "test", 30, 30),
    "kitti_distance": ("validation", 0, "test", 0, 60),
}
LIKE = {
    "cifar100": "caltech101",
    "svhn_cropped": "caltech101",
    "oxford_flowers102": "dtd",
    "sun397": "dtd",
    "patch_camelyon": "dtd",
    "diabetic_retinopathy": "dtd",
    "dmlab": "dtd",
    "resisc45": "eurosat",
}


def test_every_task_has_a_group_and_its_splits_are_tested():
    assert sorted([*SPLITS, *LIKE]) == sorted(TASKS)
    assert [len(tasks) for tasks in GROUPS.values()] == [7, 4, 8]
    assert sorted(sum(GROUPS.values(), ())) == sorted(TASKS)
    fields = ("train", "validation", "test", "feature", "label", "names", "levels")
    for name, like in LIKE.items():
        for field in fields:
            assert getattr(TASKS[name], field) == getattr(TASKS[like], field)


@pytest.mark.parametrize("name", SPLITS)
def test_splits_and_labels_are_those_of_the_benchmark(instead, in_order, name):
    source = instead(f"vtab/{name}")
    held, start, tested, first, count = SPLITS[name]
    expected = {
        "train": in_order["train"][:80],
        "validation": in_order[held][start : start + 20],
        "test": in_order[tested][first : first + count],
    }
    assert len(source.class_names) == TASKS[name].classes
    for part, numbers in expected.items():
        found, labels = numbers_and_labels(getattr(source, part))
        assert found == numbers
        values = map(feature_values, numbers)
        assert labels == [expected_label(name, one) for one in values]
        assert max(labels) < TASKS[name].classes
    assert len({*sum(expected.values(), [])}) == 100 + count


def test_parts_of_a_task_are_its_examples_however_it_is_divided(instead):
    few = instead("vtab/resisc45")
    numbers = numbers_of(few.train, few.validation)
    both = instead("vtab/resisc45", 0.0)
    assert both.name == "vtab/resisc45" and both.validation is None
    assert numbers_of(both.train) == numbers and len(numbers) == 100
    whole = instead("vtab/resisc45", None)
    assert numbers_of(whole.all) == sorted(numbers + numbers_of(few.test))
    assert whole.total == few.total == whole.all.num_examples
    every = instead("vtab-full/eurosat")
    parts = (every.train, every.validation, every.test)
    assert [part.num_examples for part in parts] == [144, 48, 48]
    assert numbers_of(*parts) == list(range(240))
    assert instead("vtab-full/eurosat", 0.0).train.num_examples == 192


def test_black_and_white_images_are_made_visible(instead):
    split = instead("vtab/dsprites_location", 0.0).train
    record, _ = next(iter(split.records()))
    assert set(np.unique(split.decode(record))) == {0, 255}
    window = split.decode(record, lambda shape: tf.constant([1, 0, 2, 4]))
    np.testing.assert_array_equal(window, split.decode(record)[1:3])


def near(*bounds):
    for bound in np.float32(bounds):
        yield from (
            np.nextafter(bound, -np.float32(9)),
            bound,
            np.nextafter(bound, 999),
        )


@pytest.mark.parametrize("distance", near(8.0, 8.5, 9.0, 9.5, 10.0))
def test_clevr_distance_at_the_bounds(distance):
    values = {"pixel_coords": np.array([[0, 0, 50], [1, 90, distance]], "float32")}
    found = vtab.clevr_distance({"objects": values})
    assert int(found) == expected_label("clevr_distance", values)


@pytest.mark.parametrize("distance", [-2.5, 0.0, *near(8.0, 20.0), 998.0])
@pytest.mark.parametrize("kind", [2, 3])
def test_kitti_distance_at_the_bounds(distance, kind):
    values = {
        "type": np.array([3, kind, 7]),
        "location": np.array([[0, 0, 1], [5, 5, distance], [0, 0, 3]], "float32"),
    }
    for objects in (values, {name: one[:0] for name, one in values.items()}):
        found = vtab.kitti_distance({"objects": objects})
        assert int(found) == expected_label("kitti_distance", objects)


@functools.cache
def features_of(dataset):
    import tensorflow_datasets as tfds

    return tfds.builder(dataset, data_dir="/nowhere").info.features


@pytest.mark.parametrize("name", TASKS)
def test_the_table_agrees_with_tfds(name):
    """Names, versions, features and class counts, by TFDS's own definitions."""
    import tensorflow_datasets as tfds

    task = TASKS[name]
    features = features_of(task.dataset)
    assert isinstance(features["image"], tfds.features.Image)
    if task.names is None:
        assert features[task.feature].num_classes == task.classes
    else:
        assert len(task.names) == task.classes
    if name == "kitti_distance":
        assert features["objects"]["type"].names[:3] == ["Car", "Van", "Truck"]
    if name == "dsprites_location":
        assert features["label_x_position"].num_classes == 32
        assert task.names[:2] == ("0 to 1", "2 to 3")
    if name == "dsprites_orientation":
        assert features["label_orientation"].num_classes == 40
        assert task.names[:3] == ("0 to 2", "3 to 4", "5 to 7")
        assert task.names[-1] == "38 to 39"


def test_the_docs_have_the_table():
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \| `(.*?)` \| (.*) \|$", page)

    def part(split, first, last):
        return split if (first, last) == (0, 100) else f"{split} {first}-{last}%"

    documented = {
        name: [group, data, *rest.split(" | ")] for name, group, data, rest in rows
    }
    for name, task in TASKS.items():
        parts = [part(*span) for span in (task.train, task.validation, task.test)]
        row = [task.group, task.dataset, *parts, str(task.classes)]
        assert documented.pop(name)[:6] == row
    assert not documented


def test_cifar100_has_the_examples_of_the_benchmark(shared):
    if not (shared / "tfds" / "cifar100").is_dir():
        pytest.skip(f"no cifar100 in {shared / 'tfds'}")
    source = load("vtab/cifar100", shared / "tfds", validation_fraction=0.2)
    parts = (source.train, source.validation, source.test)
    assert [part.num_examples for part in parts] == [800, 200, 10_000]
    assert source.train.name == "cifar100:3.*.* train[0:800]"
    assert source.validation.name == "cifar100:3.*.* train[45000:45200]"
    seen = [record.numpy() for part in parts[:2] for record, _ in part.records()]
    assert len(set(seen)) == len(seen) == 1000
    assert source.test.class_counts(100).tolist() == [100] * 100
    whole = load("vtab/cifar100", shared / "tfds").train
    assert {record.numpy() for record, _ in whole.records()} == set(seen)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 47}, "has 7 classes, but VTAB 47"),
        ({"validation": ("dev", 0, 100)}, r"has the splits .*but VTAB needs dev"),
        ({"train": ("train", 0, 33)}, "80 from number 0 to 79 for train: prepare"),
    ],
)
def test_other_data_than_the_benchmarks_are_refused(
    instead, monkeypatch, changes, message
):
    monkeypatch.setitem(TASKS, "dtd", TASKS["dtd"]._replace(**changes))
    with pytest.raises(DataError, match=message):
        instead("vtab/dtd")


def test_means_are_those_of_tasks():
    accuracies = {name: number / 100 for number, name in enumerate(TASKS)}
    # The mean of the groups would be 0.0867.
    expected = {
        "natural": 0.03,
        "specialized": 0.085,
        "structured": 0.145,
        "mean": 0.09,
    }
    assert mean_by_group(accuracies) == pytest.approx(expected)
    del accuracies["dtd"], accuracies["dmlab"]
    with pytest.raises(DataError, match=r"2 are missing \(dtd, dmlab\) and 0 are unkn"):
        mean_by_group(accuracies)
    with pytest.raises(DataError, match=r"1 are unknown \(imagenet\)"):
        mean_by_group({**accuracies, "imagenet": 0.5})
