"""Crops and resizing, against NumPy and the released procedure."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from train.data.transforms import preprocessing
from train.data.transforms.decoding import decode_image


def decoder(image):
    """The image as crops take it."""
    return functools.partial(decode_image, image)


def noise(*shape):
    return np.random.RandomState(0).randint(0, 256, (*shape, 3), np.uint8)


def numpy_bilinear(image, size):
    """Bilinear between half-pixel centres, edges repeated, in float64."""

    def weights(old, new):
        place = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
        low = np.floor(place).astype(int)
        high = np.minimum(low + 1, old - 1)
        matrix = np.zeros((new, old))
        matrix[np.arange(new), low] += 1 - (place - low)
        matrix[np.arange(new), high] += place - low
        return matrix

    rows, columns = map(weights, image.shape[:2], size)
    return np.einsum("ih,jw,hwc->ijc", rows, columns, image.astype(np.float64))


# Up to twice the pixels of the result, images are cast to float32 first.
@pytest.mark.parametrize("size", [(8, 8), (18, 11), (19, 12), (64, 50), (37, 23)])
def test_squash_is_plain_bilinear_as_tensorflow_has_it(size):
    image = noise(37, 23)
    squashed = preprocessing.squash(image, size)
    # float32 places of 64 pixels, times a slope of up to 255 a pixel.
    np.testing.assert_allclose(squashed, numpy_bilinear(image, size), atol=2e-3)
    plain = tf.image.resize(image, size, method="bilinear", antialias=False)
    np.testing.assert_array_equal(squashed, plain)
    whole = preprocessing.whole_image(decoder(image), size, [0, 0])
    np.testing.assert_array_equal(whole, squashed)


@pytest.mark.parametrize("shape", [(40, 60), (256, 256), (31, 9)])
@pytest.mark.parametrize(("name", "least"), [("inception", 0.05), ("gentle", 0.6)])
def test_a_crop_is_the_box_of_the_released_code_resized(shape, name, least):
    image, boxes, cut = noise(*shape), set(), preprocessing.train_crop(name)
    for seed in range(20):
        crop = cut(decoder(image), (16, 16), [3, seed])
        # As in vit_jax/input_pipeline.py, but with a seed.
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            image.shape,
            tf.zeros((1, 0, 4)),
            seed=[3, seed],
            area_range=(least, 1),
            min_object_covered=0,
            use_image_if_no_bounding_boxes=True,
        )
        (top, left, _), (height, width, _) = begin.numpy(), extent.numpy()
        box = image[top : top + height, left : left + width]
        np.testing.assert_allclose(crop, numpy_bilinear(box, (16, 16)), atol=2e-3)
        boxes.add((top, left, height, width))
    # No window of that aspect has 60% of a long image, which stays whole.
    assert (
        boxes == {(0, 0, 31, 9)} if (shape, least) == ((31, 9), 0.6) else len(boxes) > 7
    )


def test_shift_moves_by_up_to_an_eighth():
    image = np.zeros((16, 24, 3), np.uint8)
    image[8, 12] = 255

    places = set()
    for seed in range(500):
        shifted = preprocessing.random_shift(decoder(image), (16, 24), (0, seed))
        ((row, column),) = np.argwhere(shifted[..., 0])
        places.add((int(row), int(column)))
        assert shifted[row, column].numpy().tolist() == [255, 255, 255]
    assert places == {(r, c) for r in range(6, 11) for c in range(9, 16)}


def test_model_range():
    scaled = preprocessing.to_model_range(np.array([0, 255, 127], np.uint8))
    assert scaled.dtype == tf.float32
    np.testing.assert_array_equal(scaled, np.float32([-1, 1, -0.5 / 127.5]))
