"""Images to model inputs: the released training crop and evaluation resize."""

import tensorflow as tf

MIN_AREA = 0.05
ASPECT_RATIOS = (0.75, 1.33)


def squash(image: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes the whole image without keeping its aspect: the released evaluation.

    Bilinear between half-pixel centres, without antialias.

    Args:
        image: `(height, width, channels)`, any numeric dtype.
        size: The new `(height, width)`.

    Returns:
        float32 `(*size, channels)` in the range of `image`.

    Source: vision_transformer, vit_jax/input_pipeline.py.
    """
    return tf.image.resize(image, size, method="bilinear", antialias=False)


def inception_crop(
    image: tf.Tensor, size: tuple[int, int], seed: tf.Tensor
) -> tf.Tensor:
    """Crops 5 % to 100 % of the area at an aspect of 0.75 to 1.33, then resizes.

    Args:
        image: `(height, width, channels)`, any numeric dtype.
        size: The new `(height, width)`.
        seed: Integers `(2,)`; the crop is a function of it.

    Returns:
        float32 `(*size, channels)` in the range of `image`.

    Source: vision_transformer, vit_jax/input_pipeline.py; Going Deeper with
    Convolutions, section 6.
    """
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.shape(image),
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=ASPECT_RATIOS,
        area_range=(MIN_AREA, 1.0),
    )
    crop = tf.slice(image, begin, extent)
    crop.set_shape([None, None, image.shape[-1]])
    return squash(crop, size)


def random_shift(image: tf.Tensor, size: tuple[int, int], seed: tf.Tensor) -> tf.Tensor:
    """Resizes, then moves the image by up to an eighth of its sides; fills with 0.

    For images such as digits, whose meaning a crop or a flip would change.

    Args:
        image: `(height, width, channels)`, any numeric dtype.
        size: The new `(height, width)`.
        seed: Integers `(2,)`; the shift is a function of it.

    Returns:
        float32 `(*size, channels)` in the range of `image`.
    """
    height, width = size
    top, left = height // 8, width // 8
    padded = tf.pad(squash(image, size), [[top, top], [left, left], [0, 0]])
    return tf.image.stateless_random_crop(
        padded, (height, width, image.shape[-1]), seed
    )


def resize_only(image: tf.Tensor, size: tuple[int, int], seed: tf.Tensor) -> tf.Tensor:
    """Resizes as evaluation does: the training "crop" without any crop.

    Args:
        image: `(height, width, channels)`, any numeric dtype.
        size: The new `(height, width)`.
        seed: Unused.

    Returns:
        float32 `(*size, channels)` in the range of `image`.
    """
    del seed
    return squash(image, size)


TRAIN_CROPS = {
    "inception": inception_crop,
    "shift": random_shift,
    "resize": resize_only,
}


def random_flip(image: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Mirrors the image left to right with probability one half.

    Args:
        image: `(height, width, channels)`.
        seed: Integers `(2,)`; the flip is a function of it.

    Returns:
        The image, with its shape and dtype.

    Source: vision_transformer, vit_jax/input_pipeline.py.
    """
    return tf.image.stateless_random_flip_left_right(image, seed)


def to_model_range(image: tf.Tensor) -> tf.Tensor:
    """Maps pixel values 0..255 to -1..1, what every released model expects.

    Args:
        image: Any shape and numeric dtype, values in 0..255.

    Returns:
        float32 of the same shape, values in -1..1.

    Source: vision_transformer, vit_jax/input_pipeline.py.
    """
    return (tf.cast(image, tf.float32) - 127.5) / 127.5
