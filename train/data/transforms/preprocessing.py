"""Images to model inputs: the released training crop and evaluation resize.

Source: vision_transformer, vit_jax/input_pipeline.py; for the crop, Going Deeper with
Convolutions, section 6.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from train.data.registry import CROPS, IGNORED
from zoo import photos


def squash(image: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes the whole image without keeping its aspect: the released evaluation.

    Bilinear between half-pixel centres, without antialias: an image or a batch of any
    dtype to float32 `(*size, channels)` in the same range.
    """

    def resize(image: tf.Tensor) -> tf.Tensor:
        return tf.image.resize(image, size, method="bilinear", antialias=False)

    # The numbers are the same, but the kernel is vectorised for float32 only. Of an
    # image with more pixels than the four it reads for one, the cast would cost more
    # than that saves.
    height, width = size
    is_small = tf.reduce_prod(tf.shape(image)[-3:-1]) <= 4 * height * width
    return tf.cond(
        is_small, lambda: resize(tf.cast(image, tf.float32)), lambda: resize(image)
    )


def nearest(mask: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Resizes a whole mask, as `squash` does its image, and mixes no numbers.

    A pixel of the result has the number of the one that its centre lies in. Integers
    `(height, width, 1)` to `(*size, 1)` of the same dtype.
    """
    return tf.image.resize(mask, size, method="nearest")


def resized(size: tuple[int, int]) -> Callable[..., tuple]:
    """Returns a `finish` of `train.data.pipeline` that squashes images to a size."""

    def finish(image: tf.Tensor, label: tf.Tensor, _: tf.Tensor) -> tuple:
        return squash(image, size), label

    return finish


def fitted(image: tf.Tensor, size: tuple[int, int], preparation: str) -> tf.Tensor:
    """Brings an image to a model's size with the numbers of `zoo.photos.fitted`.

    An image `(height, width, channels)` in [0, 255] to float32 `(*size, channels)`.
    `squash` is computed by TensorFlow, which has the same numbers, to the last bit.
    """
    if preparation == "squash":
        return squash(image, size)

    def fit(pixels: np.ndarray) -> np.ndarray:
        return photos.fitted(pixels, size, preparation)

    resized = tf.numpy_function(fit, [image], tf.float32, stateful=False)
    return tf.ensure_shape(resized, (*size, image.shape[2]))


def inception_window(
    shape: tf.Tensor, seed: tf.Tensor, least: float = 0.05
) -> tf.Tensor:
    """Chooses `least` to 100 % of the area of an image, at an aspect of 0.75 to 1.33.

    Takes the int32 `shape` `(3,)` of an image, and returns top, left, height and width,
    int32 `(4,)`.
    """
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.0,
        aspect_ratio_range=(0.75, 1.33),
        area_range=(least, 1.0),
    )
    return tf.concat([begin[:2], extent[:2]], axis=0)


# The crops take `decode`, which turns None into the whole image, and a function of its
# shape to a window into that; the `(height, width)` of the result; integers `(2,)`, of
# which they are a function; and `squash` or `nearest`. They return what that does.
Decode = Callable[[Callable[[tf.Tensor], tf.Tensor] | None], tf.Tensor]
Resize = Callable[[tf.Tensor, tuple[int, int]], tf.Tensor]


def inception_crop(
    decode: Decode, size: tuple[int, int], seed: tf.Tensor, resize: Resize = squash
) -> tf.Tensor:
    """Resizes the window of `inception_window`."""
    return resize(decode(lambda shape: inception_window(shape, seed)), size)


def gentle_crop(
    decode: Decode, size: tuple[int, int], seed: tf.Tensor, resize: Resize = squash
) -> tf.Tensor:
    """Resizes a window of 60 % to 100 % of the area: for a few dozen epochs.

    With small windows a short training does not see enough of the images: on 1,000
    images of CIFAR-100, 30 epochs with AugReg's Ti/16 end 1.7 points higher with these.
    An image longer than 2.2 times its width stays whole.
    """
    return resize(decode(lambda shape: inception_window(shape, seed, 0.6)), size)


def random_shift(
    decode: Decode, size: tuple[int, int], seed: tf.Tensor, resize: Resize = squash
) -> tf.Tensor:
    """Resizes, then moves the image by up to an eighth of its sides; fills with 0.

    For images such as digits, whose meaning a crop or a flip would change.
    """
    height, width = size
    top, left = height // 8, width // 8
    image = resize(decode(None), size)
    padded = tf.pad(image, [[top, top], [left, left], [0, 0]])
    return tf.image.stateless_random_crop(padded, image.shape, seed)


def whole_image(
    decode: Decode, size: tuple[int, int], seed: tf.Tensor, resize: Resize = squash
) -> tf.Tensor:
    """Resizes the image, as evaluation does."""
    return resize(decode(None), size)


def mask_crop(
    crop: Callable, decode: Decode, size: tuple[int, int], seed: tf.Tensor
) -> tf.Tensor:
    """Cuts a mask as the crop cuts its image; `IGNORED` is what lies outside.

    `decode` returns class numbers, int32 `(height, width, 1)`; `size` and `seed` are
    those of the image. Returns int32 `(height, width)`.
    """

    def below(choose_window: Callable[[tf.Tensor], tf.Tensor] | None) -> tf.Tensor:
        # Crops fill with 0, which is `IGNORED` after all.
        return decode(choose_window) - IGNORED

    return (crop(below, size, seed, nearest) + IGNORED)[..., 0]


def train_crop(name: str) -> Callable:
    """Returns the function of a crop in `train.data.registry.CROPS`."""
    if name not in CROPS:
        raise ValueError(f'unknown crop "{name}": choose one of {", ".join(CROPS)}')
    return globals()[CROPS[name].function]


def to_model_range(image: tf.Tensor) -> tf.Tensor:
    """Maps pixel values 0..255 of any dtype to float32 in -1..1."""
    return (tf.cast(image, tf.float32) - 127.5) / 127.5
