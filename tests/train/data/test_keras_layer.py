"""Layers of Keras and keras-cv as an augmentation."""

import json
import os
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from made_data import numbered_split

from train.common.errors import RunError
from train.data.pipeline import Augmentation, training_batches
from train.data.transforms import image_ops, keras_layer

ROOT = pathlib.Path(__file__).parents[3]
LAYERS = [
    lambda: keras.layers.RandomRotation(0.2),
    lambda: keras.layers.Pipeline(
        [keras.layers.RandomZoom(0.3), keras.layers.RandomBrightness(0.3)]
    ),
    lambda: keras.Sequential([keras.layers.RandomTranslation(0.3, 0.3)]),
    lambda: Noise(),
]


class Noise(keras.layers.Layer):
    """Noise of a seed generator in a branch, and of Keras's own generator."""

    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(1)

    def call(self, images):
        def drawn():
            return keras.random.normal((), seed=self.generator)

        images = images + keras.ops.cond(images[0, 0, 0, 0] > 9, drawn, drawn)
        return images + keras.random.normal((), seed=self.generator)


def images(layer, count=4, **changed):
    settings = {"image_size": (9, 8), "batch_size": 4, "seed": 7, "crop": "resize"}
    settings |= {"flip": False, "augmentation_layer": layer, **changed}
    batches = training_batches(numbered_split(8), **settings).take(count)
    return np.stack([batch for batch, _ in batches.as_numpy_iterator()])


@pytest.mark.parametrize("make", LAYERS)
def test_a_layers_numbers_follow_the_seed_and_the_image_alone(make):
    layer = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        whole = images(layer)
    # Another object with a seed of its own, from the middle on.
    np.testing.assert_array_equal(images(make(), 2, start_step=2), whole[2:])
    np.testing.assert_array_equal(images(layer), whole)
    assert np.any(images(layer, seed=8) != whole)
    # The same photo 16 times.
    assert len({image.tobytes() for image in whole.reshape(16, -1)}) > 8


def test_a_layer_gets_and_gives_images_of_0_to_255(monkeypatch):
    class Inverted(keras.layers.Layer):
        def call(self, images):
            return 255 - images

    plain = images(None)
    np.testing.assert_allclose(images(Inverted()), -plain, atol=1e-6)
    # Random numbers of a layer do not change the crops.
    turned = {"crop": "inception", "flip": True}
    same = images(keras.layers.RandomRotation(0.0), **turned)
    np.testing.assert_allclose(same, images(None, **turned), atol=1e-4)
    # After the augmentations, whose images are whole numbers.
    monkeypatch.setattr(image_ops, "OPS", (image_ops.brightness, image_ops.cutout))
    settings = {"augmentation": Augmentation(rand_augment=(2, 7))}
    expected = -images(None, **settings)
    np.testing.assert_allclose(images(Inverted(), **settings), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (keras.layers.Resizing(4, 4), r"Resizing makes \(1, 4, 4, 3\) of images"),
        (keras.layers.Reshape((2,)), "Reshape does not work in tf.data on .*tensorfl"),
        (len, "must be a layer of Keras, got builtin_function_or_method"),
    ],
)
def test_what_makes_no_image_is_refused_by_name(layer, message):
    with pytest.raises(RunError, match=message) as refused:
        images(layer)
    assert len(str(refused.value)) < 300


class Loud(keras.layers.Layer):
    def call(self, images):
        return tf.map_fn(lambda image: image + tf.random.uniform(()), images)


class Python(keras.layers.Layer):
    def call(self, images):
        made = tf.numpy_function(lambda images: images, [images], tf.float32)
        return tf.ensure_shape(made, images.shape)


@pytest.mark.parametrize(("layer", "op"), [(Loud, "RandomUniform"), (Python, "PyFunc")])
def test_numbers_that_may_not_follow_the_seed_are_named(layer, op):
    with pytest.warns(UserWarning, match=rf"{layer.__name__} may draw .*\({op}\)"):
        keras_layer.traced(layer(), (8, 8))


class Unnamed(keras.layers.Layer):
    def __init__(self, much):
        super().__init__()


def test_layers_are_compared_by_class_and_settings_without_seed():
    rotation = keras.layers.RandomRotation
    one, other, third, *more = map(
        keras_layer.described,
        (
            rotation(0.1, seed=1),
            rotation(0.1),
            rotation(0.2),
            *(LAYERS[1]() for _ in "ab"),
        ),
    )
    assert json.loads(json.dumps(one)) == other != third
    assert more[0] == more[1] != keras_layer.described(LAYERS[2]())
    with pytest.raises(RunError, match="Unnamed has no settings .* get_config"):
        keras_layer.described(Unnamed(object()))


ON_JAX = """
import sys
sys.path.insert(0, "tests/train/data")
import test_keras_layer as tests
tests.test_a_layers_numbers_follow_the_seed_and_the_image_alone(tests.LAYERS[0])
try:
    tests.images(tests.keras.layers.GaussianNoise(1.0))
except tests.RunError as error:
    print(error)
"""


def test_layers_for_tf_data_work_on_jax_and_others_are_refused():
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", ON_JAX],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "GaussianNoise does not work in tf.data on the backend jax" in done.stdout


def test_layers_of_keras_cv_augment():
    layers = pytest.importorskip("keras_cv", exc_type=ImportError).layers
    with pytest.warns(UserWarning, match="RandomCutout may draw .* not exactly repeat"):
        found = images(layers.RandomCutout(0.5, 0.5))
    # A part of each image is black.
    assert np.all(np.mean(found == -1, axis=(2, 3, 4)) > 0.01)
    # Equalization needs AutoGraph, and draws nothing.
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        equal = images(layers.Equalization((0, 255)))
    assert np.any(equal != images(None))
