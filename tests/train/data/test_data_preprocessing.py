"""Crops and resizing, against NumPy and the released procedure."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from train.data.transforms import preprocessing
from train.data.transforms.decoding import decode_image

SIDE = 256
SAMPLES = 3000


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


def released_boxes(rng, count, height, width):
    """The op's published procedure: aspect, then height, then place, all uniform."""
    boxes = []
    while len(boxes) < count:
        aspect = rng.uniform(0.75, 1.33)
        area = height * width
        low = round(np.sqrt(0.05 * area / aspect))
        high = round(np.sqrt(area / aspect))
        if round(high * aspect) > width:
            high = int((width + 0.5 - 1e-7) / aspect)
        high = min(high, height)
        box_height = rng.integers(min(low, high), high + 1)
        box_width = round(box_height * aspect)
        if 0.05 * area <= box_height * box_width <= area:
            top = rng.integers(0, height - box_height + 1)
            left = rng.integers(0, width - box_width + 1)
            boxes.append((top, left, box_height, box_width))
    return np.array(boxes)


@pytest.fixture(scope="module")
def boxes():
    """The boxes that inception_crop takes, read off an image of its coordinates."""
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    image = tf.constant(np.stack([rows, columns, rows], axis=-1))

    def corners(seed):
        crop = preprocessing.inception_crop(decoder(image), (8, 8), tf.stack([3, seed]))
        return crop[0, 0, :2], crop[7, 7, :2]

    found = tf.data.Dataset.range(SAMPLES).map(corners).batch(SAMPLES)
    first, last = (part.numpy() for part in next(iter(found)))
    # Pixel i of 8 lies at (i + 0.5) * extent / 8 - 0.5 of the box.
    extent = (last - first) * 8 / 7
    begin = first - extent / 16 + 0.5
    found = np.concatenate([begin, extent], axis=1)
    np.testing.assert_allclose(found, np.rint(found), atol=1e-3)
    return np.rint(found)


def test_crop_keeps_to_area_and_aspect(boxes):
    top, left, height, width = boxes.T
    area = height * width / SIDE**2
    assert area.min() >= 0.05 and area.max() <= 1
    # The width is rounded to a whole pixel, which moves the aspect by 0.5 / height.
    assert np.all(width / height > 0.75 - 0.5 / height)
    assert np.all(width / height < 1.33 + 0.5 / height)
    assert min(top.min(), left.min()) >= 0
    assert max((top + height).max(), (left + width).max()) <= SIDE


def test_crop_is_distributed_as_released(boxes):
    expected = released_boxes(np.random.default_rng(0), SAMPLES, SIDE, SIDE)

    def statistics(boxes):
        top, left, height, width = boxes.T / SIDE
        spread = [0.1, 0.25, 0.5, 0.75, 0.9]
        free = np.maximum(1 - np.stack([height, width]), 1 / SIDE)
        areas = np.quantile(height * width, spread)
        aspects = np.quantile(width / height, spread)
        places = (np.stack([top, left]) / free).mean(axis=1)
        return np.concatenate([areas, aspects, places])

    # Two samples of 3,000: quantiles and means differ by about 0.01.
    np.testing.assert_allclose(statistics(boxes), statistics(expected), atol=0.04)


def test_crop_depends_on_the_seed_alone(boxes):
    assert len(np.unique(boxes, axis=0)) > 0.95 * SAMPLES
    image = decoder(tf.constant(noise(20, 30)))
    once, twice = (
        preprocessing.inception_crop(image, (5, 7), tf.constant([1, 2])) for _ in "ab"
    )
    np.testing.assert_array_equal(once, twice)


@pytest.mark.parametrize("size", [(8, 8), (31, 17), (64, 50), (37, 23)])
def test_squash_is_plain_bilinear(size):
    image = noise(37, 23)
    squashed = preprocessing.squash(image, size)
    # float32 places of 64 pixels, times a slope of up to 255 a pixel.
    np.testing.assert_allclose(squashed, numpy_bilinear(image, size), atol=2e-3)
    whole = preprocessing.whole_image(decoder(image), size, [0, 0])
    np.testing.assert_array_equal(whole, squashed)


@pytest.mark.parametrize("side", [10, 22, 23, 90])
def test_squash_of_any_size_is_what_tensorflow_gives(side):
    # Up to twice the pixels of the result, they are cast to float32 first.
    image = noise(side, side)
    expected = tf.image.resize(image, (16, 16), method="bilinear", antialias=False)
    np.testing.assert_array_equal(preprocessing.squash(image, (16, 16)), expected)


def test_crop_resizes_as_squash_does():
    image = noise(40, 60)
    crop = preprocessing.inception_crop(decoder(image), (16, 16), [0, 5])
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        image.shape,
        tf.zeros((1, 0, 4)),
        seed=[0, 5],
        area_range=(0.05, 1),
        min_object_covered=0,
        use_image_if_no_bounding_boxes=True,
    )
    (top, left, _), (height, width, _) = begin.numpy(), extent.numpy()
    expected = numpy_bilinear(image[top : top + height, left : left + width], (16, 16))
    np.testing.assert_allclose(crop, expected, atol=2e-3)


def test_shift_moves_by_up_to_an_eighth():
    image = np.zeros((16, 24, 3), np.uint8)
    image[8, 12] = 255

    def shift(seed):
        seeds = tf.stack([0, seed])
        return preprocessing.random_shift(decoder(image), (16, 24), seeds)

    places = set()
    for shifted in tf.data.Dataset.range(500).map(shift).as_numpy_iterator():
        ((row, column),) = np.argwhere(shifted[..., 0])
        places.add((int(row), int(column)))
        assert shifted[row, column].tolist() == [255, 255, 255]
    assert places == {(r, c) for r in range(6, 11) for c in range(9, 16)}


def test_model_range():
    scaled = preprocessing.to_model_range(np.array([0, 255, 127], np.uint8))
    assert scaled.dtype == tf.float32
    np.testing.assert_array_equal(scaled, np.float32([-1, 1, -0.5 / 127.5]))
