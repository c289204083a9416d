"""The plan of a run, settled before anything is built."""

import dataclasses
from collections.abc import Callable
from typing import Any

from train.common.setting import AUTO
from train.data.sources.splits import Source
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.run.task import Task


def settle(
    task: Task,
    directory: RunDirectory,
    devices: Devices,
    data: Callable[[], Source] | None = None,
    **changes: Any,
) -> None:
    """Gives a task the recipe of its run, which nothing changes later.

    `changes` are other settings. Epochs become steps by the training images of `data`,
    a function that loads them, and is called for that alone. A precision of `"auto"`
    becomes that with which the run in the `RunDirectory` began, or else bfloat16 where
    the devices multiply in it, and is printed. Micro-batches of `"auto"` stay: their
    number is `task.micro_batches` once the model is built, whose memory is measured.
    """
    if task.recipe.precision == AUTO:
        changes["precision"] = _precision(directory, devices)
    task.recipe = dataclasses.replace(task.recipe, **changes)
    if task.recipe.epochs is not None and data is not None:
        task.recipe = task.recipe.of_epochs(data().train.num_examples)


def _precision(directory, devices):
    begun = directory.read_config() if directory.is_begun() else {}
    if precision := begun.get("precision"):
        reason = "with which the run began"
    else:
        has_bfloat16, reason = devices.bfloat16()
        # Workers have one precision, whatever each of them computes.
        everywhere = all(devices.all_gather(int(has_bfloat16)))
        if has_bfloat16 and not everywhere:
            has_bfloat16, reason = False, "as other workers gain nothing by bfloat16"
        precision = "mixed_bfloat16" if has_bfloat16 else "float32"
    devices.print(f"precision {precision}, {reason}")
    return precision
