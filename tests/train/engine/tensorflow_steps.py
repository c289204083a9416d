"""Five steps of a small model on some devices; writes what came of them.

python tensorflow_steps.py FOLDER 2       one and two devices of this process
python tensorflow_steps.py FOLDER worker  one device of each process in TF_CONFIG

FOLDER gets HOST-DEVICES-MICRO_BATCHES.npz of each, of workers HOST-MICRO_BATCHES.npz.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from train.data import pipeline, sources
from train.data.sources.splits import pick
from train.engine.loop import evaluate, take_steps
from train.engine.optimizers import MomentumSGD
from train.engine.schedules import WarmupCosine
from train.engine.tensorflow_backend import TensorFlowDevices, start

BATCH = 16
STEPS = 5
IMAGE_SIZE = (8, 16)


def main(folder, kind):
    if kind == "worker":
        devices = start("multiworker")
        for parts in (1, 4):
            save_steps(devices, parts, f"{folder}/{devices.host}-{parts}.npz")
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    configurations = [tf.config.LogicalDeviceConfiguration()] * int(kind)
    tf.config.set_logical_device_configuration(cpu, configurations)
    several = start("mirrored")
    one = TensorFlowDevices(tf.distribute.get_strategy())
    for devices, parts in ((one, 1), (several, 1), (several, 2)):
        save_steps(devices, parts, f"{folder}/0-{devices.count}-{parts}.npz")
    np.savez(f"{folder}/seeds.npz", seed_states=seed_states(several))
    for devices in (one, several):
        trace_steps(devices, f"{folder}/trace-{devices.count}")


def built(devices, parts, dropout=0.0):
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        hidden_size=8, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8
    )
    with devices.strategy.scope():
        model = keras_vit.VisionTransformer(
            config, image_size=IMAGE_SIZE, classes=10, dropout_rate=dropout
        )
        trainer = devices.trainer(
            model,
            MomentumSGD(WarmupCosine(0.03, STEPS, 2)),
            micro_batches=parts,
            average_decay=0.9,
        )
    trainer.spread_seeds()
    return trainer


def seed_states(devices):
    """The states of the dropout's random numbers, one of each device."""
    model = built(devices, 1, dropout=0.5).model
    return [
        state.numpy()
        for variable in model.variables
        if variable.path.endswith("seed_generator_state")
        for state in devices.strategy.experimental_local_results(variable.value)
    ][: devices.count]


def training_batches(devices, source):
    return devices.batches(
        lambda share: pipeline.training_batches(
            source.train, image_size=IMAGE_SIZE, batch_size=BATCH, seed=0, share=share
        )
    )


def trace_steps(devices, folder):
    """Three steps under TensorFlow's profiler, after one that traces the function."""
    trainer = built(devices, 1)
    batches = iter(training_batches(devices, sources.load("digits")))
    trainer.step(*next(batches))
    with tf.profiler.experimental.Profile(folder):
        pending = [trainer.step(*next(batches)) for _ in range(3)]
    trainer.fetch(pending)


def save_steps(devices, parts, path):
    source = sources.load("digits", validation_fraction=0.05)
    trainer = built(devices, parts)
    batches = training_batches(devices, source)
    told = []
    for _ in take_steps(
        trainer,
        batches,
        lambda _, metrics: told.append(metrics),
        start_step=0,
        steps=STEPS,
    ):
        pass
    # The last batch is smaller.
    tested = pick(source.test, np.arange(40))
    found, loss = evaluate(
        trainer,
        devices.batches(
            lambda share: pipeline.evaluation_batches(
                tested, image_size=IMAGE_SIZE, batch_size=BATCH, share=share
            )
        ),
        keep=lambda *batch: batch,
    )
    labels, probabilities = map(np.concatenate, zip(*found, strict=True))
    arrays = {
        f"{index:03d}": variable.numpy()
        for index, variable in enumerate(trainer.variables)
    }
    np.savez(
        path,
        labels=labels,
        probabilities=probabilities,
        loss=loss,
        losses=[metrics["loss"] for metrics in told],
        norms=[metrics["gradient_norm"] for metrics in told],
        accuracies=[metrics["accuracy"] for metrics in told],
        **arrays,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
