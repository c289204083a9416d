"""Training steps on processors made into several devices, under JAX."""

import re

from benchmarks import ours
from benchmarks.contest import Contender

JOB = Contender("devices", "benchmarks.devices:step", ("keras",), "jax", warm_up=1)
_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "pred": 1}
_ALL_REDUCE = re.compile(r"= (.*?) all-reduce(?:-start)?\(")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")


def reduced_bytes(compiled):
    """Counts the bytes that the all-reduces of a compiled program sum, from its HLO.

    Example:
        >>> reduced_bytes("%a = (f32[2,3]{1,0}, f32[]) all-reduce(%b, %c), ...")
        28
    """
    total = 0
    for shapes in _ALL_REDUCE.findall(compiled):
        for kind, sides in _ARRAY.findall(shapes):
            count = 1
            for side in filter(None, sides.split(",")):
                count *= int(side)
            total += _BYTES[kind] * count
    return total


def step(sizes, image_size, batch, devices, counts):
    """`JaxTrainer.step` on so many devices; writes its bytes to the file `counts`."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    import tensorflow as tf

    from train.engine import jax_backend
    from train.engine.optimizers import MomentumSGD

    found = jax_backend.start("auto")
    with found.strategy.scope():
        model = ours.build(sizes, image_size)
        trainer = found.trainer(model, MomentumSGD(1e-3))
    arrays = ours.random_images(batch, image_size), ours.random_labels(batch)
    [(images, labels)] = found.batches(
        lambda share: tf.data.Dataset.from_tensor_slices(arrays).batch(batch // devices)
    )
    gradients = 4 * sum(int(v.value.size) for v in model.trainable_variables)
    reduced = reduced_bytes(trainer.compiled_text(images, labels))
    with open(counts, "w") as file:
        print(gradients, reduced, file=file)
    return lambda: trainer.fetch([trainer.step(images, labels)])
