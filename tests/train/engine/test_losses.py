"""Losses of several labels and of numbers, in float64, with their gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from train import recipes
from train.engine import losses
from train.engine.choices import LOSSES
from train.tasks import TASKS

RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(scale=4, size=(7, 5)).astype("float32")
HARD = RANDOM.integers(0, 2, (7, 5)).astype("float32")
SOFT = RANDOM.uniform(size=(7, 5)).astype("float32")
WEIGHTS = [1.0, 0.5, 20.0, 3.0, 0.1]
NUMBERS = RANDOM.normal(scale=2, size=(9, 1)).astype("float32")
TRUTH = RANDOM.normal(scale=2, size=(9, 1)).astype("float32")
EXTREMES = np.array([0.0, 1e-3, 17.0, 89.0, 104.0, 3e3, 65504.0, 1e30], "float32")


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


def binary_by_hand(logits, labels):
    chances = sigmoid(logits)
    return -labels * np.log(chances), -(1 - labels) * np.log(1 - chances)


def focal_by_hand(logits, labels, gamma=2, alpha=None):
    present, absent = binary_by_hand(logits, labels)
    parts = (1, 1) if alpha is None else (alpha, 1 - alpha)
    present = parts[0] * sigmoid(-logits) ** gamma * present
    return present, parts[1] * sigmoid(logits) ** gamma * absent


def asymmetric_by_hand(logits, labels, gamma_neg=4, gamma_pos=1, clip=0.05):
    chances = sigmoid(logits)
    shifted = np.clip(chances - clip, 0, None)
    present = -labels * (1 - chances) ** gamma_pos * np.log(chances)
    return present, -(1 - labels) * shifted**gamma_neg * np.log(1 - shifted)


def huber_by_hand(numbers, labels, delta=1):
    far = np.abs(numbers - labels)
    return np.where(far <= delta, far**2 / 2, delta * (far - delta / 2)), 0


def squared_by_hand(numbers, labels):
    return (numbers - labels) ** 2, 0


SIGMOID = (losses.sigmoid_cross_entropy, binary_by_hand)
FOCAL = (losses.focal_loss, focal_by_hand)
ASYMMETRIC = (losses.asymmetric_loss, asymmetric_by_hand)
OF_LABELS = [
    (*SIGMOID, {}),
    (*FOCAL, {}),
    (*FOCAL, {"gamma": 0.5, "alpha": 0.25}),
    (*ASYMMETRIC, {}),
    (*ASYMMETRIC, {"gamma_neg": 2.0, "gamma_pos": 0.0, "clip": 0.2}),
    (*ASYMMETRIC, {"gamma_neg": 1.5, "clip": 0.0}),
]
OF_NUMBERS = [
    (losses.huber_loss, huber_by_hand, {}),
    (losses.huber_loss, huber_by_hand, {"delta": 0.3}),
    (losses.squared_error, squared_by_hand, {}),
]


def summed(by_hand, outputs, labels, options, pos_weight=1.0, smoothing=0.0):
    """Returns the losses in float64, with weights and smoothing."""
    labels = labels.astype("float64") * (1 - smoothing) + smoothing / labels.shape[1]
    present, absent = by_hand(outputs.astype("float64"), labels, **options)
    return (np.asarray(pos_weight) * present + absent).sum(axis=1)


def gradient(loss, outputs, labels, options):
    outputs = tf.constant(outputs)
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        found = loss(outputs, labels, **options)
    return np.asarray(tape.gradient(found, outputs))


@pytest.mark.parametrize(("loss", "by_hand", "options"), OF_LABELS)
@pytest.mark.parametrize("labels", [HARD, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize(
    ("pos_weight", "smoothing"), [(None, 0.0), (WEIGHTS, 0.0), (WEIGHTS, 0.2)]
)
def test_losses_of_labels_equal_float64(
    loss, by_hand, options, labels, pos_weight, smoothing
):
    more = {"pos_weight": pos_weight, "label_smoothing": smoothing}
    found = loss(LOGITS, labels, **options, **more)
    weights = 1.0 if pos_weight is None else pos_weight
    expected = summed(by_hand, LOGITS, labels, options, weights, smoothing)
    assert found.shape == (7,)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(found, expected, rtol=5e-6, atol=1e-7)


@pytest.mark.parametrize(("loss", "by_hand", "options"), OF_NUMBERS)
def test_losses_of_numbers_equal_float64(loss, by_hand, options):
    expected = summed(by_hand, NUMBERS, TRUTH, options)
    for labels in (TRUTH, TRUTH[:, 0]):
        found = loss(NUMBERS, labels, **options)
        assert found.shape == (9,)
        assert keras.backend.standardize_dtype(found.dtype) == "float32"
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)
    rows = loss(NUMBERS.reshape(3, 3), TRUTH.reshape(3, 3), **options)
    np.testing.assert_allclose(rows, expected.reshape(3, 3).sum(axis=1), rtol=2e-6)


@pytest.mark.parametrize(
    ("loss", "by_hand", "options", "outputs", "labels"),
    [
        *((*row, LOGITS, SOFT) for row in OF_LABELS),
        *((*row, NUMBERS, TRUTH) for row in OF_NUMBERS),
    ],
)
def test_gradients_equal_differences_in_float64(
    loss, by_hand, options, outputs, labels
):
    found = gradient(loss, outputs, labels, options)
    for place in np.ndindex(outputs.shape):
        step = np.zeros(outputs.shape)
        step[place] = 1e-5
        up, down = (
            summed(by_hand, outputs + sign * step, labels, options).sum()
            for sign in (1, -1)
        )
        assert abs(found[place] - (up - down) / 2e-5) < 1e-5 * max(1, abs(found[place]))


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        *((loss, options) for loss, _, options in OF_LABELS),
        (losses.asymmetric_loss, {"gamma_neg": 0.5}),
        (losses.sigmoid_cross_entropy, {"pos_weight": [100.0]}),
        *((loss, options) for loss, _, options in OF_NUMBERS[:2]),
    ],
)
@pytest.mark.parametrize("label", [0.0, 0.3, 1.0])
def test_extreme_outputs_have_finite_losses_and_gradients(loss, options, label):
    outputs = np.concatenate([EXTREMES, -EXTREMES])[:, None]
    labels = np.full_like(outputs, label)
    assert np.isfinite(loss(outputs, labels, **options)).all()
    assert np.isfinite(gradient(loss, outputs, labels, options)).all()
    # Half precision, whose largest number is 65504, is computed in float32.
    half = tf.constant(outputs[np.abs(outputs[:, 0]) < 1e5], "float16")
    labels = labels[: len(half)]
    found = loss(half, labels, **options)
    expected = loss(tf.cast(half, "float32"), labels, **options)
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(gradient(loss, half, labels, options)).all()


@pytest.mark.parametrize("labels", [HARD, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (losses.focal_loss, {"gamma": 0.0}),
        (losses.asymmetric_loss, {"gamma_neg": 0.0, "gamma_pos": 0.0, "clip": 0.0}),
        (losses.sigmoid_cross_entropy, {"pos_weight": [1.0] * 5}),
    ],
)
def test_losses_without_factors_are_the_sigmoid_cross_entropy(loss, options, labels):
    expected = losses.sigmoid_cross_entropy(LOGITS, labels)
    np.testing.assert_allclose(loss(LOGITS, labels, **options), expected, rtol=1e-6)


def test_focal_loss_is_that_of_keras():
    keras_loss = keras.losses.BinaryFocalCrossentropy(
        apply_class_balancing=True, from_logits=True, reduction="none"
    )
    found = losses.focal_loss(LOGITS, HARD, alpha=0.25)
    expected = 5 * np.asarray(keras_loss(HARD, LOGITS))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_balanced_pos_weight_makes_both_sides_of_each_label_equal():
    positives = np.array([1, 7, 50, 99, 100, 0])
    weights = losses.balanced_pos_weight(positives, 100)
    np.testing.assert_allclose(weights[:4] * positives[:4], 100 - positives[:4])
    assert weights[4:] == (1 / losses.POS_WEIGHT_LIMIT, 99.0)
    assert losses.balanced_pos_weight([1], 10**6) == (losses.POS_WEIGHT_LIMIT,)


@pytest.mark.parametrize(
    ("loss", "outputs", "labels", "options", "message"),
    [
        (losses.focal_loss, LOGITS, HARD, {"pos_weight": [1.0]}, "5 classes, got 1"),
        (losses.focal_loss, LOGITS, HARD[:, :2], {}, r"\(batch, 5\), got .*\(7, 2\)"),
        (losses.huber_loss, LOGITS, TRUTH, {}, r"\(batch, 5\), got shape \(9, 1\)"),
        (losses.squared_error, LOGITS, TRUTH[:, 0], {}, r"got shape \(9,\)"),
    ],
)
def test_labels_and_weights_that_do_not_fit_are_named(
    loss, outputs, labels, options, message
):
    with pytest.raises(ValueError, match=message):
        loss(outputs, labels, **options)


def test_each_loss_says_which_tasks_it_suits():
    assert all({*row.tasks} and {*row.tasks} <= {*TASKS} for row in LOSSES.values())
    assert {task for row in LOSSES.values() for task in row.tasks} == {*TASKS}
    recipe = recipes.for_dataset("digits")
    recipe.check()
    for name in ("focal", "huber"):
        with pytest.raises(
            ValueError, match=f"loss={name} is for .*: pass loss=softmax or"
        ):
            recipe.override(loss=name).check()
    recipe.override(loss="focal", label_smoothing=0.1)
    with pytest.raises(
        ValueError, match="label_smoothing=0.1 does nothing with loss=h"
    ):
        recipe.override(loss="huber", label_smoothing=0.1)
