"""Architectures beside the Vision Transformer: the pyramid of docs/design.md."""

import dataclasses
import importlib.util
import pathlib
import re

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize

import keras_vit
from keras_vit import layers
from keras_vit.models.base import Description, Model
from keras_vit.structure import architectures

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "design.md"


@pytest.fixture(scope="module")
def pyramid(tmp_path_factory):
    """The module of the page, as a file of its own."""
    [text] = re.findall(r"```python\n(# pyramid.py\n.*?)```", PAGE.read_text(), re.S)
    path = tmp_path_factory.mktemp("pyramid") / "pyramid.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("pyramid", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    architectures._ARCHITECTURES.pop("Pyramid")


@pytest.fixture(scope="module")
def model(pyramid):
    config = pyramid.PyramidConfig(hidden_size=8)
    model = pyramid.pyramid(config, image_size=(16, 24), classes=3)
    randomize(model)
    return model


def test_a_loaded_model_knows_and_computes_what_the_saved_one_does(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config and loaded.description == model.description
    images = normal((2, 16, 24, 3))
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    int8 = keras_vit.quantize_weights(loaded)
    assert int8.config == model.config
    np.testing.assert_allclose(numpy(int8(images)), numpy(model(images)), atol=0.1)


IMAGES = np.zeros((1, 16, 24, 3))


@pytest.mark.parametrize(
    "refuse",
    [
        lambda model: keras_vit.at_image_size(model, 32),
        keras_vit.features,
        lambda model: keras_vit.explain.attention_maps(model, IMAGES),
        lambda model: keras_vit.explain.token_features(model, IMAGES),
    ],
)
def test_what_needs_one_grid_refuses_it_by_name(model, refuse):
    images = keras.Input(model.input_shape[1:])
    for one in (model, keras.Model(images, model(images))):
        with pytest.raises(ValueError, match="a Pyramid, whose layers do not share"):
            refuse(one)


@pytest.mark.parametrize(
    "refuse", [keras_vit.save_released_weights, keras_vit.load_released_weights]
)
def test_files_of_released_names_refuse_it_by_name(model, refuse, tmp_path):
    message = "'pyramid' is a Pyramid, whose weights have no released names: keep it"
    with pytest.raises(ValueError, match=message):
        refuse(model, tmp_path / "model.npz")


def test_models_of_users_may_have_a_config_of_any_kind(tmp_path):
    own = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    own.config = {"size": 3}
    assert architectures.of_model(own).name == "Vision Transformer"
    architectures.check_one_grid(own)

    class Config(keras_vit.ViTConfig):
        pass

    # It is saved as the one that it is made of.
    plain = keras_vit.ViTConfig(16, 1, 2, 16, patch_size=8)
    options = {"image_size": 16, "classes": 2}
    model = keras_vit.VisionTransformer(Config(**vars(plain)), **options)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == plain.completed()


@dataclasses.dataclass(frozen=True)
class OneSize:
    size: int = 16


def test_a_rule_of_resizing_need_be_no_field_of_a_users_config(monkeypatch):
    toy = architectures.Architecture("Toy", OneSize, lambda *_: None, one_grid=True)
    monkeypatch.setitem(architectures._ARCHITECTURES, "Toy", toy)
    images = keras.Input((16, 24, 3))
    tokens = layers.AddPositionEmbs((2, 3))(layers.PatchEncoder(8, 16)(images))
    # Without blocks none computes the class token alone.
    description = Description(OneSize(), (16, 24), pooling="token")
    model = Model(images, tokens, description=description)
    resized = keras_vit.at_image_size(model, (24, 16), "bilinear")
    assert resized.config == OneSize()
    assert resized.description.image_size == (24, 16)
    assert resized(np.zeros((1, 24, 16, 3))).shape == (1, 6, 16)
