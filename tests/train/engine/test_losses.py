import keras
import numpy as np
import pytest
from sklearn.metrics import log_loss

from train.engine.losses import sigmoid_cross_entropy, softmax_cross_entropy

LABELS = np.array([2, 0, 4, 4, 1, 2], "int32")


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(scale=5, size=(6, 5)).astype("float32")


def soft_labels():
    mixed = np.eye(5)[LABELS] * 0.7 + np.eye(5)[np.roll(LABELS, 1)] * 0.3
    return mixed.astype("float32")


def smoothed(labels, smoothing):
    rows = np.eye(5)[labels] if labels.ndim == 1 else labels.astype("float64")
    return rows, (1 - smoothing) * rows + smoothing / 5


def softmax_by_hand(logits, targets):
    logits = logits.astype("float64")
    return -(targets * (logits - np.log(np.exp(logits).sum(1, keepdims=True)))).sum(1)


def sigmoid_by_hand(logits, targets):
    chances = 1 / (1 + np.exp(-logits.astype("float64")))
    terms = targets * np.log(chances) + (1 - targets) * np.log(1 - chances)
    return -terms.sum(1)


BOTH = pytest.mark.parametrize(
    ("loss", "by_hand"),
    [
        (softmax_cross_entropy, softmax_by_hand),
        (sigmoid_cross_entropy, sigmoid_by_hand),
    ],
)


@BOTH
@pytest.mark.parametrize("labels", [LABELS, soft_labels()], ids=["integers", "rows"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("class_weights", [None, [1.0, 0.5, 2.0, 0.0, 3.0]])
def test_equals_float64(logits, loss, by_hand, labels, smoothing, class_weights):
    found = loss(logits, labels, label_smoothing=smoothing, class_weights=class_weights)
    rows, targets = smoothed(labels, smoothing)
    expected = by_hand(logits, targets)
    if class_weights is not None:
        expected = expected * (rows @ np.array(class_weights))
    assert found.shape == (6,)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(found), expected, rtol=2e-6, atol=2e-6
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_softmax_equals_keras(logits, smoothing):
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=smoothing, reduction=None
    )(soft_labels(), logits)
    ours = softmax_cross_entropy(logits, soft_labels(), label_smoothing=smoothing)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_mean_of_the_weighted_equals_scikit_learn(logits):
    weights = np.array([1.0, 0.5, 2.0, 1.0, 3.0])
    chances = np.exp(logits.astype("float64"))
    chances /= chances.sum(1, keepdims=True)
    expected = log_loss(LABELS, chances, labels=range(5), sample_weight=weights[LABELS])
    losses = softmax_cross_entropy(logits, LABELS, class_weights=weights)
    found = np.sum(losses) / weights[LABELS].sum()
    assert found == pytest.approx(expected, rel=1e-6)


@BOTH
def test_parts_add_up_to_the_whole(logits, loss, by_hand):
    whole = np.sum(loss(logits, LABELS))
    parts = [np.sum(loss(logits[i : i + 2], LABELS[i : i + 2])) for i in (0, 2, 4)]
    assert sum(parts) == pytest.approx(whole, rel=1e-6)


@BOTH
def test_large_logits_lose_no_numbers(loss, by_hand):
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], "float32")
    losses = np.asarray(loss(logits, np.array([0, 0])))
    assert losses[0] == 0
    assert np.isfinite(losses[1]) and losses[1] >= 2e4


@BOTH
def test_half_precision_logits_are_summed_in_float32(logits, loss, by_hand):
    half = keras.ops.cast(logits, "bfloat16")
    expected = by_hand(
        keras.ops.convert_to_numpy(keras.ops.cast(half, "float32")), np.eye(5)[LABELS]
    )
    np.testing.assert_allclose(loss(half, LABELS), expected, rtol=2e-6)


@BOTH
@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (
            np.zeros((6, 4), "float32"),
            {},
            r"rows of shape \(batch, 5\), got .*\(6, 4\)",
        ),
        (LABELS, {"label_smoothing": 1.5}, r"must be in \[0, 1\], got 1.5"),
        (LABELS, {"class_weights": [1.0]}, "each of the 5 classes, got 1"),
    ],
)
def test_what_does_not_fit_is_named(logits, loss, by_hand, labels, options, message):
    with pytest.raises(ValueError, match=message):
        loss(logits, labels, **options)
