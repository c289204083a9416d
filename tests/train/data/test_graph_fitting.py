"""Graphs bring photos to a model's size as Pillow and `zoo.photos` do."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo.photos
from train.data.transforms.graph_fitting import fitted_in_graph
from zoo.network.preparation import FITS, INTERPOLATIONS

SHAPES = [(37, 61), (150, 83), (53, 19), (32, 48), (333, 500)]
SIZES = [(32, 32), (32, 48)]


def noise(shape):
    return np.random.default_rng(0).uniform(0, 255, (*shape, 3)).astype("float32")


def photo(shape):
    small = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype="uint8")
    whole = Image.fromarray(small).resize(shape[::-1], Image.Resampling.BICUBIC)
    return np.asarray(whole)


def hard_edges(shape):
    """In another order than Pillow's, of rows and columns, up to 35 levels off."""
    pixels = np.random.default_rng(4).integers(0, 2, (*shape, 3), dtype="uint8")
    return 255 * pixels


PREPARATIONS = [
    f"{library} {fit} {{}}{share}"
    for library in ("timm", "transformers")
    for fit in FITS
    for share in ("", " 0.9")
]
# Numbers are those of Pillow, bytes but for a level or two.
MADE = [
    (noise, 1e-3, SHAPES, SIZES),
    (photo, 2, SHAPES, SIZES[1:]),
    (hard_edges, 2, [(60, 40), (53, 19), (40, 60), (99, 46)], SIZES[:1]),
]


@pytest.mark.parametrize(("make", "tolerance", "shapes", "sizes"), MADE)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_photos_are_fitted_as_by_pillow(make, tolerance, shapes, sizes, interpolation):
    for image, preparation, size in itertools.product(
        map(make, shapes), PREPARATIONS, sizes
    ):
        preparation = preparation.format(interpolation)
        found = fitted_in_graph(tf.constant(image), size, preparation)
        expected = zoo.photos.fitted(image, size, preparation)
        error = np.abs(found - expected).max()
        assert error <= tolerance, (preparation, image.shape, size)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_central_crop_is_that_of_photos(shape):
    image = np.random.default_rng(2).integers(0, 256, (*shape, 3), dtype="uint8")
    for size in SIZES:
        found = fitted_in_graph(tf.constant(image), size, "central crop")
        expected = zoo.photos.fitted(image, size, "central crop")
        # The graph's places are in float32.
        np.testing.assert_allclose(found, expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_batch_is_fitted_in_a_graph_that_knows_no_shape(interpolation):
    settings = {"size": (32, 48), "preparation": f"timm crop {interpolation} 0.9"}
    signature = [tf.TensorSpec((None, None, None, 3))]
    fitted = functools.partial(fitted_in_graph, **settings)
    images = np.stack([noise((50, 40)), noise((50, 40))[::-1]])
    found = tf.function(fitted, input_signature=signature)(images)
    expected = [zoo.photos.fitted(image, **settings) for image in images]
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=0)
