"""Twenty steps of a small model on some devices; writes what came of it.

python distributed_steps.py STRATEGY DEVICES MICRO_BATCHES,... DROPOUT OUT.npz

In the name of the file {host} and {parts} are the numbers of the process and of the
micro-batches.
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
from train.engine import distribution
from train.engine.loop import evaluate, fit
from train.engine.optimizers import MomentumSGD
from train.engine.schedules import WarmupCosine
from train.engine.trainer import Trainer

BATCH = 16
STEPS = 20
IMAGE_SIZE = (16, 24)


def main(strategy, devices, parts, dropout, out):
    cpu = tf.config.list_physical_devices("CPU")[0]
    configurations = [tf.config.LogicalDeviceConfiguration()] * int(devices)
    tf.config.set_logical_device_configuration(cpu, configurations)
    used = distribution.start(strategy)
    for micro_batches in map(int, parts.split(",")):
        path = out.format(host=used.host, parts=micro_batches)
        take_steps(used, micro_batches, float(dropout), path)


def take_steps(used, micro_batches, dropout, path):
    source = sources.load("digits", validation_fraction=0.05)
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        hidden_size=32, num_layers=2, num_heads=4, mlp_dim=64, patch_size=8
    )
    with used.strategy.scope():
        model = keras_vit.VisionTransformer(
            config, image_size=IMAGE_SIZE, classes=10, dropout_rate=dropout
        )
        trainer = Trainer(
            model,
            MomentumSGD(WarmupCosine(0.03, STEPS, 5)),
            micro_batches=micro_batches,
            average_decay=0.9,
            strategy=used.strategy,
        )
    trainer.spread_seeds()
    batches = used.batches(
        lambda share: pipeline.training_batches(
            source.train, image_size=IMAGE_SIZE, batch_size=BATCH, seed=0, share=share
        )
    )
    told = []
    fit(
        trainer,
        batches,
        start_step=0,
        steps=STEPS,
        callbacks=[lambda step, metrics: told.append(metrics)],
    )
    labels, probabilities, loss = evaluate(
        trainer,
        used.batches(
            lambda share: pipeline.evaluation_batches(
                source.test, image_size=IMAGE_SIZE, batch_size=BATCH, share=share
            )
        ),
    )
    states = [
        state.numpy()
        for variable in model.variables
        if variable.path.endswith("seed_generator_state")
        for state in used.strategy.experimental_local_results(variable.value)
    ]
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
        seed_states=states[: used.count],
        accuracies=[metrics["accuracy"] for metrics in told],
        **arrays,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
