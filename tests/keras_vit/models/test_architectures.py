"""Architectures beside the Vision Transformer: the pyramid of docs/design.md."""

import dataclasses
import importlib.util
import pathlib
import re

import keras
import numpy as np
import pytest
from harness import normal, numpy

import keras_vit
from keras_vit import layers
from keras_vit.models.base import Description, Model
from keras_vit.structure import architectures
from zoo.network import NETWORKS

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
    """A small one, trained for a few steps."""
    config = pyramid.PyramidConfig(hidden_size=8)
    model = pyramid.pyramid(config, image_size=(16, 24), classes=3)
    before = [numpy(weight) for weight in model.weights]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    images, labels = normal((6, 16, 24, 3)), np.arange(6) % 3
    losses = model.fit(images, labels, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    for weight, value in zip(model.weights, before, strict=True):
        assert np.abs(numpy(weight) - value).max() > 0, weight.path
    return model


def test_merging_makes_one_token_of_four_neighbours(pyramid):
    merging = pyramid.PatchMerging((4, 6))
    merging.build((None, 24, 5))
    tokens = normal((2, 24, 5))
    squares = tokens.reshape(2, 4, 6, 5)
    four = np.concatenate(
        [squares[:, i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=-1
    )
    expected = four.reshape(2, 6, 20) @ numpy(merging.kernel)
    np.testing.assert_allclose(numpy(merging(tokens)), expected, atol=1e-5)


def test_a_loaded_model_knows_and_computes_what_the_saved_one_does(model, tmp_path):
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == model.config and loaded.description == model.description
    images = normal((2, 16, 24, 3))
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    int8 = keras_vit.quantize_weights(loaded)
    assert int8.config == model.config
    np.testing.assert_allclose(numpy(int8(images)), numpy(model(images)), atol=0.1)


def test_photos_are_classified_and_embedded(model):
    photo = np.zeros((48, 64, 3), "uint8")
    [answers] = keras_vit.classify(model, photo, class_names=("a", "b", "c"), top=3)
    assert sum(probability for *_, probability in answers) == pytest.approx(1)
    assert keras_vit.embed(model, photo).shape == (1, 16)


def inside(model):
    """The model in one of the user's."""
    images = keras.Input(model.input_shape[1:])
    return keras.Model(images, model(images), name="around")


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "refuse",
    [
        lambda model: keras_vit.at_image_size(model, 32),
        keras_vit.features,
        lambda model: keras_vit.explain.attention_maps(model, np.zeros((1, 16, 24, 3))),
        lambda model: keras_vit.explain.token_features(model, np.zeros((1, 16, 24, 3))),
    ],
    ids=["at_image_size", "features", "attention_maps", "token_features"],
)
def test_what_needs_one_grid_refuses_it_by_name(model, refuse, wrapped):
    with pytest.raises(ValueError, match="a Pyramid, whose layers do not share"):
        refuse(inside(model) if wrapped else model)


def test_files_of_released_names_refuse_it_by_name(model, tmp_path):
    message = "'pyramid' is a Pyramid, whose weights have no released names: keep it"
    with pytest.raises(ValueError, match=message):
        keras_vit.save_released_weights(model, tmp_path / "model.npz")
    with pytest.raises(ValueError, match=message):
        keras_vit.load_released_weights(model, tmp_path / "model.npz")


def test_every_network_of_a_name_has_an_architecture():
    for name, config in NETWORKS.items():
        architecture = architectures.of_config(config)
        assert architectures.named(architecture.name) is architecture, name


def test_a_model_of_a_user_may_have_a_config_of_any_kind():
    own = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    own.config = {"size": 3}
    assert architectures.of_model(own).name == "Vision Transformer"
    architectures.check_one_grid(own)


def test_a_users_kind_of_config_is_saved_as_the_one_it_is_made_of(tmp_path):
    class Config(keras_vit.ViTConfig):
        pass

    plain = keras_vit.ViTConfig(16, 1, 2, 16, patch_size=8)
    for config in (plain, Config(**vars(plain))):
        model = keras_vit.VisionTransformer(config, image_size=16, classes=2)
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
    description = Description(OneSize(), (16, 24), pooling=None)
    model = Model(images, tokens, description=description)
    resized = keras_vit.at_image_size(model, (24, 16), "bilinear")
    assert resized.config == OneSize()
    assert resized.description.image_size == (24, 16)
