"""One model of several networks: what it computes, and which tools take it."""

import keras
import numpy as np
import pytest
import small_models

import keras_vit
from keras_vit.structure import bits_of, head_activation, preparation_of
from train.models.averaging import averaged, members
from train.models.keras_files import load_model

NAMES = ("ant", "bee", "cat", "dog", "emu")


@pytest.fixture(scope="module")
def parts():
    """Two networks for images of different sizes."""
    options = {"class_names": NAMES}
    return [
        small_models.made(image_size=32, **options),
        small_models.made(image_size=16, pooling="token_and_gap", **options),
    ]


@pytest.fixture(scope="module")
def model(parts):
    return averaged(parts, [0.25, 1.5])


def test_logits_are_the_weighted_sum_also_of_a_saved_model(parts, model, tmp_path):
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    small = keras.ops.image.resize(images, (16, 16), antialias=False)
    one, other = (
        keras.ops.convert_to_numpy(part(batch))
        for part, batch in zip(parts, (images, small), strict=True)
    )
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    for net in (model, loaded):
        logits = keras.ops.convert_to_numpy(net(images))
        np.testing.assert_allclose(logits, 0.25 * one + 1.5 * other, atol=1e-5)
    assert [net.name for net in members(loaded)] == ["network_0", "network_1"]
    assert members(parts[0]) == []


def test_it_knows_its_classes_and_how_photos_come_to_it(model):
    photo = np.zeros((40, 30, 3), "uint8")
    [answers] = keras_vit.classify(model, photo, top=5)
    assert {name for _, name, _ in answers} == {*NAMES}
    assert (preparation_of(model), bits_of(model)) == ("squash", None)
    assert head_activation(model) == "linear"


def test_what_has_one_grid_of_patches_alone_refuses_it_by_name(model):
    images = np.zeros((1, 32, 32, 3), "float32")
    for refused in (
        lambda: keras_vit.explain.attention_maps(model, images),
        lambda: keras_vit.at_image_size(model, 64),
    ):
        with pytest.raises(
            ValueError, match="average is of several networks.*network_0"
        ):
            refused()
    part = model.get_layer("network_0")
    assert len(keras_vit.explain.attention_maps(part, images)) == 2


def test_its_weights_become_int8(model):
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    quantized = keras_vit.quantize_weights(model)
    expected, got = (
        keras.ops.convert_to_numpy(net(images)) for net in (model, quantized)
    )
    assert np.abs(got - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_it_is_converted_for_other_runtimes(model, engine):
    pytest.importorskip(engine)
    images = np.random.default_rng(0).uniform(-1, 1, (3, 32, 32, 3)).astype("float32")
    predictor = keras_vit.Predictor(model, 3, engine=engine)
    expected = keras.ops.convert_to_numpy(model(images))
    np.testing.assert_allclose(predictor(images), expected, atol=1e-4)
