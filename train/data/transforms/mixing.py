"""Mixup and CutMix of whole batches, each a function of its seed.

The partner of an example is the one before it in the batch, which is shuffled already.
A batch is mixed before it is divided among devices, whose number then changes nothing.
"""

from collections.abc import Sequence

import tensorflow as tf

from train.data.transforms.image_ops import rectangle


def mixup(
    images: tf.Tensor, labels: tf.Tensor, alpha: float, seed: tf.Tensor | Sequence[int]
) -> tuple:
    """Averages pairs of images, and their labels.

    All pairs of a batch share one weight, drawn from Beta(alpha, alpha); the larger
    weight is the example's own, and a function of the seed, integers `(2,)`. Images are
    float `(batch, height, width, channels)`, labels `(batch, classes)`, whose rows sum
    to one. An `alpha` of 0 leaves the batch as it is.

    Source: mixup: Beyond Empirical Risk Minimization; the shared weight, its larger
    part and the partner as in big_vision, utils.py.

    Example:
        >>> images, labels = tf.eye(3)[:, None, :, None], tf.eye(3)
        >>> _, mixed = mixup(images, labels, alpha=0.2, seed=(0, 1))
        >>> bool(tf.reduce_all(tf.linalg.diag_part(mixed) >= 0.5))
        True
    """
    _check_labels("mixup", labels)
    if alpha == 0:
        return images, labels
    share = _draw_share(alpha, seed)
    share = tf.maximum(share, 1.0 - share)
    return _average(images, share), _average(labels, share)


def cutmix(
    images: tf.Tensor, labels: tf.Tensor, alpha: float, seed: tf.Tensor | Sequence[int]
) -> tuple:
    """Replaces a rectangle of each image by that of its partner, and labels likewise.

    All images of a batch share one rectangle of their aspect, around any pixel; it has
    the part of the area that Beta(alpha, alpha) leaves, less what lies outside. Labels
    are averaged by the area that is left. Images may have any dtype.

    Arguments are those of `mixup`; `alpha` is 1 in the paper.

    Source: CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
    Features, section 3.1 and appendix A; the partner as in `mixup`.

    Example:
        >>> images, labels = tf.eye(4)[:, None, :, None], tf.eye(4)
        >>> cutmix(images, labels, alpha=1.0, seed=(0, 1))[1].shape
        TensorShape([4, 4])
    """
    _check_labels("cutmix", labels)
    if alpha == 0:
        return images, labels
    share_seed, *place_seeds = tf.unstack(tf.random.split(seed, 3))
    cut = tf.sqrt(1.0 - _draw_share(alpha, share_seed))
    sides = tf.unstack(tf.shape(images)[1:3])
    halves = [tf.cast(cut * tf.cast(side, cut.dtype), tf.int32) // 2 for side in sides]
    inside = rectangle(sides, halves, place_seeds)
    left = 1.0 - tf.reduce_mean(tf.cast(inside, tf.float64))
    mixed = tf.where(inside[:, :, None], tf.roll(images, 1, axis=0), images)
    return mixed, _average(labels, left)


def _check_labels(name, labels):
    if labels.shape.rank != 2 or not labels.dtype.is_floating:
        raise ValueError(
            f"{name} averages rows of numbers, got labels of shape {labels.shape} and "
            f"dtype {labels.dtype.name}: pass tf.one_hot(labels, classes)"
        )


def _draw_share(alpha, seed):
    if alpha < 0:
        raise ValueError(f"alpha must not be negative, got {alpha}")
    # In float32 both would often be 0 for the small alphas of recipes.
    drawn = tf.random.stateless_gamma((2,), seed, alpha, dtype=tf.float64)
    return drawn[0] / (drawn[0] + drawn[1])


def _average(values, share):
    share = tf.cast(share, values.dtype)
    return share * values + (1 - share) * tf.roll(values, 1, axis=0)
