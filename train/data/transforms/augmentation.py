"""Augmentation of single training images, each a function of its seed."""

import functools
from collections.abc import Sequence

import tensorflow as tf

from train.data.registry import Augmentation
from train.data.transforms import image_ops


def augment(image: tf.Tensor, augmentation: Augmentation, seed: tf.Tensor) -> tf.Tensor:
    """Applies the augmentations of single images; values are in 0..255."""
    seeds = tf.random.split(seed, 2)
    if augmentation.rand_augment is not None:
        # As in the released code, images are whole numbers here.
        image = tf.cast(image, tf.uint8)
        image = rand_augment(image, *augmentation.rand_augment, seeds[0])
    if augmentation.random_erasing:
        image = random_erasing(image, seeds[1], augmentation.random_erasing)
    return image


def rand_augment(
    image: tf.Tensor, num_layers: int, magnitude: float, seed: tf.Tensor | Sequence[int]
) -> tf.Tensor:
    """Applies randomly chosen operations one after another, as the released code does.

    Each layer applies one of the 16 operations of `image_ops`, all equally probable. A
    magnitude of 0 changes images too: it equalizes and inverts them, and removes most
    of their colour, contrast, brightness and sharpness. The released recipes take 0,
    10, the usual strength, 15 and 20. The image is uint8 `(height, width, 3)`, with
    sides of at least 3; the operations are a function of the seed, integers `(2,)`.

    Source: RandAugment: Practical automated data augmentation; big_vision,
    pp/archive/autoaugment.py; docs/augmentation.md.

    Example:
        >>> image = tf.zeros((224, 224, 3), tf.uint8)
        >>> rand_augment(image, num_layers=2, magnitude=15, seed=(0, 1)).shape
        TensorShape([224, 224, 3])
    """
    if image.dtype != tf.uint8:
        raise ValueError(
            f"rand_augment takes uint8 images, got {image.dtype.name}: cast its "
            "values 0..255 before it, and scale them after it"
        )
    for name, value in (("num_layers", num_layers), ("magnitude", magnitude)):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value}")
    shape = image.shape
    for layer_seed in tf.unstack(tf.random.split(seed, num_layers)):
        choice_seed, seed = tf.unstack(tf.random.split(layer_seed, 2))
        choice = tf.random.stateless_uniform(
            (), choice_seed, maxval=len(image_ops.OPS), dtype=tf.int32
        )
        level = magnitude / 10
        ops = [functools.partial(op, image, level, seed) for op in image_ops.OPS]
        image = tf.switch_case(choice, ops)
        image.set_shape(shape)
    return image


def random_erasing(
    image: tf.Tensor, seed: tf.Tensor | Sequence[int], probability: float = 0.5
) -> tf.Tensor:
    """Fills a random rectangle with noise.

    The rectangle has 2 % to 40 % of the area and an aspect of 0.3 to 3.33, and lies
    anywhere: area, aspect and place are drawn uniformly until it fits, a hundred times
    at most. Every value in it is drawn uniformly from 0..255. The image has values in
    that range, and any shape `(height, width, channels)` and dtype. `probability` says
    how often it is changed, which is a function of the seed, integers `(2,)`.

    Source: Random Erasing Data Augmentation, algorithm 1, RE-R.

    Example:
        >>> image = tf.zeros((32, 32, 3), tf.uint8)
        >>> bool(tf.reduce_any(random_erasing(image, seed=(0, 1), probability=1.0) > 0))
        True
    """
    seeds = tf.unstack(tf.random.split(seed, 6))
    height, width = tf.unstack(tf.cast(tf.shape(image)[:2], tf.float32))

    def draw(seed: tf.Tensor, low: float, high: float | tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform((100,), seed, low, high)

    # All results in the paper are for these ranges.
    area = draw(seeds[0], 0.02, 0.4) * height * width
    aspect = draw(seeds[1], 0.3, 1 / 0.3)
    top, left = draw(seeds[2], 0.0, height), draw(seeds[3], 0.0, width)
    bottom, right = top + tf.sqrt(area * aspect), left + tf.sqrt(area / aspect)
    fits = (bottom <= height) & (right <= width)
    first = tf.argmax(fits)

    def between(side: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        places = tf.range(side)
        return (places >= tf.floor(low[first])) & (places < tf.floor(high[first]))

    rows, columns = between(height, top, bottom), between(width, left, right)
    is_chosen = tf.random.stateless_uniform((), seeds[4]) < probability
    inside = rows[:, None, None] & columns[None, :, None] & is_chosen & fits[first]
    noise = tf.random.stateless_uniform(
        tf.shape(image), seeds[5], maxval=256, dtype=tf.int32
    )
    return tf.where(inside, tf.cast(noise, image.dtype), image)
