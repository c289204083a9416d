import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from train.engine.loop import evaluate
from train.engine.losses import sigmoid_cross_entropy, softmax_cross_entropy
from train.engine.optimizers import MomentumSGD
from train.engine.schedules import WarmupCosine
from train.engine.tensorflow_backend import TensorFlowTrainer

CLASSES = 3
TINY = keras_vit.ViTConfig(
    hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, patch_size=4
)


def tiny_vit(zero_head=False, **settings):
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(TINY, image_size=8, classes=CLASSES, **settings)
    if not zero_head:
        kernel = model.get_layer("head").kernel
        kernel.assign(np.random.default_rng(1).normal(0, 0.3, kernel.shape))
    return model


def two_matrices():
    """A model whose gradients are easily written down."""
    keras.utils.set_random_seed(0)
    images = keras.Input((2, 2, 3))
    hidden = keras.layers.Dense(5, use_bias=False)(keras.layers.Flatten()(images))
    return keras.Model(images, keras.layers.Dense(CLASSES)(hidden))


def batches_of(count, batch_size, side, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (
            tf.constant(rng.uniform(-1, 1, (batch_size, side, side, 3)), "float32"),
            tf.constant(rng.integers(0, CLASSES, batch_size), "int32"),
        )
        for _ in range(count)
    ]


def softmax(logits):
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


def forward(weights, images):
    first, second, bias = weights
    hidden = images.reshape(len(images), -1) @ first
    return hidden, hidden @ second + bias


def step_by_hand(weights, velocities, images, labels, rate, clip_norm):
    """One step in float64: gradients of the whole batch, clip, momentum."""
    images = images.numpy().astype("float64")
    labels = labels.numpy()
    hidden, logits = forward(weights, images)
    chances = softmax(logits)
    off = (chances - np.eye(CLASSES)[labels]) / len(labels)
    gradients = [
        images.reshape(len(images), -1).T @ off @ weights[1].T,
        hidden.T @ off,
        off.sum(axis=0),
    ]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    shrink = min(1.0, clip_norm / norm)
    velocities = [
        0.9 * velocity + shrink * gradient
        for velocity, gradient in zip(velocities, gradients, strict=True)
    ]
    weights = [
        weight - rate * velocity
        for weight, velocity in zip(weights, velocities, strict=True)
    ]
    told = {
        "loss": -np.log(chances[np.arange(len(labels)), labels]).mean(),
        "accuracy": np.mean(logits.argmax(axis=1) == labels),
        "gradient_norm": norm,
        "learning_rate": rate,
    }
    return weights, velocities, told


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_steps_equal_those_by_hand(micro_batches):
    model = two_matrices()
    clip_norm = 1.0
    trainer = TensorFlowTrainer(
        model,
        MomentumSGD(WarmupCosine(0.5, 6, 2)),
        micro_batches=micro_batches,
        clip_norm=clip_norm,
    )
    rates = [0.0, 0.25, 0.5, *(0.25 * (1 + np.cos(np.pi * k / 4)) for k in (1, 2, 3))]
    weights = [weight.numpy().astype("float64") for weight in model.weights]
    velocities, norms = [0.0, 0.0, 0.0], []
    for rate, (images, labels) in zip(rates, batches_of(6, 8, 2), strict=True):
        weights, velocities, expected = step_by_hand(
            weights, velocities, images, labels, rate, clip_norm
        )
        told = trainer.step(images, labels)
        assert told.keys() == expected.keys()
        for name, value in told.items():
            assert value.dtype == tf.float32
            assert float(value) == pytest.approx(expected[name], abs=2e-6), name
        norms.append(expected["gradient_norm"])
        for mine, theirs in zip(model.weights, weights, strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, atol=2e-6)
    assert min(norms) < clip_norm < max(norms), "some steps must clip, others not"


def test_settings_that_would_be_left_out_are_refused():
    with pytest.raises(ValueError, match="optimizer's weight_decay.*build it without"):
        TensorFlowTrainer(two_matrices(), MomentumSGD(0.1, weight_decay=0.1))
    with pytest.raises(ValueError, match="optimizer's global_clipnorm"):
        TensorFlowTrainer(two_matrices(), MomentumSGD(0.1, global_clipnorm=1.0))


def test_micro_batches_give_the_same_weights():
    results = {}
    for micro_batches in (1, 4):
        trainer = TensorFlowTrainer(
            tiny_vit(), MomentumSGD(0.1), micro_batches=micro_batches, clip_norm=1.0
        )
        for images, labels in batches_of(2, 8, 8):
            trainer.step(images, labels)
        results[micro_batches] = [v.numpy() for v in trainer.variables]
    for variable, one in zip(tiny_vit().variables, results[1], strict=False):
        # Softmax does not see the keys' bias.
        if one.size > CLASSES and "key/bias" not in variable.path:
            assert not np.array_equal(variable.numpy(), one), variable.path
    for one, other in zip(results[1], results[4], strict=True):
        scale = np.abs(one).max()
        np.testing.assert_allclose(other, one, atol=1e-6 * max(scale, 1))


class Unused(keras.layers.Layer):
    """Has a weight that its output does not depend on."""

    def build(self, shape):
        self.extra = self.add_weight(shape=(2,), initializer="ones")

    def call(self, inputs):
        return inputs


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_variable_that_the_loss_does_not_use_stays(micro_batches):
    inner, unused = two_matrices(), Unused()
    model = keras.Model(inner.inputs, unused(inner.output))
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1), micro_batches=micro_batches)
    before = inner.get_weights()
    trainer.step(*batches_of(1, 4, 2)[0])
    np.testing.assert_array_equal(unused.extra.numpy(), [1, 1])
    for one, other in zip(before, inner.get_weights(), strict=True):
        assert not np.array_equal(one, other)


def test_a_zero_head_moves_alone_until_it_is_not_zero():
    # The head's zeros stop every gradient below; its own comes through at once. The
    # warm-up's first update has rate zero. Adding a constant to all keys changes no
    # attention, so the keys' bias has no gradient at all.
    model = tiny_vit(zero_head=True)
    trainer = TensorFlowTrainer(model, MomentumSGD(WarmupCosine(0.1, 10, 2)))
    moved = []
    for images, labels in batches_of(3, 8, 8):
        before = {v.path: v.numpy() for v in model.trainable_variables}
        trainer.step(images, labels)
        moved.append(
            {
                v.path
                for v in model.trainable_variables
                if not np.array_equal(v.numpy(), before[v.path])
            }
        )
    assert moved[0] == set()
    assert moved[1] == {"head/kernel", "head/bias"}
    rest = {v.path for v in model.trainable_variables} - moved[2]
    assert all("key/bias" in path for path in rest), rest


def sigmoid_loss_by_hand(logits, labels):
    """Summed over the classes, smoothed by 0.3 and weighted by class."""
    targets = 0.7 * np.eye(CLASSES)[labels] + 0.3 / CLASSES
    chances = 1 / (1 + np.exp(-logits))
    losses = -targets * np.log(chances) - (1 - targets) * np.log(1 - chances)
    return losses.sum(axis=1) * np.array([0.5, 1.0, 4.0])[labels]


def softmax_loss_by_hand(logits, labels):
    targets = 0.7 * np.eye(CLASSES)[labels] + 0.3 / CLASSES
    losses = -(targets * np.log(softmax(logits))).sum(axis=1)
    return losses * np.array([0.5, 1.0, 4.0])[labels]


@pytest.mark.parametrize(
    ("loss", "by_hand"),
    [
        (sigmoid_cross_entropy, sigmoid_loss_by_hand),
        (softmax_cross_entropy, softmax_loss_by_hand),
    ],
)
def test_evaluation_has_the_loss_that_is_optimized(loss, by_hand):
    model = two_matrices()
    loss = functools.partial(loss, label_smoothing=0.3, class_weights=(0.5, 1.0, 4.0))
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1), loss=loss)
    (images, labels), *_ = batches_of(1, 10, 2)
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    weights = [weight.numpy().astype("float64") for weight in model.weights]
    logits = forward(weights, images.numpy().astype("float64"))[1]
    expected = by_hand(logits, labels.numpy()).mean()
    done = []
    parts, found_loss = evaluate(trainer, batches, lambda *one: one, done.append)
    found, probabilities = map(np.concatenate, zip(*parts, strict=True))
    assert done == [4, 8, 10], "the last, smaller batch is included"
    np.testing.assert_array_equal(found, labels.numpy())
    np.testing.assert_allclose(probabilities, softmax(logits), atol=1e-6)
    assert found_loss == pytest.approx(expected, rel=1e-6)
    # Before a step it is that of the same images in training.
    told = trainer.step(images, labels)
    assert float(told["loss"]) == pytest.approx(expected, rel=1e-6)


def test_dropout_is_on_in_steps_and_off_in_evaluation():
    model = tiny_vit(dropout_rate=0.5)
    trainer = TensorFlowTrainer(model, MomentumSGD(0.0))
    batches = batches_of(1, 8, 8)
    once, again = (
        evaluate(trainer, batches, lambda labels, found: found)[0] for _ in range(2)
    )
    np.testing.assert_array_equal(once, again)
    losses = {float(trainer.step(*batches[0])["loss"]) for _ in range(2)}
    assert len(losses) == 2


def made_in(policy, make):
    previous = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        return make()
    finally:
        keras.config.set_dtype_policy(previous)


def test_half_precision_takes_nearly_the_steps_of_float32():
    batches = batches_of(4, 8, 8)
    weights, losses = {}, {}
    for policy in ("float32", "mixed_bfloat16", "mixed_float16"):
        model = made_in(policy, tiny_vit)
        trainer = TensorFlowTrainer(model, MomentumSGD(0.1), micro_batches=2)
        if trainer.loss_scale:
            trainer.loss_scale.scale.assign(2.0**10)
        told = [trainer.step(*batch) for batch in batches]
        losses[policy] = [float(metrics["loss"]) for metrics in told]
        weights[policy] = [v.numpy() for v in model.trainable_variables]
        assert {v.dtype for v in model.trainable_variables} == {"float32"}
        assert {v.dtype for v in trainer.optimizer.velocities} == {"float32"}
        compute_dtype = model.get_layer("encoder_block_0").compute_dtype
        assert compute_dtype == policy.removeprefix("mixed_")
        if policy == "mixed_bfloat16":
            assert trainer.answers(*batches[0])[1].dtype == np.float32
    assert [float(metrics["loss_scale"]) for metrics in told] == [2.0**10] * 4
    assert losses["mixed_bfloat16"] != losses["float32"]
    np.testing.assert_allclose(losses["mixed_bfloat16"], losses["float32"], rtol=0.03)
    for one, other in zip(weights["float32"], weights["mixed_float16"], strict=True):
        np.testing.assert_allclose(other, one, atol=5e-3)


def test_an_overflow_changes_nothing_but_the_scale_of_the_loss():
    batch = batches_of(1, 8, 2)[0]
    model = made_in("mixed_float16", two_matrices)
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1), average_decay=0.9)
    trainer.loss_scale.scale.assign(2.0**40)
    before = [v.numpy() for v in trainer.variables[:-2]]
    told = trainer.step(*batch)
    assert (float(told["gradient_norm"]), float(told["loss_scale"])) == (0.0, 2.0**40)
    for one, variable in zip(before, trainer.variables[:-2], strict=True):
        np.testing.assert_array_equal(variable.numpy(), one)
    assert int(trainer.optimizer.iterations) == 0
    assert float(trainer.loss_scale.scale) == 2.0**39
    trainer.loss_scale.scale.assign(2.0**4)
    trainer.loss_scale.good_steps.assign(1_999)
    assert float(trainer.step(*batch)["gradient_norm"]) > 0.0
    assert int(trainer.optimizer.iterations) == 1
    assert float(trainer.loss_scale.scale) == 2.0**5
    assert int(trainer.loss_scale.good_steps) == 0


def test_averages_follow_the_weights():
    trainer = TensorFlowTrainer(two_matrices(), MomentumSGD(0.1), average_decay=0.3)
    expected = [v.numpy() for v in trainer.model.trainable_variables]
    for step, batch in enumerate(batches_of(6, 8, 2)):
        trainer.step(*batch)
        decay = min(0.3, (1 + step) / (10 + step))
        now = [v.numpy() for v in trainer.model.trainable_variables]
        expected = [
            decay * one + (1 - decay) * other
            for one, other in zip(expected, now, strict=True)
        ]
    assert (
        decay == 0.3
        and max(
            np.abs(one - other).max() for one, other in zip(now, expected, strict=True)
        )
        > 1e-3
    )
    with trainer.averaged():
        for one, variable in zip(
            expected, trainer.model.trainable_variables, strict=True
        ):
            np.testing.assert_allclose(variable.numpy(), one, atol=1e-6)
    for one, variable in zip(now, trainer.model.trainable_variables, strict=True):
        np.testing.assert_array_equal(variable.numpy(), one)


def test_rates_of_single_variables():
    batch = batches_of(1, 8, 2)[0]
    models = [two_matrices(), two_matrices()]
    starts = [v.numpy() for v in models[0].trainable_variables]
    scales = {v.path: 0.5 for v in models[1].trainable_variables[:2]}
    for model, factors in zip(models, (None, scales), strict=True):
        trainer = TensorFlowTrainer(model, MomentumSGD(0.1), rate_scales=factors)
        trainer.step(*batch)
    for index, start in enumerate(starts):
        one, other = (m.trainable_variables[index].numpy() - start for m in models)
        factor = 0.5 if index < 2 else 1.0
        assert np.any(one)
        np.testing.assert_allclose(other, factor * one, atol=1e-7)


@pytest.mark.slow
def test_xla_computes_the_same_steps_and_logits():
    found = []
    for compiled in (None, True):
        model = tiny_vit()
        trainer = TensorFlowTrainer(
            model, MomentumSGD(0.1), micro_batches=2, jit_compile=compiled
        )
        batches = batches_of(3, 8, 8)
        told = trainer.fetch([trainer.step(*batch) for batch in batches])
        found.append(
            [
                *(variable.numpy() for variable in trainer.variables),
                *trainer.answers(*batches[0]),
                [list(one.values()) for one in told],
            ]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5)
