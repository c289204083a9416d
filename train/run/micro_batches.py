"""As few micro-batches as fit in memory: --batch_size=auto.

On accelerators a step is tried, in twice as many micro-batches each time that their
memory is full. A process that takes all memory of its machine is killed instead: on
processors the peak memory of small micro-batches is measured, which grows by the same
for each image, and what larger ones need is computed from that.
"""

import functools
import gc
import math
from typing import Any

import numpy as np
import tensorflow as tf
from keras import ops

from train.common.errors import FullMemoryError, RunError, explaining_full_memory
from train.common.files import read_json, write_json
from train.common.setting import AUTO
from train.data import pipeline
from train.engine.step import Devices
from train.models.run_directory import RunDirectory
from train.recipes import Recipe
from train.recipes.recipe import divisors
from train.run import building
from train.run.task import Task
from zoo.common import machine

# Use this share of the free memory; reading, validation and checkpoints need the rest.
SHARE = 0.8
# A growth of the peak by this much shows what an image needs; less may be chance.
CONCLUSIVE_BYTES = 256 * 2**20
_LEAST_GROWTH = 64 * 2**20
_ALONE = pipeline.Share()


def check(recipe: Recipe, devices: Devices) -> None:
    """Raises a `RunError` where the devices cannot share a batch of the recipe."""
    is_auto = recipe.micro_batches == AUTO
    if is_auto and devices.has_hosts:
        raise RunError(
            "--batch_size=auto and --micro_batches=auto measure the memory of one "
            "machine, and this run has several: pass --micro_batches as a number."
        )
    parts = devices.count if is_auto else int(recipe.micro_batches)
    devices.micro_batches(recipe.batch_size, parts)


def number_of(task: Task, devices: Devices, directory: RunDirectory) -> int:
    """Returns the number of micro-batches of a task that is built, an int.

    The choice for `"auto"` is printed and written to `micro_batches.json` of the
    `RunDirectory`, from where a run that goes on takes it. The model stays as it was.

    Raises a `RunError` where not even one image per device fits.
    """
    if isinstance(task.recipe.micro_batches, int):
        return task.recipe.micro_batches
    file = directory.micro_batches
    if directory.is_begun() and file.is_file():
        remedy = "copy it from a backup, or pass --micro_batches as a number"
        return read_json(file, remedy, lambda chosen: int(chosen["micro_batches"]))
    print("finding out how many images fit in memory", flush=True)
    # It hides the notice about this run's first step too: the trials were meant.
    tf.get_logger().addFilter(_is_no_retracing)
    chosen = _search(_Trials(task, devices))
    # Free the trainers of the trials, which compiled steps keep in circles.
    gc.collect()
    write_json(file, chosen)
    parts = chosen["micro_batches"]
    size = chosen["batch_size"] // parts
    print(
        f"{parts} micro-batch{'es' * (parts > 1)} of {size} "
        f"image{'s' * (size > 1)}{_memory(chosen)}"
    )
    return parts


def _is_no_retracing(record):
    return "triggered tf.function retracing" not in record.getMessage()


def sizes(images: int) -> list[int]:
    """Returns sizes of micro-batches that cut a device's images equally, as ints.

    The first has them all, each other one at most half of those before it.

    Example:
        >>> sizes(24)
        [24, 12, 6, 3, 1]
    """
    chosen = [images]
    for size in reversed(divisors(images)):
        if size <= chosen[-1] // 2:
            chosen.append(size)
    return chosen


def _search(trials):
    """Returns the number of micro-batches, and the facts that it rests on."""
    devices, batch_size = trials.devices, trials.task.recipe.batch_size
    images = batch_size // devices.count
    find = _measured if devices.is_cpu else _tried
    size, facts = find(trials, sizes(images))
    if size is None:
        raise RunError(
            "Not even one image per device fits in memory"
            f"{_memory(facts)}: pass --remat, --precision=mixed_bfloat16, a smaller "
            "--image_size or a smaller --model."
        )
    return {
        "micro_batches": batch_size // size,
        "batch_size": batch_size,
        "devices": devices.count,
        **facts,
    }


def _memory(facts):
    if "needed_bytes" not in facts:
        return ""
    needed, available = (facts[f"{name}_bytes"] for name in ("needed", "available"))
    return f", which needs {needed / 1e9:.1f} GB of the {available / 1e9:.1f} GB left"


def _tried(trials, candidates):
    """Returns the first size whose step does not fill the memory, and no facts."""
    for size in candidates:
        try:
            trials.step(size)
        except FullMemoryError:
            continue
        return size, {}
    return None, {}


def _measured(trials, candidates):
    """Returns the largest size whose computed peak fits, and both memories."""
    before, available = machine.resident_bytes(), machine.available_bytes()
    if not available:
        raise RunError(
            "How much memory is left cannot be read on this system, which is not "
            "Linux: pass --micro_batches as a number."
        )
    # Gradients, their sum over micro-batches and the optimizer's means are needed.
    needed = 3 * trials.trained_bytes
    most = SHARE * available - trials.batch_bytes
    facts = {"needed_bytes": needed, "available_bytes": available}
    if needed > most:
        return None, facts
    measured, grown, size = [], 0, candidates[-1]
    while size:
        measured.append((size, max(0, trials.peak(size) - before)))
        if len(measured) > 1:
            grown = measured[-1][1] - measured[-2][1]
        # Try few sizes, as each is compiled anew.
        larger = [
            candidate
            for candidate in candidates
            if size < candidate <= 4 * size and _expected(measured, candidate) <= most
        ]
        size = larger[0] if larger and grown < CONCLUSIVE_BYTES else None
    fitting = [size for size in candidates if _expected(measured, size) <= most]
    size = fitting[0] if fitting else None
    needed = _expected(measured, size or candidates[-1])
    return size, facts | {"needed_bytes": needed}


def _expected(measured, size):
    """Returns the bytes that a size of micro-batches needs, a measured or larger one.

    `measured` are pairs of a size and its bytes, the sizes in ascending order.
    """
    last, most = measured[-1]
    if size <= last:
        return next(growth for known, growth in measured if known >= size)
    if len(measured) == 1:
        # All of it may grow, for all that is known.
        for_each = most / last
    else:
        before, growth = measured[-2]
        for_each = max(most - growth, _LEAST_GROWTH) / (last - before)
    return int(most + for_each * (size - last))


class _Trials:
    """Steps on images of zeros, after which the model is as it was."""

    def __init__(self, task, devices):
        self.task = task
        self.devices = devices
        self.settings = {
            **task.batch_settings,
            "image_size": task.network.input_shape[1:3],
            "classes": len(task.source.class_names),
            "finish": task.finish,
        }
        variables = task.model.trainable_variables
        self.trained_bytes = sum(4 * math.prod(tensor.shape) for tensor in variables)
        spec = tf.nest.flatten(self._zeros(task.recipe.batch_size).element_spec)
        # Count a batch in use, one on its way, and those that are ready.
        self.batch_bytes = (2 + pipeline.BATCHES_READY) * sum(
            math.prod(tensor.shape) * tensor.dtype.size for tensor in spec
        )

    def step(self, size: int) -> None:
        """Takes steps of the whole batch in micro-batches of a size per device."""
        self._take(self.task.recipe.batch_size, size)

    def peak(self, size: int) -> int:
        """Returns the peak memory of this process in a step of two micro-batches.

        More of them need no more, but for the images themselves. A single one is the
        whole batch.
        """
        whole = self.task.recipe.batch_size
        self._take(min(whole, 2 * size * self.devices.count), size)
        return machine.peak_bytes()

    def _take(self, rows, size):
        task, devices = self.task, self.devices
        gc.collect()
        kept = [ops.convert_to_numpy(one) for one in task.model.variables]
        try:
            parts = rows // (size * devices.count)
            trainer = building.trainer(task, devices, parts)
            batches = iter(devices.batches(functools.partial(self._zeros, rows)))
            with explaining_full_memory("fewer images at a time may fit."):
                # The first one compiles, which takes memory of its own.
                for _ in range(2):
                    machine.forget_peak()
                    metrics = trainer.step(*next(batches))
                    # Fetch a value, so that JAX has computed the step.
                    float(metrics["loss"])
        finally:
            for variable, value in zip(task.model.variables, kept, strict=True):
                variable.assign(value)

    def _zeros(self, rows, share=_ALONE):
        """Returns endless batches of zeros, of the shapes of `rows` examples."""
        spec = pipeline.training_batches(
            self.task.source.train, batch_size=rows, share=share, **self.settings
        ).element_spec

        def element(_: tf.Tensor) -> Any:
            return tf.nest.map_structure(
                lambda part: tf.zeros(part.shape, part.dtype), spec
            )

        return tf.data.Dataset.range(np.iinfo("int64").max).map(element)
