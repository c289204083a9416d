"""The Visual Task Adaptation Benchmark: 19 tasks from TFDS, with 1,000 examples each.

`vtab.csv` is the benchmark: which TFDS data set and examples, what the label is.
"vtab/dtd" is VTAB-1k, 800 examples to train on, 200 for validation and all test images;
"vtab-full/dtd" is the same task with all examples.

All of it is that of the benchmark's code (google-research/task_adaptation, data/*.py);
the VTAB config of google-research/scenic has 1,000 instead of 800 of clevr_count. That
TFDS still prepares the same examples in the same order is checked for cifar100 only.
Two versions are newer: Oxford Pets 4.0.0, with corrupt images repaired; KITTI 3.3.0.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from train.data.checking import DataError, vtab_rows
from train.data.options import DataOptions
from train.data.sources.splits import Source
from train.data.sources.tfds_source import prepared_builder, tfds_split

_FEW_TRAIN, _FEW_VALIDATION = 800, 200
# The rows of the table by task. A part of a data set is a TFDS split with its first and
# last percent; pixels are multiplied by `levels`.
TASKS = {row["task"]: row for row in vtab_rows()}
GROUPS = {
    group: tuple(name for name, task in TASKS.items() if task["group"] == group)
    for group in ("natural", "specialized", "structured")
}
CLEVR_BOUNDS = (0.0, 8.0, 8.5, 9.0, 9.5, 10.0, 100.0)
KITTI_BOUNDS = (-100.0, 8.0, 20.0, 999.0)


def interval(value: tf.Tensor, bounds: Sequence[float]) -> tf.Tensor:
    """Returns the number of a value's interval, which includes its upper bound."""
    above = tf.cast(tf.constant(bounds, tf.float32) < value, tf.int64)
    return tf.reduce_sum(above) - 1


def clevr_distance(example: dict) -> Any:
    """Returns the label of the distance of the closest object."""
    distances = example["objects"]["pixel_coords"][:, 2]
    return interval(tf.reduce_min(distances), CLEVR_BOUNDS)


def kitti_distance(example: dict) -> Any:
    """Returns the label of the distance of the closest car, van or truck."""
    is_vehicle = example["objects"]["type"] < 3
    metres = tf.boolean_mask(example["objects"]["location"][:, 2], is_vehicle)
    return interval(tf.reduce_min(tf.concat([metres, [1000.0]], 0)), KITTI_BOUNDS)


def _bucket(feature, values):
    """Returns label and names where the label is a number, binned to 16 classes."""
    buckets = np.arange(values) * 16 // values
    members = [np.flatnonzero(buckets == number) for number in range(16)]
    names = tuple(f"{group[0]} to {group[-1]}" for group in members)
    return lambda example: example[feature] * 16 // values, names


_KITTI_DISTANCES = ("to 8 m", "over 8 to 20 m", "over 20 m", "no vehicle")
_CLEVR_DISTANCES = (
    f"over {low:g} to {high:g}" for low, high in pairwise(CLEVR_BOUNDS[1:-1])
)
# These tasks compute their label: its function and the names of classes.
COMPUTED = {
    "clevr_count": (
        lambda example: tf.size(example["objects"]["size"], tf.int64) - 3,
        tuple(f"{count} objects" for count in range(3, 11)),
    ),
    "clevr_distance": (clevr_distance, ("to 8", *_CLEVR_DISTANCES, "over 10")),
    "dsprites_location": _bucket("label_x_position", 32),
    "dsprites_orientation": _bucket("label_orientation", 40),
    "kitti_distance": (kitti_distance, _KITTI_DISTANCES),
}


def load_vtab(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads a task of VTAB, "vtab/TASK", or with all examples "vtab-full/TASK".

    A `fraction` of 0 trains on the validation examples too, as for the numbers that the
    benchmark reports; any other gives the benchmark's own validation split, 200
    examples for VTAB-1k.

    Source: A Large-scale Study of Representation Learning with the Visual Task
    Adaptation Benchmark (Zhai et al. 2019), section 3 and appendix A.
    """
    benchmark, _, name = dataset.partition("/")
    task = TASKS[name]
    label, names = COMPUTED.get(name, (None, None))
    builder = prepared_builder(task["dataset"], options.data_dir)
    few = (_FEW_TRAIN, _FEW_VALIDATION) if benchmark == "vtab" else (None, None)
    train = _instruction(builder, task, "train", few[0])
    validation = _instruction(builder, task, "validation", few[1])
    names = names or tuple(builder.info.features[task["feature"]].names)
    if len(names) != int(task["classes"]):
        raise DataError(
            f"{task['dataset']} has {len(names)} classes, but VTAB {task['classes']}: "
            "prepare the version that VTAB has"
        )
    levels = int(task["levels"])

    def brighter(record: tf.Tensor) -> Any:
        return tf.io.decode_png(record, channels=1) * levels

    read = brighter if levels > 1 else tf.identity

    def split(instruction: str) -> Any:
        return tfds_split(
            builder,
            task["dataset"],
            instruction,
            "image",
            task["feature"],
            label=label,
            read=read,
        )

    test = _instruction(builder, task, "test", None)
    if fraction is None:
        whole = split(f"{train}+{validation}+{test}")
        return Source(dataset, names, all=whole, total=whole.num_examples)
    return Source(
        name=dataset,
        class_names=names,
        train=split(train if fraction else f"{train}+{validation}"),
        validation=split(validation) if fraction else None,
        test=split(test),
        total=split(f"{train}+{validation}+{test}").num_examples,
    )


def _instruction(builder, task, part, count):
    """Returns the TFDS instruction of a part, or of its first `count` examples."""
    name, first, last = task[part].split()
    if name not in builder.info.splits:
        raise DataError(
            f"{task['dataset']} has the splits {sorted(builder.info.splits)}, but VTAB "
            f"needs {name}: prepare the version that VTAB has"
        )
    total = builder.info.splits[name].num_examples
    start, stop = (int(percent) * total // 100 for percent in (first, last))
    if stop - start < (count or 1):
        raise DataError(
            f"{task['dataset']} has {total} examples in {name}, of which VTAB takes "
            f"{count or 'some'} from number {start} to {stop} for {part}: prepare the "
            "whole data set"
        )
    return f"{name}[{start}:{start + count if count else stop}]"


def mean_by_group(accuracies: Mapping[str, float]) -> dict[str, float]:
    """Averages the accuracies of each group, and as "mean" of all 19 tasks.

    Raises a `DataError` when tasks are missing, or there are others.

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
