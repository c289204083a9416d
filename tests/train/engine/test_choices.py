"""Losses, schedules, and that each row of choices is what recipes and reports say."""

import functools

import keras
import numpy as np
import pytest
from ml_dtypes import bfloat16

from train import recipes
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES
from train.engine.losses import sigmoid_cross_entropy, softmax_cross_entropy
from train.engine.schedules import WarmupCosine, WarmupLinear

RECIPE = recipes.for_dataset("digits")
LABELS = np.array([2, 0, 4, 4, 1, 2], "int32")
LOGITS = np.random.default_rng(0).normal(scale=5, size=(6, 5)).astype("float32")
SOFT = (np.eye(5)[LABELS] * 0.7 + np.eye(5)[np.roll(LABELS, 1)] * 0.3).astype("float32")


# Losses


def softmax_by_hand(logits, targets):
    logits = logits.astype("float64")
    return -(targets * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum(1)


def sigmoid_by_hand(logits, targets):
    chances = 1 / (1 + np.exp(-logits.astype("float64")))
    terms = targets * np.log(chances) + (1 - targets) * np.log(1 - chances)
    return -terms.sum(1)


BY_HAND = {
    softmax_cross_entropy: softmax_by_hand,
    sigmoid_cross_entropy: sigmoid_by_hand,
}
BOTH = pytest.mark.parametrize("loss", BY_HAND)


@BOTH
@pytest.mark.parametrize("labels", [LABELS, SOFT], ids=["integers", "rows"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("class_weights", [None, [1.0, 0.5, 2.0, 0.0, 3.0]])
def test_losses_equal_float64(loss, labels, smoothing, class_weights):
    settings = {"label_smoothing": smoothing, "class_weights": class_weights}
    found = loss(LOGITS, labels, **settings)
    rows = np.eye(5)[labels] if labels.ndim == 1 else labels.astype("float64")
    expected = BY_HAND[loss](LOGITS, (1 - smoothing) * rows + smoothing / 5)
    if class_weights is not None:
        expected = expected * (rows @ np.array(class_weights))
    assert found.shape == (6,)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    # Half precision is summed in float32.
    half = loss(keras.ops.cast(LOGITS, "bfloat16"), labels, **settings)
    rounded = LOGITS.astype(bfloat16).astype("float32")
    np.testing.assert_allclose(half, loss(rounded, labels, **settings), rtol=2e-6)


@BOTH
def test_large_logits_lose_no_numbers(loss):
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], "float32")
    losses = np.asarray(loss(logits, np.array([0, 0])))
    assert losses[0] == 0
    assert np.isfinite(losses[1]) and losses[1] >= 2e4


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (SOFT[:, :4], {}, r"rows of shape \(batch, 5\), got .*\(6, 4\)"),
        (LABELS, {"label_smoothing": 1.5}, r"must be in \[0, 1\], got 1.5"),
        (LABELS, {"class_weights": [1.0]}, "each of the 5 classes, got 1"),
    ],
)
def test_what_does_not_fit_a_loss_is_named(labels, options, message):
    with pytest.raises(ValueError, match=message):
        softmax_cross_entropy(LOGITS, labels, **options)


# Schedules


def cosine(progress, base):
    return base * 0.5 * (1.0 + np.cos(np.pi * progress))


def linear(progress, base, end=1e-5):
    return end + (base - end) * (1.0 - progress)


def released(decay, steps, base, total, warmup):
    """`create_learning_rate_schedule` of the released code in float64."""
    progress = np.clip((steps - warmup) / float(total - warmup), 0.0, 1.0)
    rates = decay(progress, base)
    return rates * np.minimum(1.0, steps / warmup) if warmup else rates


@pytest.mark.parametrize(
    ("schedule_class", "decay"),
    [
        (WarmupCosine, cosine),
        (WarmupLinear, linear),
        [functools.partial(one, end=2e-5) for one in (WarmupLinear, linear)],
    ],
)
@pytest.mark.parametrize(
    ("base", "total", "warmup"),
    [(0.03, 60, 20), (0.01, 20, 19), (0.1, 7, 0), (1.0, 1, 0)],
)
def test_schedules_equal_the_released_formula_at_every_step(
    schedule_class, decay, base, total, warmup
):
    schedule = schedule_class(base, total, warmup)
    steps = np.arange(total + 5)
    rates = [float(schedule(step)) for step in steps]
    expected = released(decay, steps, base, total, warmup)
    np.testing.assert_allclose(rates, expected, atol=base * 1e-6)
    # As the optimizer counts, of a schedule made of its config.
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    counter = keras.Variable(total // 2, dtype="int64", trainable=False)
    assert float(again(counter)) == rates[total // 2]
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("rate", "warmup", "message"),
    [
        *((0.1, warmup, rf"warmup_steps={warmup} .*steps=10\.") for warmup in (10, -1)),
        *((rate, 0, "learning_rate must be finite") for rate in (np.nan, np.inf, -0.1)),
    ],
)
def test_schedules_that_are_none_are_refused(rate, warmup, message):
    with pytest.raises(ValueError, match=message):
        WarmupCosine(rate, steps=10, warmup_steps=warmup)


# The rows of the registry


def test_rows_take_the_settings_of_a_recipe():
    settings = {"label_smoothing": 0.3, "weight_decay": 0.2, "steps": 9}
    momentum = {"momentum": 0.5, "momentum_dtype": "bfloat16"}
    recipe = RECIPE.override(optimizer="adam", warmup_steps=1, **settings, **momentum)
    rate = {"learning_rate": recipe.learning_rate, "steps": 9, "warmup_steps": 1}
    adam = {"kernel_decay": 0.2, "momentum_dtype": "bfloat16"}
    for rows, expected in (
        (LOSSES, [{"label_smoothing": 0.3}] * 4 + [{}] * 3),
        (SCHEDULES, [rate] * 2),
        (OPTIMIZERS, [momentum, adam]),
    ):
        assert [row.of(recipe).keywords for row in rows.values()] == expected


@pytest.mark.parametrize(
    ("field", "rows"),
    [
        *(("loss", LOSSES), ("schedule", SCHEDULES), ("optimizer", OPTIMIZERS)),
        ("precision", PRECISIONS),
    ],
)
def test_recipes_take_the_rows_and_no_others(field, rows):
    for name in rows:
        assert getattr(RECIPE.override(**{field: name}), field) == name
    with pytest.raises(ValueError, match=f"{field} must be one of {', '.join(rows)}"):
        RECIPE.override(**{field: "another"})
