"""The Visual Task Adaptation Benchmark: 19 tasks from TFDS, with 1,000 examples each.

`TASKS` is the benchmark: which TFDS data set, which of its examples, what the label is.
"vtab/dtd" is VTAB-1k, 800 examples to train on, 200 for validation and all test images;
"vtab-full/dtd" is the same task with all examples.

Names, versions, splits, thresholds and class counts are those of the benchmark's code
(google-research/task_adaptation, data/*.py, read at several commits). They agree with
the VTAB config of google-research/scenic, but for 1,000 instead of 800 examples of
clevr_count there, and with the features that TFDS 4.9 gives. Not checked except for
cifar100, as the data are not available: that TFDS still prepares the same examples in
the same order. Two versions have changed: Oxford Pets is 4.0.0, with corrupt images
repaired, where the benchmark had 3.*.*; KITTI 3.3.0 where it had 3.1.0.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from train.data.sources.splits import DataError, Source
from train.data.sources.tfds_source import open_builder, tfds_split

_FEW_TRAIN, _FEW_VALIDATION = 800, 200


@dataclasses.dataclass(frozen=True)
class Task:
    """One task; a part of a data set is `(TFDS split, first percent, last percent)`.

    `label` turns an example with the `feature` into its label; None where that is the
    feature. `names` is None for the names of TFDS, `meaning` says what the label is,
    and pixels are multiplied by `levels`.
    """

    group: str
    dataset: str
    classes: int
    train: tuple[str, int, int] = ("train", 0, 100)
    validation: tuple[str, int, int] = ("validation", 0, 100)
    test: tuple[str, int, int] = ("test", 0, 100)
    feature: str = "label"
    label: Callable[[Mapping[str, Any]], tf.Tensor] | None = None
    names: tuple[str, ...] | None = None
    meaning: str = "the class"
    levels: int = 1


def interval(value, bounds):
    """Returns the number of the interval of a value, which has its upper bound."""
    above = tf.cast(tf.constant(bounds, tf.float32) < value, tf.int64)
    return tf.reduce_sum(above) - 1


def clevr_count(example):
    """Returns the label of the number of objects, 3 to 10."""
    return tf.size(example["objects"]["size"], tf.int64) - 3


def clevr_distance(example):
    """Returns the label of the distance of the closest object."""
    distances = example["objects"]["pixel_coords"][:, 2]
    return interval(tf.reduce_min(distances), CLEVR_BOUNDS)


def kitti_distance(example):
    """Returns the label of the distance of the closest car, van or truck."""
    is_vehicle = example["objects"]["type"] < 3
    metres = tf.boolean_mask(example["objects"]["location"][:, 2], is_vehicle)
    return interval(tf.reduce_min(tf.concat([metres, [1000.0]], 0)), KITTI_BOUNDS)


def bucket(feature, values, classes=16):
    """Returns the fields of a task whose label is a number, binned to classes."""
    buckets = np.arange(values) * classes // values
    members = [np.flatnonzero(buckets == number) for number in range(classes)]
    return {
        "classes": classes,
        "feature": feature,
        "label": lambda example: example[feature] * classes // values,
        "names": tuple(f"{group[0]} to {group[-1]}" for group in members),
    }


CLEVR_BOUNDS = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_BOUNDS = (-100.0, 8.0, 20.0, 999.0)
_90 = {"train": ("train", 0, 90), "validation": ("train", 90, 100)}
_60 = {
    "train": ("train", 0, 60),
    "validation": ("train", 60, 80),
    "test": ("train", 80, 100),
}
_CLEVR = {"dataset": "clevr:3.*.*", "test": ("validation", 0, 100), **_90}
_DSPRITES = {
    "dataset": "dsprites:2.*.*",
    "train": ("train", 0, 80),
    "validation": ("train", 80, 90),
    "test": ("train", 90, 100),
    "levels": 255,
}
_NORB = {
    "dataset": "smallnorb:2.*.*",
    "validation": ("test", 0, 50),
    "test": ("test", 50, 100),
}
TASKS = {
    "caltech101": Task("natural", "caltech101:3.*.*", 102, **_90),
    "cifar100": Task("natural", "cifar100:3.*.*", 100, **_90),
    "dtd": Task("natural", "dtd:3.*.*", 47),
    "oxford_flowers102": Task("natural", "oxford_flowers102:2.*.*", 102),
    "oxford_iiit_pet": Task(
        "natural",
        "oxford_iiit_pet",
        37,
        train=("train", 0, 80),
        validation=("train", 80, 100),
    ),
    "svhn_cropped": Task("natural", "svhn_cropped:3.*.*", 10, **_90),
    "sun397": Task("natural", "sun397/tfds:4.*.*", 397),
    "patch_camelyon": Task("specialized", "patch_camelyon:2.*.*", 2),
    "eurosat": Task("specialized", "eurosat/rgb:2.*.*", 10, **_60),
    "resisc45": Task("specialized", "resisc45:3.*.*", 45, **_60),
    "diabetic_retinopathy": Task(
        "specialized",
        "diabetic_retinopathy_detection/btgraham-300:3.*.*",
        5,
        meaning="the severity, 0 to 4",
    ),
    "clevr_count": Task(
        "structured",
        **_CLEVR,
        classes=8,
        feature="objects",
        label=clevr_count,
        names=tuple(f"{count} objects" for count in range(3, 11)),
        meaning="the number of objects",
    ),
    "clevr_distance": Task(
        "structured",
        **_CLEVR,
        classes=6,
        feature="objects",
        label=clevr_distance,
        names=(
            "to 8",
            "over 8 to 8.5",
            "over 8.5 to 9",
            "over 9 to 9.5",
            "over 9.5 to 10",
            "over 10",
        ),
        meaning="the distance of the closest object",
    ),
    "dmlab": Task(
        "structured", "dmlab:2.*.*", 6, meaning="the distance and reward of an object"
    ),
    "dsprites_location": Task(
        "structured",
        **_DSPRITES,
        **bucket("label_x_position", 32),
        meaning="the horizontal position, of 32, in pairs",
    ),
    "dsprites_orientation": Task(
        "structured",
        **_DSPRITES,
        **bucket("label_orientation", 40),
        meaning="the angle, of 40, in twos and threes",
    ),
    "smallnorb_azimuth": Task(
        "structured",
        **_NORB,
        classes=18,
        feature="label_azimuth",
        meaning="the direction of the camera",
    ),
    "smallnorb_elevation": Task(
        "structured",
        **_NORB,
        classes=9,
        feature="label_elevation",
        meaning="the height of the camera",
    ),
    "kitti_distance": Task(
        "structured",
        "kitti:3.*.*",
        4,
        feature="objects",
        label=kitti_distance,
        names=("to 8 m", "over 8 to 20 m", "over 20 m", "no vehicle"),
        meaning="the distance of the closest car, van or truck",
    ),
}
GROUPS = {
    group: tuple(name for name, task in TASKS.items() if task.group == group)
    for group in ("natural", "specialized", "structured")
}


def load_vtab(dataset, data_dir, validation_fraction, skip_corrupt) -> Source:
    """Loads a task of VTAB, "vtab/TASK", or with all examples "vtab-full/TASK".

    A `validation_fraction` of 0 trains on the validation examples too, as for the
    numbers that the benchmark reports; any other fraction gives the benchmark's own
    validation split, 200 examples for VTAB-1k.

    Source: A Large-scale Study of Representation Learning with the Visual Task
    Adaptation Benchmark (Zhai et al. 2019), section 3 and appendix A.
    """
    benchmark, _, name = dataset.partition("/")
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise DataError(
            f'"{name}" is not a task of VTAB: {hint}The tasks are {", ".join(TASKS)}'
        )
    task = TASKS[name]
    builder = open_builder(task.dataset, data_dir)
    few = (_FEW_TRAIN, _FEW_VALIDATION) if benchmark == "vtab" else (None, None)
    train = _instruction(builder, task, "train", few[0])
    validation = _instruction(builder, task, "validation", few[1])
    names = task.names or tuple(builder.info.features[task.feature].names)
    if len(names) != task.classes:
        raise DataError(
            f"{task.dataset} has {len(names)} classes, but VTAB {task.classes}: "
            "prepare the version that VTAB has"
        )

    def brighter(record):
        return tf.io.decode_png(record, channels=1) * task.levels

    def split(instruction):
        read = brighter if task.levels > 1 else tf.identity
        return tfds_split(
            builder, task.dataset, instruction, "image", task.feature, task.label, read
        )

    return Source(
        name=dataset,
        class_names=names,
        train=split(train if validation_fraction else f"{train}+{validation}"),
        validation=split(validation) if validation_fraction else None,
        test=split(_instruction(builder, task, "test", None)),
    )


def _instruction(builder, task, part, count):
    """Returns the TFDS instruction of a part, or of its first `count` examples."""
    name, first, last = getattr(task, part)
    if name not in builder.info.splits:
        raise DataError(
            f"{task.dataset} has the splits {sorted(builder.info.splits)}, but VTAB "
            f"needs {name}: prepare the version that VTAB has"
        )
    total = builder.info.splits[name].num_examples
    start, stop = first * total // 100, last * total // 100
    if stop - start < (count or 1):
        raise DataError(
            f"{task.dataset} has {total} examples in {name}, of which VTAB takes "
            f"{count or 'some'} from number {start} to {stop} for {part}: prepare the "
            "whole data set"
        )
    return f"{name}[{start}:{start + count if count else stop}]"


def mean_by_group(accuracies: Mapping[str, float]) -> dict[str, float]:
    """Averages the accuracies of the 19 tasks as the benchmark does.

    Args:
        accuracies: By task, all of `TASKS`.

    Returns:
        The mean of each group, and as "mean" that of the 19 tasks (of the tasks, not
        of the groups).

    Raises:
        DataError: when tasks are missing, or there are others.

    Source: Zhai et al. 2019, section 2: the score is the mean over tasks.

    Example:

    >>> accuracies = {task: 0.5 for task in TASKS} | {"dtd": 0.7}
    >>> {name: round(mean, 4) for name, mean in mean_by_group(accuracies).items()}
    {'natural': 0.5286, 'specialized': 0.5, 'structured': 0.5, 'mean': 0.5105}
    """
    missing = [task for task in TASKS if task not in accuracies]
    unknown = [task for task in accuracies if task not in TASKS]
    if missing or unknown:
        raise DataError(
            f"the mean of VTAB is over its {len(TASKS)} tasks: {len(missing)} are "
            f"missing ({', '.join(missing) or 'none'}) and {len(unknown)} are unknown "
            f"({', '.join(unknown) or 'none'})"
        )
    groups = {**GROUPS, "mean": tuple(TASKS)}
    return {
        group: float(np.mean([accuracies[task] for task in tasks]))
        for group, tasks in groups.items()
    }
