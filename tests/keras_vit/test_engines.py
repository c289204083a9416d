"""Predictors of other runtimes, beside Keras."""

import importlib.util

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize

from keras_vit import Predictor, VisionTransformer, ViTConfig, at_image_size
from keras_vit.engines.table import CONVERTED

CONFIG = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
HERE = [
    row.name
    for row in CONVERTED.values()
    if keras.backend.backend() in row.backends
    and all(map(importlib.util.find_spec, row.packages))
]
OF_ANY_SHAPE = [name for name in HERE if not CONVERTED[name].of_one_shape]
every_engine = pytest.mark.parametrize("engine", HERE)


@pytest.fixture
def model():
    model = VisionTransformer(CONFIG, image_size=(16, 24), classes=5)
    randomize(model)
    return model


def close(found, expected):
    assert found.dtype == np.float32
    limit = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=limit)


@every_engine
def test_answers_and_new_weights(model, engine):
    predictor = Predictor(model, batch_size=4, engine=engine)
    assert predictor.engine == engine
    images = normal((9, 16, 24, 3))
    for count in (1, 3, 9, 4):
        close(predictor(images[:count]), numpy(model(images[:count])))
    # One value of the many that are compared.
    bias = model.get_layer("head").bias
    bias.assign(bias + np.eye(5)[0])
    close(predictor(images), numpy(model(images)))


@pytest.mark.parametrize("engine", OF_ANY_SHAPE)
def test_images_of_any_size(model, engine):
    of_any_size = at_image_size(model, (None, None))
    predictor = Predictor(of_any_size, engine=engine)
    for size in ((16, 24), (32, 24)):
        images = normal((2, *size, 3))
        close(predictor(images), numpy(of_any_size(images)))


def test_large_models_have_their_weights_beside(model, monkeypatch):
    [engine, *_] = OF_ANY_SHAPE
    monkeypatch.setattr("keras_vit.engines.onnx.LARGEST_FILE", 1000)
    images = normal((2, 16, 24, 3))
    close(Predictor(model, engine=engine)(images), numpy(model(images)))


def test_what_cannot_be_is_refused_by_name(model, monkeypatch):
    with pytest.raises(ValueError, match="one of keras, litert, onnxruntime, openvino"):
        Predictor(model, engine="tensorrt")
    if "litert" in HERE:
        of_any_size = at_image_size(model, (None, None))
        with pytest.raises(ValueError, match="litert takes images of one size"):
            Predictor(of_any_size, engine="litert")
    inputs = keras.Input((3,))
    other = keras.Model(inputs, keras.layers.Softmax()(inputs))
    with pytest.raises(ValueError, match="a Softmax, which the ONNX exporter does not"):
        Predictor(other, engine=OF_ANY_SHAPE[0])(normal((2, 3)))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="litert converts models on tensorflow, and"):
        Predictor(model, engine="litert")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install onnx openvino"):
        Predictor(model, engine="openvino")
