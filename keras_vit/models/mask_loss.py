"""The loss of models with queries for masks, on TensorFlow and JAX."""

from typing import Any

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskLoss(keras.losses.Loss):
    """Matches queries with the segments of a photo; losses of their masks and classes.

    Each class of a photo is a segment, and gets the query that fits it best: the sum of
    the costs is the least (Hungarian matching, by SciPy). Matched queries have the
    binary cross-entropy and the dice loss of their masks, all queries the
    cross-entropy of their class, which is "no object" for those without a segment.
    Masks are compared whole, at the size of the mask logits: of each of their pixels
    the share of a class is compared, where the code of EoMT draws 12,544 points. It has
    no weights of photos, and no reduction: numbers are means over a batch.

    Args:
        mask_weight: float, of the binary cross-entropy.
        dice_weight: float, of the dice loss.
        class_weight: float, of the cross-entropy of classes.
        no_object_weight: float, of queries without a segment in this cross-entropy.
        ignore_class: None or int, the number of pixels that are left out, as all are
            that are not below the number of classes.
        name: str, of the loss.
        **kwargs: those of `keras.losses.Loss`.

    Call arguments:
        y_true: int tensor (batch, height, width), the class of every pixel.
        y_pred: dict of the model's outputs, see `MaskModel`; losses of `"intermediate"`
            ones are added.

    Returns:
        Float tensor (), the loss.

    Raises:
        NotImplementedError: the backend of Keras is neither TensorFlow nor JAX.

    Source:
        Kerssies et al., arXiv 2503.19108, section 4.1; Cheng et al., arXiv 2112.01527,
        section 3.3; `EomtLoss` of transformers.

    Example:
        >>> outputs = {"class_logits": np.zeros((2, 9, 4)),
        ...            "mask_logits": np.zeros((2, 9, 8, 12))}
        >>> round(float(MaskLoss()(np.zeros((2, 32, 48), "uint8"), outputs)), 3)
        7.893
    """

    def __init__(
        self,
        mask_weight: float = 5.0,
        dice_weight: float = 5.0,
        class_weight: float = 2.0,
        no_object_weight: float = 0.1,
        ignore_class: int | None = 255,
        name: str = "mask_loss",
        **kwargs: Any,
    ):
        super().__init__(name=name, **kwargs)
        self.mask_weight = mask_weight
        self.dice_weight = dice_weight
        self.class_weight = class_weight
        self.no_object_weight = no_object_weight
        self.ignore_class = ignore_class

    def call(self, y_true: Any, y_pred: dict) -> Any:
        classes = y_pred["class_logits"].shape[-1] - 1
        sides = ops.shape(y_pred["mask_logits"])[2:]
        segments, labelled = self._shares(y_true, sides, classes)
        every = [y_pred, *y_pred.get("intermediate", ())]
        return sum(self._loss(one, segments, labelled) for one in every)

    def _shares(self, labels, sides, classes):
        """Returns the share that each class has of each pixel of a mask, and their sum.

        Float tensors (batch, classes, pixels) and (batch, 1, pixels).
        """
        labels = ops.cast(labels, "int32")
        batch, height, width = ops.shape(labels)
        rows, columns = sides
        pixels = rows * columns
        row = ops.arange(height, dtype="int32") * rows // height
        column = ops.arange(width, dtype="int32") * columns // width
        left_out = ops.logical_or(labels < 0, labels >= classes)
        if self.ignore_class is not None:
            left_out = ops.logical_or(left_out, labels == self.ignore_class)
        places = row[:, None] * columns + column
        places = places + ops.arange(batch, dtype="int32")[:, None, None] * pixels
        places = places * (classes + 1) + ops.where(left_out, classes, labels)
        counts = ops.segment_sum(
            ops.ones((batch * height * width,), "float32"),
            ops.reshape(places, (-1,)),
            batch * pixels * (classes + 1),
        )
        counts = ops.reshape(counts, (batch, pixels, classes + 1))
        shares = counts / ops.maximum(ops.sum(counts, axis=-1, keepdims=True), 1.0)
        shares = ops.transpose(shares[..., :-1], (0, 2, 1))
        return shares, ops.sum(shares, axis=1, keepdims=True)

    def _loss(self, outputs, segments, labelled):
        batch, queries, rows, columns = ops.shape(outputs["mask_logits"])
        masks = ops.reshape(outputs["mask_logits"], (batch, queries, rows * columns))
        of_masks = self.mask_weight * _cross_entropies(masks, segments, labelled)
        of_masks += self.dice_weight * _dice_losses(masks, segments, labelled)
        likely = ops.log_softmax(outputs["class_logits"], axis=-1)
        present = ops.any(segments > 0, axis=-1)
        cost = of_masks - self.class_weight * ops.exp(likely[..., :-1])
        matches = _matches(ops.stop_gradient(cost), present)
        count = ops.maximum(ops.sum(ops.cast(present, "float32")), 1.0)
        without = 1 - ops.sum(matches, axis=-1, keepdims=True)
        weights = 1 - (1 - self.no_object_weight) * without[..., 0]
        chosen = ops.sum(ops.concatenate([matches, without], -1) * likely, axis=-1)
        of_classes = -ops.sum(weights * chosen) / ops.sum(weights)
        return ops.sum(matches * of_masks) / count + self.class_weight * of_classes

    def get_config(self) -> dict:
        names = (
            "mask_weight", "dice_weight", "class_weight", "no_object_weight",
            "ignore_class",
        )  # fmt: skip
        return super().get_config() | {name: getattr(self, name) for name in names}


def _cross_entropies(masks, segments, labelled):
    """Returns the binary cross-entropy of each mask with each segment.

    Masks are logits (batch, queries, pixels); the result is (batch, queries, segments).
    """
    zeros = ops.sum(ops.softplus(masks) * labelled, axis=-1, keepdims=True)
    total = zeros - ops.matmul(masks, ops.transpose(segments, (0, 2, 1)))
    return total / ops.maximum(ops.sum(labelled, axis=-1, keepdims=True), 1.0)


def _dice_losses(masks, segments, labelled):
    """Returns the dice loss of each mask with each segment."""
    masks = ops.sigmoid(masks)
    both = ops.matmul(masks, ops.transpose(segments, (0, 2, 1)))
    areas = ops.sum(masks * labelled, axis=-1, keepdims=True)
    areas = areas + ops.sum(segments, axis=-1)[:, None]
    return 1 - (2 * both + 1) / (areas + 1)


def _matches(cost, present):
    """Returns which query each segment gets, ones and zeros (batch, queries, segments).

    Args:
        cost: float tensor (batch, queries, segments).
        present: bool tensor (batch, segments), which segments a photo has.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        matches = tf.numpy_function(_hungarian, [cost, present], tf.float32)
        return tf.ensure_shape(matches, cost.shape)
    if backend == "jax":
        import jax

        shape = jax.ShapeDtypeStruct(cost.shape, "float32")
        return jax.pure_callback(_hungarian, shape, cost, present)
    raise NotImplementedError(
        f"MaskLoss matches by SciPy on TensorFlow and JAX, and the backend is "
        f"{backend}: set KERAS_BACKEND=tensorflow to train masks."
    )


def _hungarian(cost, present):
    from scipy.optimize import linear_sum_assignment

    matches = np.zeros(cost.shape, "float32")
    costs = np.nan_to_num(np.asarray(cost), posinf=1e10, neginf=-1e10)
    for match, of_photo, here in zip(matches, costs, np.asarray(present), strict=True):
        segments = np.flatnonzero(here)
        rows, columns = linear_sum_assignment(of_photo[:, segments])
        match[rows, segments[columns]] = 1
    return matches
