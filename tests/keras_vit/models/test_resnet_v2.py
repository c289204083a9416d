"""ResNet50V2 of Keras: its head and its weights."""

import harness
import keras
import numpy as np
import pytest

from keras_vit.models.resnet_v2 import ResNet50V2

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the trainer needs TensorFlow"
)


@pytest.fixture(scope="module")
def model():
    """One for images of 64x32 in 16-bit training."""
    with harness.global_policy("mixed_bfloat16"):
        return ResNet50V2("ResNet50V2", image_size=(64, 32), classes=7)


def test_it_begins_with_logits_of_zero(model):
    assert model.input_shape == (None, 64, 32, 3)
    assert model.layers[-1].name == "head"
    outputs = [model.get_layer("head").input, model.output]
    images = harness.normal((2, 64, 32, 3))
    features, logits = keras.Model(model.input, outputs)(images)
    assert logits.dtype == "float32"
    np.testing.assert_array_equal(logits, np.zeros((2, 7)))
    assert features.shape == (2, 2048) and features.dtype == "bfloat16"
    assert np.std(harness.numpy(features)) > 1e-3


def test_weights_of_files(model, tmp_path):
    body = keras.Model(model.input, model.get_layer("head").input)
    body.save_weights(tmp_path / "notop.weights.h5")
    other = ResNet50V2(
        "ResNet50V2", tmp_path / "notop.weights.h5", image_size=32, classes=3
    )
    kernel = body.get_layer("conv4_block3_2_conv").kernel
    np.testing.assert_array_equal(other.get_layer("conv4_block3_2_conv").kernel, kernel)


def fail(**options):
    raise Exception("URL fetch failure on https://storage")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 16}, "Input size must be at least 32x32"),
        ({"weights": "no.h5"}, "no.h5 .*the .h5 of one without its head, or .imagen"),
        ({"weights": "imagenet"}, "ResNet50V2 cannot be built: URL fetch failure"),
    ],
)
def test_what_cannot_be_built(options, message, monkeypatch):
    if options == {"weights": "imagenet"}:
        monkeypatch.setattr(keras.applications, "ResNet50V2", fail)
    with pytest.raises(ValueError, match=message):
        ResNet50V2("ResNet50V2", classes=3, **options)
