"""Steps of a small model on either backend; writes what came of them."""

import keras
import numpy as np

import keras_vit
from train.data import pipeline, sources
from train.data.sources.splits import pick
from train.engine.checkpoints import Checkpoints
from train.engine.loop import evaluate, take_steps
from train.engine.losses import sigmoid_cross_entropy, softmax_cross_entropy
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine
from train.run.tuning import layer_rates

BATCH = 16
STEPS = 10
IMAGE_SIZE = (8, 16)
# Micro-batches of the whole, dropout, and what else differs.
CASES = {
    "whole": (1, 0.0, "momentum"),
    "parts": (8, 0.0, "momentum"),
    "dropout": (1, 0.3, "momentum"),
    "adam": (1, 0.0, "adam"),
}


def save_steps(devices, folder, names):
    """Saves a checkpoint and CASE.npz of each case, a key of CASES."""
    source = sources.load("digits", validation_fraction=0.05)
    for name in names:
        save_case(devices, source, folder / name, *CASES[name])


def save_case(devices, source, folder, micro_batches, dropout, optimizer):
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=8
    )
    is_adam = optimizer == "adam"
    schedule = WarmupCosine(0.003 if is_adam else 0.03, STEPS, 2)
    with devices.strategy.scope():
        model = keras_vit.VisionTransformer(
            config, image_size=IMAGE_SIZE, classes=10, dropout_rate=dropout
        )
        # Backends draw other numbers from the same seed.
        draw_weights(model)
        trainer = devices.trainer(
            model,
            Adam(schedule, kernel_decay=0.1) if is_adam else MomentumSGD(schedule),
            micro_batches=devices.micro_batches(BATCH, micro_batches),
            loss=sigmoid_cross_entropy if is_adam else softmax_cross_entropy,
            rate_scales=layer_rates(model, 0.8),
            average_decay=0.9,
        )
    trainer.spread_seeds()
    batches = devices.batches(
        lambda share: pipeline.training_batches(
            source.train,
            image_size=IMAGE_SIZE,
            batch_size=BATCH,
            seed=0,
            share=share,
            augmentation=pipeline.Augmentation(mixup=0.2 if is_adam else 0.0),
            classes=10,
        )
    )
    told = []
    for _ in take_steps(
        trainer,
        batches,
        lambda _, metrics: told.append(metrics),
        start_step=0,
        steps=STEPS,
    ):
        pass
    checkpoints = Checkpoints(folder)
    checkpoints.save(STEPS, trainer.variables)
    checkpoints.wait()
    # The last batch is smaller.
    tested = pick(source.test, np.arange(40))
    with trainer.averaged():
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
    for metrics in told:
        del metrics["seconds"]
    np.savez(
        f"{folder}.npz",
        labels=labels,
        probabilities=probabilities,
        test_loss=loss,
        devices=devices.count,
        **{key: [metrics[key] for metrics in told] for key in told[0]},
    )


def draw_weights(model):
    generator = np.random.default_rng(0)
    for variable in model.trainable_variables:
        if keras.ops.convert_to_numpy(variable).std() > 0:
            deviation = np.prod(variable.shape[:-1]) ** -0.5
            variable.assign(generator.normal(0, deviation, variable.shape))
