"""Losses per example, which micro-batches and devices can add up."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from numpy.typing import ArrayLike

from train.data.registry import IGNORED

# A label that one photo of 10,000 has would otherwise outweigh all others.
POS_WEIGHT_LIMIT = 100.0


def softmax_cross_entropy(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
) -> Any:
    """Returns -sum over the classes of label log softmax(logits), for each example.

    Labels are an int tensor (batch,), or a float tensor (batch, classes) whose rows sum
    to one; `label_smoothing` is the part of them that goes to all classes alike. With
    `class_weights`, one float per class, an example counts as its class does, one with
    several labels as their mean; the losses are not divided by the weights. Returns
    float32 (batch,), and raises a `ValueError` for what does not fit.

    Source:
        Released code, `train.py`; the smoothing of Rethinking the Inception
        Architecture for Computer Vision, section 7.

    Example:
        >>> import numpy as np
        >>> logits = np.zeros((3, 4), "float32")
        >>> losses = softmax_cross_entropy(logits, np.array([0, 1, 3]))
        >>> bool(abs(losses[0] - np.log(4)) < 1e-6)
        True
    """
    if len(labels.shape) == 1 and not label_smoothing and class_weights is None:
        logits = ops.cast(logits, "float32")
        return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    logits, targets, weights = _prepare(logits, labels, label_smoothing, class_weights)
    return weights * ops.categorical_crossentropy(targets, logits, from_logits=True)


def sigmoid_cross_entropy(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
    pos_weight: Sequence[float] | None = None,
) -> Any:
    """Returns the sum of binary cross-entropies over the classes, for each example.

    That is the sum of -label log sigmoid(logit) - (1 - label) log(1 - sigmoid(logit)).

    As `softmax_cross_entropy`, but values of labels (batch, classes) are in [0, 1], and
    the weights of an example's classes are added up where these do not sum to one.
    `pos_weight`, one float per class, multiplies the first of the two terms, see
    `balanced_pos_weight`.

    Source:
        How to train your ViT?, section 3.2; big_vision, `utils.py`.

    Example:
        >>> import numpy as np
        >>> labels = np.array([[1, 1, 0], [0, 0, 0]], "float32")
        >>> losses = sigmoid_cross_entropy(np.zeros((2, 3), "float32"), labels)
        >>> bool(np.allclose(losses, 3 * np.log(2)))
        True
    """
    logits, targets, weights = _prepare(logits, labels, label_smoothing, class_weights)
    if pos_weight is not None:
        terms = ops.softplus(-logits), ops.softplus(logits)
        return weights * _sum_over_labels(targets, *terms, pos_weight)
    losses = ops.binary_crossentropy(targets, logits, from_logits=True)
    return weights * ops.sum(losses, axis=-1)


def focal_loss(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = None,
    label_smoothing: float = 0.0,
    pos_weight: Sequence[float] | None = None,
) -> Any:
    """Returns binary cross-entropies that count less where the answer is right already.

    With p = sigmoid(logit), that is for each example the sum over the classes of
    -label (1 - p)^gamma log p - (1 - label) p^gamma log(1 - p). `alpha`, such as 0.25,
    multiplies the first term and 1 - alpha the second; with `gamma` 0 and without
    `alpha` it is `sigmoid_cross_entropy`, which has the other arguments. Of labels
    between 0 and 1 both terms count, each with its own factor.

    Source:
        Lin et al., Focal Loss for Dense Object Detection (arXiv 1708.02002), section 3.

    Example:
        >>> import numpy as np
        >>> loss = focal_loss(np.zeros((1, 1), "float32"), np.ones((1, 1), "float32"))
        >>> bool(abs(loss[0] - 0.5**2 * np.log(2)) < 1e-6)
        True
    """
    logits, targets, _ = _prepare(logits, labels, label_smoothing, None)
    present, absent = ops.softplus(-logits), ops.softplus(logits)
    # Powers of probabilities as exponentials of their logarithms have finite gradients.
    factors = ops.exp(-gamma * absent), ops.exp(-gamma * present)
    present, absent = present * factors[0], absent * factors[1]
    if alpha is not None:
        present, absent = alpha * present, (1.0 - alpha) * absent
    return _sum_over_labels(targets, present, absent, pos_weight)


def asymmetric_loss(
    logits: keras.KerasTensor,
    labels: keras.KerasTensor,
    *,
    gamma_neg: float = 4.0,
    gamma_pos: float = 1.0,
    clip: float = 0.05,
    label_smoothing: float = 0.0,
    pos_weight: Sequence[float] | None = None,
) -> Any:
    """Returns binary cross-entropies in which labels that are absent count little.

    With p = sigmoid(logit) and q = max(p - clip, 0), that is for each example the sum
    over the classes of
    -label (1 - p)^gamma_pos log p - (1 - label) q^gamma_neg log(1 - q): labels that are
    absent and less likely than `clip` count nothing. The other arguments are those of
    `sigmoid_cross_entropy`, which it is with 0 for all three.

    The defaults are those of the authors' code and of timm; the paper has the formula
    and says that 0 is mostly enough for `gamma_pos`. As in timm, gradients flow through
    the factors, too.

    Source:
        Ridnik et al., Asymmetric Loss For Multi-Label Classification (arXiv
        2009.14119), section 2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[-4.0], [0.0]], "float32")
        >>> losses = asymmetric_loss(logits, np.zeros((2, 1), "float32"))
        >>> bool(np.allclose(losses, [0, -(0.45**4) * np.log(0.55)]))
        True
    """
    logits, targets, _ = _prepare(logits, labels, label_smoothing, None)
    present, absent = ops.softplus(-logits), ops.softplus(logits)
    factor = ops.exp(-gamma_pos * absent)
    if clip:
        # Powers below 1 have no finite gradient at 0.
        shifted = ops.maximum(ops.sigmoid(logits) - clip, 1e-12)
        absent = -ops.log1p(-shifted) * shifted**gamma_neg
    else:
        absent = absent * ops.exp(-gamma_neg * present)
    return _sum_over_labels(targets, present * factor, absent, pos_weight)


def balanced_pos_weight(positives: ArrayLike, examples: int) -> tuple[float, ...]:
    """Returns the negatives per positive of each class, for `pos_weight`.

    `positives` are the numbers of examples (classes,) that have a label, of `examples`.
    The results are limited to 1/100 to 100 (`POS_WEIGHT_LIMIT`); a label without
    examples counts as if it had one.

    Example:
        >>> balanced_pos_weight([20, 50, 0], 100)
        (4.0, 1.0, 99.0)
    """
    positives = np.maximum(np.asarray(positives, np.float64), 1.0)
    weights = (examples - positives) / positives
    return tuple(np.clip(weights, 1 / POS_WEIGHT_LIMIT, POS_WEIGHT_LIMIT).tolist())


def huber_loss(
    numbers: keras.KerasTensor, labels: keras.KerasTensor, *, delta: float = 1.0
) -> Any:
    """Returns half the squared error, a line beyond `delta`, for each example.

    Answers are (batch, 1) and labels (batch,) or (batch, 1), best standardised, so that
    `delta` is a standard deviation. Of several numbers per example (batch, numbers) the
    losses are added up. Returns float32 (batch,).

    Source:
        Huber, Robust Estimation of a Location Parameter, Annals of Mathematical
        Statistics 35 (1964).

    Example:
        >>> import numpy as np
        >>> losses = huber_loss(np.zeros((2, 1), "float32"), np.array([0.5, 3.0]))
        >>> np.asarray(losses).tolist()
        [0.125, 2.5]
    """
    distances = ops.abs(_errors(numbers, labels))
    inner = ops.minimum(distances, delta)
    return ops.sum(inner * (distances - 0.5 * inner), axis=-1)


def squared_error(numbers: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
    """Returns the squared error for each example, with arguments as `huber_loss`.

    Example:
        >>> import numpy as np
        >>> losses = squared_error(np.zeros((2, 1), "float32"), np.array([0.5, 3.0]))
        >>> np.asarray(losses).tolist()
        [0.25, 9.0]
    """
    return ops.sum(ops.square(_errors(numbers, labels)), axis=-1)


def counted_pixels(labels: keras.KerasTensor) -> tuple[Any, Any]:
    """Returns which pixels of masks count, and how many of each photo, one at least.

    Labels are integers (batch, height, width), 255 where a pixel does not count; the
    results are float32, of that shape and (batch,).
    """
    counted = ops.cast(ops.not_equal(labels, IGNORED), "float32")
    return counted, ops.maximum(ops.sum(counted, axis=(1, 2)), 1.0)


def pixel_cross_entropy(logits: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
    """Returns the mean softmax cross-entropy of the pixels of each photo that count.

    Logits are (batch, height, width, classes), labels as in `counted_pixels`. Returns
    float32 (batch,).

    Example:
        >>> import numpy as np
        >>> logits, labels = np.zeros((1, 1, 2, 4)), np.array([[[3, 255]]])
        >>> bool(abs(pixel_cross_entropy(logits, labels)[0] - np.log(4)) < 1e-6)
        True
    """
    counted, count = counted_pixels(labels)
    classes = ops.where(ops.equal(labels, IGNORED), 0, labels)
    losses = ops.sparse_categorical_crossentropy(
        classes, ops.cast(logits, "float32"), from_logits=True
    )
    return ops.sum(losses * counted, axis=(1, 2)) / count


def count_correct(logits: keras.KerasTensor, labels: keras.KerasTensor) -> Any:
    """Returns 1.0 for each example whose largest logit is that of its label, else 0.0.

    See `softmax_cross_entropy` for the labels; of rows the largest counts.
    """
    if len(labels.shape) == 2:
        labels = ops.argmax(labels, axis=-1)
    predicted = ops.argmax(logits, axis=-1)
    return ops.cast(ops.equal(predicted, ops.cast(labels, predicted.dtype)), "float32")


def _prepare(logits, labels, label_smoothing, class_weights):
    """Returns float32 logits, a row of targets for each, and their weights."""
    classes = logits.shape[-1]
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1], got {label_smoothing}.")
    if len(labels.shape) == 1:
        targets = ops.one_hot(labels, classes, dtype="float32")
    elif len(labels.shape) == 2 and labels.shape[-1] == classes:
        targets = ops.cast(labels, "float32")
    else:
        raise ValueError(
            f"For logits of shape {tuple(logits.shape)} labels must be integers of "
            f"shape (batch,) or rows of shape (batch, {classes}), got shape "
            f"{tuple(labels.shape)}."
        )
    weights = 1.0
    if class_weights is not None:
        _check_length("class_weights", class_weights, classes)
        class_weights = ops.convert_to_tensor(class_weights, dtype="float32")
        weights = ops.sum(targets * class_weights, axis=-1)
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets + label_smoothing / classes
    return ops.cast(logits, "float32"), targets, weights


def _sum_over_labels(targets, present, absent, pos_weight):
    """Returns the losses (batch,) of labels from those if each is present or absent."""
    if pos_weight is not None:
        _check_length("pos_weight", pos_weight, targets.shape[-1])
        present = present * ops.convert_to_tensor(pos_weight, dtype="float32")
    return ops.sum(targets * present + (1.0 - targets) * absent, axis=-1)


def _check_length(name, weights, classes):
    if len(weights) != classes:
        raise ValueError(
            f"{name} must have one weight for each of the {classes} classes, got "
            f"{len(weights)}."
        )


def _errors(numbers, labels):
    """Returns float32 answers minus labels, (batch, numbers)."""
    outputs = numbers.shape[-1]
    if len(labels.shape) == 1 and outputs == 1:
        labels = ops.expand_dims(labels, axis=-1)
    if len(labels.shape) != 2 or labels.shape[-1] != outputs:
        raise ValueError(
            f"For answers of shape {tuple(numbers.shape)} labels must be numbers of "
            f"shape (batch, {outputs}), got shape {tuple(labels.shape)}."
        )
    return ops.cast(numbers, "float32") - ops.cast(labels, "float32")
