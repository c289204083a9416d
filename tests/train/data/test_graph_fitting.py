"""Graphs bring photos to a model's size as Pillow and `zoo.photos` do."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo.photos
from train.data.transforms.graph_fitting import fitted_in_graph
from zoo.preparation import FITS, INTERPOLATIONS

SHAPES = [(37, 61), (150, 83), (53, 19), (32, 48), (333, 500)]
SIZES = [(32, 32), (32, 48)]


def preparations(interpolation):
    return [
        f"{library} {fit} {interpolation}{share}"
        for library in ("timm", "transformers")
        for fit in FITS
        for share in ("", " 0.9")
    ]


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_numbers_of_noise_are_those_of_pillow(interpolation):
    for shape in SHAPES:
        noise = np.random.default_rng(0).uniform(0, 255, (*shape, 3)).astype("float32")
        for preparation in preparations(interpolation):
            for size in SIZES:
                found = fitted_in_graph(tf.constant(noise), size, preparation)
                expected = zoo.photos.fitted(noise, size, preparation)
                np.testing.assert_allclose(
                    found, expected, atol=1e-3, rtol=0, err_msg=preparation
                )


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_bytes_of_a_photo_are_those_of_pillow_but_for_a_level_or_two(interpolation):
    small = np.random.default_rng(1).integers(0, 256, (6, 5, 3), dtype="uint8")
    for shape in SHAPES:
        photo = Image.fromarray(small).resize(shape[::-1], Image.Resampling.BICUBIC)
        photo = np.asarray(photo)
        for preparation in preparations(interpolation):
            for size in SIZES:
                found = fitted_in_graph(tf.constant(photo), size, preparation)
                expected = zoo.photos.fitted(photo, size, preparation)
                assert np.abs(found - expected).max() <= 2, (preparation, shape, size)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_hard_edges_are_rounded_in_pillows_order(interpolation):
    """In the other order they are up to 35 levels off, of 13 a tall photo."""
    for shape in [(60, 40), (53, 19), (40, 60), (99, 46)]:
        edges = 255 * np.random.default_rng(4).integers(
            0, 2, (*shape, 3), dtype="uint8"
        )
        for preparation in preparations(interpolation):
            found = fitted_in_graph(tf.constant(edges), (32, 32), preparation)
            expected = zoo.photos.fitted(edges, (32, 32), preparation)
            assert np.abs(found - expected).max() <= 2, (preparation, shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_central_crop(shape):
    photo = np.random.default_rng(2).integers(0, 256, (*shape, 3), dtype="uint8")
    for size in SIZES:
        found = fitted_in_graph(tf.constant(photo), size, "central crop")
        expected = zoo.photos.fitted(photo, size, "central crop")
        # Whose places are in float32.
        np.testing.assert_allclose(found, expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_a_batch_in_a_graph_that_knows_no_shape(interpolation):
    preparation = f"timm crop {interpolation} 0.9"

    @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3))])
    def fitted(images):
        return fitted_in_graph(images, (32, 48), preparation)

    images = np.random.default_rng(3).uniform(0, 255, (2, 50, 40, 3)).astype("float32")
    expected = [zoo.photos.fitted(image, (32, 48), preparation) for image in images]
    np.testing.assert_allclose(fitted(images), expected, atol=1e-3, rtol=0)
