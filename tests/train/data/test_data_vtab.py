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


def feature_values(number):
    """What example `number` of any split says about itself."""
    random = np.random.RandomState(number)
    objects = random.randint(3, 11)
    return {
        "label": number % 7,
        "label_x_position": number % 32,
        "label_orientation": number % 40,
        "label_azimuth": number % 18,
        "label_elevation": number % 9,
        "size": random.randint(0, 2, objects),
        "type": random.randint(0, 8, objects) if number % 3 else np.full(objects, 5),
        "pixel_coords": random.uniform(7, 14, (objects, 3)).astype("float32"),
        "location": random.uniform(0, 60, (objects, 3)).astype("float32"),
    }


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A TFDS data set with the features of all tasks; its images are numbered."""
    import tensorflow_datasets as tfds

    classes = {
        "label": 7,
        "label_x_position": 32,
        "label_orientation": 40,
        "label_azimuth": 18,
        "label_elevation": 9,
    }
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(None, None, 1)),
            "file_name": tfds.features.Text(),
            **{
                name: tfds.features.ClassLabel(num_classes=count)
                for name, count in classes.items()
            },
            "objects": tfds.features.Sequence(
                {
                    "size": tfds.features.ClassLabel(num_classes=2),
                    "type": tfds.features.ClassLabel(num_classes=8),
                    "pixel_coords": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                    "location": tfds.features.Tensor(shape=(3,), dtype=np.float32),
                }
            ),
        }
    )
    of_objects = ("size", "type", "pixel_coords", "location")

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
                example = {name: values[name] for name in classes}
                example["objects"] = {name: values[name] for name in of_objects}
                example["image"] = bits.reshape(4, 4, 1)
                example["file_name"] = str(number)
                yield number, example

    data_dir = tmp_path_factory.mktemp("tfds")
    builder = StandIn(data_dir=data_dir)
    builder.download_and_prepare()
    return data_dir


@pytest.fixture
def instead(monkeypatch, stand_in, png_only):
    """Every task with its own splits and label, but on the data set made here."""
    for name, count in FEW.items():
        assert getattr(vtab, name) == 10 * count
        monkeypatch.setattr(vtab, name, count)
    for name, task in TASKS.items():
        changes = {"dataset": "stand_in:1.*.*"}
        if task.feature == "label":
            changes["classes"] = 7
        monkeypatch.setitem(TASKS, name, task._replace(**changes))
    return stand_in


def numbers_and_labels(split):
    """The number in each image, 16 pixels of 0 and 1 (or 255), and the label."""
    examples = split.records().map(lambda record, label: (split.decode(record), label))
    images, labels = next(examples.batch(5000).as_numpy_iterator())
    bits = images[..., 0].reshape(-1, 16) > 0
    return np.packbits(bits, axis=1).view(">u2")[:, 0].tolist(), labels.tolist()


@pytest.fixture(scope="module")
def in_order(stand_in):
    """The numbers of each split in the order of TFDS."""
    import tensorflow_datasets as tfds

    builder = tfds.builder("stand_in", data_dir=stand_in)
    return {
        name: [
            int(example["file_name"])
            for example in tfds.as_numpy(builder.as_dataset(split=name))
        ]
        for name in SIZES
    }


def expected_label(name, values):
    """The definitions of the benchmark, in NumPy."""
    if name == "clevr_count":
        return len(values["size"]) - 3
    if name == "clevr_distance":
        thresholds = np.array([0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0])
        return np.nonzero(thresholds < values["pixel_coords"][:, 2].min())[0].max()
    if name == "kitti_distance":
        metres = [
            z
            for z, kind in zip(values["location"][:, 2], values["type"], strict=True)
            if kind in (0, 1, 2)
        ]
        if not metres:
            return 3
        return int(min(metres) > 8) + int(min(metres) > 20)
    if name == "dsprites_location":
        return int(np.floor(values["label_x_position"] / 2.0))
    if name == "dsprites_orientation":
        return int(np.floor(values["label_orientation"] / 2.5))
    return values[TASKS[name].feature]


SPLITS = {
    # The first number of validation and of test, and how many are tested.
    "caltech101": (("train", 216), ("test", 0, 60)),
    "oxford_iiit_pet": (("train", 192), ("test", 0, 60)),
    "dtd": (("validation", 0), ("test", 0, 60)),
    "eurosat": (("train", 144), ("train", 192, 48)),
    "clevr_count": (("train", 216), ("validation", 0, 23)),
    "clevr_distance": (("train", 216), ("validation", 0, 23)),
    "dsprites_location": (("train", 192), ("train", 216, 24)),
    "dsprites_orientation": (("train", 192), ("train", 216, 24)),
    "smallnorb_azimuth": (("test", 0), ("test", 30, 30)),
    "smallnorb_elevation": (("test", 0), ("test", 30, 30)),
    "kitti_distance": (("validation", 0), ("test", 0, 60)),
}
# Tasks with other labels for the examples of another one: only the test is read.
SPLITS_OF = {
    "clevr_distance": "clevr_count",
    "dsprites_orientation": "dsprites_location",
    "smallnorb_elevation": "smallnorb_azimuth",
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


@pytest.mark.parametrize("name", LIKE)
def test_tasks_with_the_splits_and_labels_of_others(name):
    fields = ("train", "validation", "test", "feature", "label", "names", "levels")
    task, other = TASKS[name], TASKS[LIKE[name]]
    assert [getattr(task, f) for f in fields] == [getattr(other, f) for f in fields]


@pytest.mark.parametrize("name", SPLITS)
def test_splits_and_labels(instead, in_order, name):
    source = load(f"vtab/{name}", instead, validation_fraction=0.2)
    (held, start), (tested, first, count) = SPLITS[name]
    expected = {
        "train": in_order["train"][:80],
        "validation": in_order[held][start : start + 20],
        "test": in_order[tested][first : first + count],
    }
    assert len(source.class_names) == TASKS[name].classes
    if name in SPLITS_OF:
        spans = [
            [getattr(TASKS[task], part) for part in expected]
            for task in (name, SPLITS_OF[name])
        ]
        assert spans[0] == spans[1]
        expected = {"test": expected["test"]}
    for part, numbers in expected.items():
        split = getattr(source, part)
        found, labels = numbers_and_labels(split)
        assert found == numbers
        assert split.num_examples == len(numbers)
        assert labels == [
            expected_label(name, feature_values(number)) for number in numbers
        ]
        assert max(labels) < TASKS[name].classes
    if name not in SPLITS_OF:
        assert not {*expected["train"]} & {*expected["validation"]}
        assert not {*expected["test"]} & {*expected["train"], *expected["validation"]}


def test_without_validation_both_parts_are_trained_on(instead):
    few = load("vtab/resisc45", instead, validation_fraction=0.5)
    source = load("vtab/resisc45", instead)
    assert source.validation is None
    assert source.name == "vtab/resisc45"
    assert source.train.num_examples == 100
    parts = (few.train, few.validation)
    numbers = sum((numbers_and_labels(part)[0] for part in parts), [])
    # TFDS reads the parts in turns.
    assert sorted(numbers_and_labels(source.train)[0]) == sorted(numbers)


def test_all_examples(instead):
    source = load("vtab-full/eurosat", instead, validation_fraction=0.5)
    parts = (source.train, source.validation, source.test)
    assert [part.num_examples for part in parts] == [144, 48, 48]
    found = sum((numbers_and_labels(part)[0] for part in parts), [])
    assert sorted(found) == list(range(240))
    assert load("vtab-full/eurosat", instead).train.num_examples == 192


def test_black_and_white_images_are_made_visible(instead):
    split = load("vtab/dsprites_location", instead).train
    record, _ = next(iter(split.records()))
    assert set(np.unique(split.decode(record))) == {0, 255}
    window = split.decode(record, lambda shape: tf.constant([1, 0, 2, 4]))
    np.testing.assert_array_equal(window, split.decode(record)[1:3])


def near(bounds):
    for bound in bounds:
        yield from (np.nextafter(bound, -1e9, dtype="float32"), np.float32(bound))
        yield np.nextafter(bound, 1e9, dtype="float32")


@pytest.mark.parametrize("distance", near([8.0, 8.5, 9.0, 9.5, 10.0]))
def test_clevr_distance_at_the_bounds(distance):
    coordinates = np.array([[0, 0, 50], [1, 90, distance]], "float32")
    found = vtab.clevr_distance({"objects": {"pixel_coords": coordinates}})
    expected = expected_label("clevr_distance", {"pixel_coords": coordinates})
    assert int(found) == expected


@pytest.mark.parametrize("distance", [-2.5, 0.0, *near([8.0, 20.0]), 998.0])
@pytest.mark.parametrize("kind", [2, 3])
def test_kitti_distance_at_the_bounds(distance, kind):
    values = {
        "type": np.array([3, kind, 7]),
        "location": np.array([[0, 0, 1], [5, 5, distance], [0, 0, 3]], "float32"),
    }
    found = vtab.kitti_distance(
        {"objects": {k: tf.constant(values[k]) for k in values}}
    )
    assert int(found) == expected_label("kitti_distance", values)


def test_kitti_without_objects():
    objects = {"type": tf.zeros(0, tf.int64), "location": tf.zeros((0, 3))}
    assert int(vtab.kitti_distance({"objects": objects})) == 3


def test_coarse_names():
    assert TASKS["dsprites_location"].names[:2] == ("0 to 1", "2 to 3")
    assert TASKS["dsprites_orientation"].names[:3] == ("0 to 2", "3 to 4", "5 to 7")
    assert TASKS["dsprites_orientation"].names[-1] == "38 to 39"


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
    if name == "dsprites_orientation":
        assert features["label_orientation"].num_classes == 40


def test_the_docs_have_the_table():
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text()
    rows = re.findall(r"(?m)^\| `(\w+)` \| (\w+) \| `(.*?)` \| (.*) \|$", page)
    documented = {
        name: (group, data, *rest.split(" | ")) for name, group, data, rest in rows
    }

    def part(split, first, last):
        return split if (first, last) == (0, 100) else f"{split} {first}-{last}%"

    assert {name: row[:6] for name, row in documented.items()} == {
        name: (
            task.group,
            task.dataset,
            *(part(*span) for span in (task.train, task.validation, task.test)),
            str(task.classes),
        )
        for name, task in TASKS.items()
    }


def test_groups():
    assert sorted([*SPLITS, *LIKE]) == sorted(TASKS)
    assert [len(tasks) for tasks in GROUPS.values()] == [7, 4, 8]
    assert sorted(sum(GROUPS.values(), ())) == sorted(TASKS)


def test_cifar100(shared):
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


def test_unknown_task(tmp_path):
    with pytest.raises(
        DataError, match=r'"clevr" is not a task.*did you mean clevr_count'
    ):
        load("vtab/clevr", tmp_path)


def test_data_with_other_classes(instead, monkeypatch):
    task = TASKS["dtd"]._replace(classes=47)
    monkeypatch.setitem(TASKS, "dtd", task)
    with pytest.raises(DataError, match="has 7 classes, but VTAB 47"):
        load("vtab/dtd", instead)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation": ("dev", 0, 100)}, r"has the splits .*but VTAB needs dev"),
        ({"train": ("train", 0, 33)}, "80 from number 0 to 79 for train: prepare"),
    ],
)
def test_data_with_other_splits(instead, monkeypatch, changes, message):
    monkeypatch.setitem(TASKS, "dtd", TASKS["dtd"]._replace(**changes))
    with pytest.raises(DataError, match=message):
        load("vtab/dtd", instead)


def test_means():
    accuracies = {name: number / 100 for number, name in enumerate(TASKS)}
    found = mean_by_group(accuracies)
    assert found["natural"] == pytest.approx(0.03)
    assert found["specialized"] == pytest.approx(0.085)
    assert found["structured"] == pytest.approx(0.145)
    # The mean of tasks, 0.09; that of the groups would be 0.0867.
    assert found["mean"] == pytest.approx(0.09)
    del accuracies["dtd"], accuracies["dmlab"]
    with pytest.raises(DataError, match=r"2 are missing \(dtd, dmlab\) and 0 are unkn"):
        mean_by_group(accuracies)
    with pytest.raises(DataError, match=r"1 are unknown \(imagenet\)"):
        mean_by_group({**accuracies, "imagenet": 0.5})


def test_a_whole_task(instead):
    parts = load("vtab/resisc45", instead, validation_fraction=0.5)
    whole = load("vtab/resisc45", instead, validation_fraction=None)
    numbers = [
        numbers_and_labels(part)[0]
        for part in (parts.train, parts.validation, parts.test)
    ]
    assert sorted(numbers_and_labels(whole.all)[0]) == sorted(sum(numbers, []))
    assert whole.total == parts.total == whole.all.num_examples
