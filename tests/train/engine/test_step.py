"""The training step on one device of TensorFlow, or on all that JAX sees."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from made_steps import (
    CLASSES,
    DEVICES,
    IS_JAX,
    assert_equal,
    batches_of,
    noise,
    placed,
    tiny_vit,
    trainer_of,
    two_matrices,
    values,
)

from train.data.pipeline import evaluation_batches
from train.data.sources.splits import in_memory
from train.engine import reproducibility
from train.engine.loop import evaluate
from train.engine.losses import sigmoid_cross_entropy
from train.engine.optimizers import MomentumSGD
from train.engine.schedules import WarmupCosine


def softmax(logits):
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def forward(weights, images):
    first, second, bias = weights
    hidden = images.reshape(len(images), -1) @ first
    return hidden, hidden @ second + bias


def gradients_by_hand(weights, images, labels):
    """Gradients of the whole batch in float64, and what a step tells of it."""
    images = images.astype("float64")
    hidden, logits = forward(weights, images)
    chances = softmax(logits)
    off = (chances - np.eye(CLASSES)[labels]) / len(labels)
    gradients = [
        images.reshape(len(images), -1).T @ off @ weights[1].T,
        hidden.T @ off,
        off.sum(axis=0),
    ]
    return gradients, {
        "loss": -np.log(chances[np.arange(len(labels)), labels]).mean(),
        "accuracy": np.mean(logits.argmax(axis=1) == labels),
        "gradient_norm": np.sqrt(sum((one**2).sum() for one in gradients)),
    }


class Unused(keras.layers.Layer):
    """Has a weight that its output does not depend on."""

    def build(self, shape):
        self.extra = self.add_weight(shape=(2,), initializer="ones")

    def call(self, inputs):
        return inputs


# The number of parts is that of all devices together.
@pytest.mark.parametrize("parts", [1, 8])
def test_steps_equal_those_by_hand(parts):
    def make():
        inner = two_matrices()
        return keras.Model(inner.inputs, Unused()(inner.output))

    clip_norm = 0.7
    trainer = trainer_of(
        make,
        WarmupCosine(0.5, 6, 2),
        clip_norm=clip_norm,
        micro_batches=DEVICES.micro_batches(16, parts),
        # Variables may have another rate than the rest.
        rate_scales={"head/kernel": 0.3},
        average_decay=0.3,
    )
    factors = (1.0, 0.3, 1.0)
    rates = [0.0, 0.25, 0.5, *(0.25 * (1 + np.cos(np.pi * k / 4)) for k in (1, 2, 3))]
    decays = (0.1, 2 / 11, 0.25, 0.3, 0.3, 0.3)
    *weights, _ = (one.astype("float64") for one in values(trainer.model.weights))
    averages, velocities, norms = [*weights], [0.0, 0.0, 0.0], []
    for rate, decay, batch in zip(rates, decays, noise(6, 16, 2), strict=True):
        gradients, expected = gradients_by_hand(weights, *batch)
        expected["learning_rate"] = rate
        norms.append(expected["gradient_norm"])
        shrink = min(1.0, clip_norm / norms[-1])
        for index, gradient in enumerate(gradients):
            velocities[index] = 0.9 * velocities[index] + shrink * gradient
            weights[index] = weights[index] - rate * factors[index] * velocities[index]
            kept = decay * averages[index]
            averages[index] = kept + (1 - decay) * weights[index]
        metrics = trainer.step(*placed(batch))
        assert metrics.keys() == expected.keys()
        for name, value in metrics.items():
            assert keras.backend.standardize_dtype(value.dtype) == "float32"
            assert float(value) == pytest.approx(expected[name], abs=2e-6), name
        # Weights that the loss does not use stay.
        ones = np.ones(2)
        with trainer.averaged():
            assert_equal(values(trainer.model.weights), [*averages, ones], 2e-6)
        assert_equal(values(trainer.model.weights), [*weights, ones], 2e-6)
    assert min(norms) < clip_norm < max(norms), "some steps must clip, others not"


@pytest.mark.parametrize("setting", ["weight_decay", "global_clipnorm"])
def test_settings_that_would_be_left_out_are_refused(setting):
    with pytest.raises(ValueError, match=f"optimizer's {setting}.*build it without"):
        DEVICES.trainer(two_matrices(), MomentumSGD(0.1, **{setting: 1.0}))


def test_evaluation_has_the_loss_that_is_optimized():
    weights = (0.5, 1.0, 4.0)
    loss = functools.partial(
        sigmoid_cross_entropy, label_smoothing=0.3, class_weights=weights
    )
    trainer = trainer_of(two_matrices, loss=loss)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 2, 2, 3), dtype="uint8")
    labels = rng.integers(0, CLASSES, 20).astype("int32")
    split = in_memory("noise", images, labels, tf.identity, str)
    settings = {"image_size": (2, 2), "batch_size": 8}
    done = []
    parts, found_loss = evaluate(
        trainer,
        DEVICES.batches(functools.partial(evaluation_batches, split, **settings)),
        lambda *one: one,
        done.append,
    )
    assert done == [8, 16, 20], "the last, smaller batch is included"
    found, probabilities = map(np.concatenate, zip(*parts, strict=True))
    np.testing.assert_array_equal(found, labels)
    scaled = images / 127.5 - 1
    model = [weight.astype("float64") for weight in values(trainer.model.weights)]
    logits = forward(model, scaled)[1]
    np.testing.assert_allclose(probabilities, softmax(logits), atol=1e-6)
    # Smoothed by 0.3, and weighted by class.
    targets = 0.7 * np.eye(CLASSES)[labels] + 0.3 / CLASSES
    losses = np.log1p(np.exp(logits)) - targets * logits
    expected = (losses.sum(axis=1) * np.array(weights)[labels]).mean()
    assert found_loss == pytest.approx(expected, rel=1e-6)
    # Before a step it is that of the same images in training.
    metrics = trainer.step(*placed((scaled.astype("float32"), labels)))
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-6)


def test_dropout_is_on_in_steps_and_off_in_evaluation():
    trainer = trainer_of(functools.partial(tiny_vit, dropout_rate=0.5), rate=0.0)
    [batch] = batches_of(1, 8, 8)
    assert_equal(*(values(trainer.answers(*batch)) for _ in "ab"))
    assert len({float(trainer.step(*batch)["loss"]) for _ in "ab"}) == 2


def made_in(policy, make):
    with reproducibility.seeded(0, policy):
        return make()


# JAX has no float16 attention on processors.
HALVES = ["mixed_bfloat16", *([] if IS_JAX else ["mixed_float16"])]


def test_half_precision_takes_nearly_the_steps_of_float32():
    batches = batches_of(4, 16, 8)
    weights, losses = {}, {}
    for policy in ("float32", *HALVES):
        make = functools.partial(made_in, policy, tiny_vit)
        trainer = trainer_of(make, micro_batches=DEVICES.micro_batches(16, 8))
        if trainer.loss_scale:
            trainer.loss_scale.scale.assign(2.0**10)
        told = trainer.fetch([trainer.step(*batch) for batch in batches])
        losses[policy] = [metrics["loss"] for metrics in told]
        trained = trainer.model.trainable_variables
        weights[policy] = values(trained)
        assert {v.dtype for v in trained} == {"float32"}
        assert {v.dtype for v in trainer.optimizer.velocities} == {"float32"}
        compute_dtype = trainer.model.get_layer("encoder_block_0").compute_dtype
        assert compute_dtype == policy.removeprefix("mixed_")
        assert values(trainer.answers(*batches[0]))[1].dtype == np.float32
    assert losses["mixed_bfloat16"] != losses["float32"]
    np.testing.assert_allclose(losses["mixed_bfloat16"], losses["float32"], rtol=0.03)
    if "mixed_float16" in HALVES:
        assert [metrics["loss_scale"] for metrics in told] == [2.0**10] * 4
        assert_equal(weights["mixed_float16"], weights["float32"], 5e-3)


def test_an_overflow_changes_nothing_but_the_scale_of_the_loss():
    [batch] = batches_of(1, 8, 2)
    make = functools.partial(made_in, "mixed_float16", two_matrices)
    trainer = trainer_of(make, average_decay=0.9)
    scale, good_steps = trainer.loss_scale.scale, trainer.loss_scale.good_steps
    assert float(scale) == 2.0**15
    # A checkpoint has both.
    assert trainer.variables[-2] is scale and trainer.variables[-1] is good_steps
    scale.assign(2.0**40)
    before = values(trainer.variables[:-2])
    metrics = trainer.step(*batch)
    assert float(metrics["gradient_norm"]) == 0.0
    assert float(metrics["loss_scale"]) == 2.0**40
    assert_equal(values(trainer.variables[:-2]), before)
    assert int(trainer.optimizer.iterations) == 0
    assert float(scale) == 2.0**39
    scale.assign(2.0**4)
    good_steps.assign(1_999)
    assert float(trainer.step(*batch)["gradient_norm"]) > 0.0
    assert int(trainer.optimizer.iterations) == 1
    assert float(scale) == 2.0**5 and int(good_steps) == 0


@pytest.mark.slow
@pytest.mark.skipif(IS_JAX, reason="XLA compiles every step of JAX")
def test_xla_computes_the_same_steps_and_logits():
    found = []
    batches = batches_of(3, 8, 8)
    for compiled in (None, True):
        trainer = trainer_of(tiny_vit, micro_batches=2, jit_compile=compiled)
        told = trainer.fetch([trainer.step(*batch) for batch in batches])
        metrics = [list(one.values()) for one in told]
        answers = trainer.answers(*batches[0])
        found.append([*values(trainer.variables), *answers, metrics])
    assert_equal(*found, tolerance=2e-5)
