"""Steps of a small model on devices of any backend; writes what came of them.

python mesh_steps.py FOLDER MESH:CASE,CASE MESH:CASE

MESH is a value of `--strategy`, CASE a key of `CASES`. FOLDER gets MESH/CASE.npz and
the checkpoint MESH/CASE, of worker N of several MESH-N.
"""

import functools
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from train.data import pipeline, sources
from train.data.sources.splits import pick
from train.engine import devices
from train.engine.checkpoints import Checkpoints
from train.engine.loop import evaluate, take_steps
from train.engine.losses import sigmoid_cross_entropy, softmax_cross_entropy
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine
from train.run.trained_parts import layer_rates

BATCH = 16
STEPS = 10
IMAGES = {"image_size": (8, 16), "batch_size": BATCH}
# Micro-batches of the whole, dropout, and what else differs.
CASES = {
    "whole": (1, 0.0, "momentum"),
    "parts": (8, 0.0, "momentum"),
    "dropout": (1, 0.3, "momentum"),
    "adam": (1, 0.0, "adam"),
}


def main(folder, *meshes):
    is_tensorflow = keras.backend.backend() == "tensorflow"
    if is_tensorflow and "mirrored" in "".join(meshes):
        [cpu] = tf.config.list_physical_devices("CPU")
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    for mesh in meshes:
        name, _, cases = mesh.partition(":")
        given = devices.start(name)
        worker = f"-{given.host}" if given.has_hosts else ""
        place = pathlib.Path(folder, f"{name}{worker}")
        place.mkdir(exist_ok=True)
        for case in cases.split(","):
            save_case(given, place / case, *CASES[case])
        if is_tensorflow and not given.has_hosts:
            trace_steps(given, place)


def built(given, micro_batches, dropout, optimizer):
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
    )
    is_adam = optimizer == "adam"
    schedule = WarmupCosine(0.003 if is_adam else 0.03, STEPS, 2)
    generator = np.random.default_rng(0)
    with given.strategy.scope():
        model = keras_vit.VisionTransformer(
            config, image_size=(8, 16), classes=10, dropout_rate=dropout
        )
        # Backends draw other numbers from the same seed.
        for variable in model.trainable_variables:
            if keras.ops.convert_to_numpy(variable).std() > 0:
                deviation = np.prod(variable.shape[:-1]) ** -0.5
                variable.assign(generator.normal(0, deviation, variable.shape))
        trainer = given.trainer(
            model,
            Adam(schedule, kernel_decay=0.1) if is_adam else MomentumSGD(schedule),
            micro_batches=given.micro_batches(BATCH, micro_batches),
            loss=sigmoid_cross_entropy if is_adam else softmax_cross_entropy,
            rate_scales=layer_rates(model, 0.8),
            average_decay=0.9,
        )
    trainer.spread_seeds()
    return trainer


def batches_of(given, read, split, **settings):
    return given.batches(functools.partial(read, split, **IMAGES, **settings))


def save_case(given, path, *case):
    source = sources.load("digits", validation_fraction=0.05)
    trainer = built(given, *case)
    # Adam's labels are mixed.
    mixup = pipeline.Augmentation(mixup=0.2 if "adam" in case else 0.0)
    more = {"seed": 0, "augmentation": mixup, "classes": 10}
    batches = batches_of(given, pipeline.training_batches, source.train, **more)
    steps = []
    log = {"start_step": 0, "steps": STEPS}
    for _ in take_steps(trainer, batches, lambda _, one: steps.append(one), **log):
        pass
    checkpoints = Checkpoints(path)
    checkpoints.save(STEPS, trainer.variables)
    checkpoints.wait()
    # The last batch is smaller.
    tested = pick(source.test, np.arange(40))
    batches = batches_of(given, pipeline.evaluation_batches, tested)
    with trainer.averaged():
        found, loss = evaluate(trainer, batches, keep=lambda *batch: batch)
    labels, probabilities = map(np.concatenate, zip(*found, strict=True))
    told = {"labels": labels, "probabilities": probabilities, "test_loss": loss}
    for name in steps[0].keys() - {"seconds"}:
        told[name] = [metrics[name] for metrics in steps]
    np.savez(f"{path}.npz", **told)


def trace_steps(given, place):
    """Traces three steps after the first, and saves the states of dropout's seeds."""
    trainer = built(given, *CASES["dropout"])
    states = [
        state.numpy()
        for variable in trainer.model.variables
        if variable.path.endswith("seed_generator_state")
        for state in given.strategy.experimental_local_results(variable.value)
    ]
    np.save(place / "seeds.npy", states[: given.count])
    split = sources.load("digits").train
    batches = iter(batches_of(given, pipeline.training_batches, split, seed=0))
    trainer.step(*next(batches))
    with tf.profiler.experimental.Profile(str(place / "trace")):
        pending = [trainer.step(*next(batches)) for _ in range(3)]
    trainer.fetch(pending)


if __name__ == "__main__":
    main(*sys.argv[1:])
