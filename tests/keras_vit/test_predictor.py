import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize

from keras_vit import Predictor, VisionTransformer, ViTConfig

PLAIN = ViTConfig(hidden_size=24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
TENSORFLOW = keras.backend.backend() == "tensorflow"


@pytest.fixture(scope="module")
def model():
    model = VisionTransformer(PLAIN, image_size=(16, 24), classes=5)
    randomize(model)
    return model


@pytest.mark.parametrize("jit_compile", [False, True])
def test_answers_as_the_model_does(model, jit_compile):
    if jit_compile:
        if keras.backend.backend() == "torch":
            pytest.skip("torch has no XLA")
        # XLA takes its time for each block.
        config = ViTConfig(8, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8)
        model = VisionTransformer(config, image_size=(16, 24), classes=5)
        randomize(model)
    predictor = Predictor(model, batch_size=4, jit_compile=jit_compile)
    batch = normal((9, 16, 24, 3))
    expected = numpy(model(batch))
    for images in (1, 4, 5, 9):
        found = predictor(batch[:images])
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[:images], atol=1e-5)


def test_all_tokens_and_other_inputs():
    model = VisionTransformer(PLAIN, image_size=16, include_top=False, pooling=None)
    images = np.ones((2, 16, 16, 3), "uint8")
    expected = numpy(model(images.astype("float32")))
    for given in (images, images.tolist(), keras.ops.convert_to_tensor(images)):
        found = Predictor(model)(given)
        assert found.shape == (2, 5, 24)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_vectors_in_several_batches():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    vectors = normal((5, 3))
    found = Predictor(model, batch_size=2)(vectors)
    np.testing.assert_allclose(found, numpy(model(vectors)), atol=1e-6)


def test_sees_new_weights():
    model = VisionTransformer(PLAIN, image_size=16, classes=5)
    predictor = Predictor(model)
    images = normal((2, 16, 16, 3))
    np.testing.assert_array_equal(predictor(images), 0)
    randomize(model)
    assert np.abs(predictor(images)).max() > 0.1


@pytest.mark.parametrize("shape", [(16, 24, 3), (2, 24, 16, 3)])
def test_refuses_other_shapes(model, shape):
    with pytest.raises(ValueError, match=r"takes images of shape \(images, 16, 24, 3"):
        Predictor(model)(np.zeros(shape, "float32"))


def test_refuses_other_arguments(model):
    for batch_size in (0, 1.5, None, True, "8", [8], float("inf"), 10**400):
        with pytest.raises(ValueError, match=r"^batch_size must be .{,200}$"):
            Predictor(model, batch_size=batch_size)
    two = keras.Model(model.inputs, [model.outputs[0], model.outputs[0]])
    with pytest.raises(ValueError, match="1 inputs and 2 outputs"):
        Predictor(two)
    if keras.backend.backend() == "torch":
        with pytest.raises(ValueError, match="jit_compile is XLA's"):
            Predictor(model, jit_compile=True)


@pytest.mark.skipif(not TENSORFLOW, reason="counts the traces of TensorFlow")
def test_traces_once():
    model = VisionTransformer(PLAIN, image_size=16, classes=5)
    calls = []

    class Counting(keras.Model):
        def call(self, images, training=None):
            calls.append(images.shape)
            return model(images, training=training)

    inputs = keras.Input((16, 16, 3))
    predictor = Predictor(keras.Model(inputs, Counting()(inputs)), batch_size=4)
    calls.clear()
    for images in (1, 4, 9, 1):
        predictor(normal((images, 16, 16, 3)))
    assert calls == [(None, 16, 16, 3)]
