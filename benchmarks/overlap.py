"""How long training waits for batches that are read meanwhile."""

import dataclasses
import itertools
import json
import time

import numpy as np

from benchmarks.contest import Contender

_IMPORTS = (
    "tensorflow",
    "keras_vit",
    "train.engine.loop",
    "train.engine.tensorflow_backend",
    "train.data.pipeline",
)


def contenders(settings, steps):
    """Returns training on batches that are read, and on a batch in memory."""
    return [
        dataclasses.replace(
            Contender(name, "benchmarks.overlap:training", _IMPORTS),
            settings={**settings, "steps": steps, "in_memory": in_memory},
            items=steps * settings["batch"],
            warm_up=1,
            ours=True,
        )
        for name, in_memory in (("training", False), ("training from memory", True))
    ]


def training(folder, image_size, batch, sizes, waits, steps, in_memory):
    """`take_steps` of the training loop, set up as `train.finetune` does."""
    import tensorflow as tf

    from benchmarks.ours import build
    from train.data import pipeline, sources
    from train.engine import tensorflow_backend
    from train.engine.callbacks import NullLog
    from train.engine.loop import take_steps
    from train.engine.optimizers import MomentumSGD
    from train.engine.tensorflow_backend import TensorFlowTrainer

    tensorflow_backend.start("one")
    split = sources.load(folder).train
    batches = pipeline.training_batches(
        split, image_size=(image_size, image_size), batch_size=batch, seed=0
    )
    if in_memory:
        batches = itertools.repeat(next(iter(batches)))
    waiting = _Waiting(pipeline.explained(batches, split))
    trainer = TensorFlowTrainer(build(sizes, image_size), MomentumSGD(1e-3))
    firsts = itertools.count(0, steps)

    def step():
        first, waited, started = next(firsts), waiting.seconds, time.perf_counter()
        # So that TensorBoard's profile knows the steps.
        with tf.profiler.experimental.Trace("train", step_num=first, _r=1):
            last = first + steps
            for _ in take_steps(
                trainer, waiting, NullLog(), start_step=first, steps=last
            ):
                pass
        seconds = time.perf_counter() - started
        if not in_memory:
            with open(waits, "a") as stream:
                line = {"seconds": seconds, "waited": waiting.seconds - waited}
                stream.write(json.dumps(line) + "\n")

    return step


class _Waiting:
    """An iterator that adds up how long it lets others wait."""

    def __init__(self, batches):
        self.batches = iter(batches)
        self.seconds = 0.0

    def __iter__(self):
        return self

    def __next__(self):
        started = time.perf_counter()
        batch = next(self.batches)
        self.seconds += time.perf_counter() - started
        return batch


def waited(path):
    """Returns the part of the time of each measured step that training waited."""
    # The first line is the warm-up's, in which the training step was compiled.
    lines = [json.loads(line) for line in path.read_text().splitlines()][1:]
    return [line["waited"] / line["seconds"] for line in lines]


def notes(waited):
    """Returns `waited` in words, as lines."""
    if not waited:
        return []
    return [
        f"Training waited for batches {np.median(waited):.2%} of the time, "
        f"{max(waited):.2%} in the worst turn."
    ]
