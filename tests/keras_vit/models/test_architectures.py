"""Architectures beside the Vision Transformer; docs/design.md trains one."""

import dataclasses

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize

import keras_vit
from keras_vit import layers
from keras_vit.models.base import Description, Model
from keras_vit.structure import architectures

IMAGES = normal((2, 16, 24, 3))


@dataclasses.dataclass(frozen=True)
class OneSize:
    size: int = 16


def toy(monkeypatch, one_grid=False):
    """A model of an architecture of its own, whose weights have no released names."""
    kind = architectures.Architecture(
        "Toy", OneSize, lambda *_: None, one_grid=one_grid
    )
    monkeypatch.setitem(architectures._ARCHITECTURES, "Toy", kind)
    images = keras.Input((16, 24, 3))
    tokens = layers.AddPositionEmbs((2, 3))(layers.PatchEncoder(8, 16)(images))
    tokens = layers.TransformerBlock(2, 16)(tokens)
    description = Description(OneSize(), (16, 24), pooling=None)
    model = Model(images, tokens, name="toy", description=description)
    randomize(model)
    return model


def test_a_loaded_model_knows_and_computes_what_the_saved_one_does(
    monkeypatch, tmp_path
):
    model = toy(monkeypatch)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.config == OneSize() and loaded.description == model.description
    np.testing.assert_array_equal(numpy(loaded(IMAGES)), numpy(model(IMAGES)))
    assert keras_vit.quantize_weights(loaded).config == OneSize()


@pytest.mark.parametrize(
    "refuse",
    [
        lambda model: keras_vit.at_image_size(model, 32),
        keras_vit.features,
        lambda model: keras_vit.explain.attention_maps(model, IMAGES),
        lambda model: keras_vit.explain.token_features(model, IMAGES),
    ],
)
def test_what_needs_one_grid_refuses_it_by_name(refuse, monkeypatch):
    model, images = toy(monkeypatch), keras.Input((16, 24, 3))
    for one in (model, keras.Model(images, model(images))):
        with pytest.raises(ValueError, match="a Toy, whose layers do not share one"):
            refuse(one)


@pytest.mark.parametrize(
    "refuse", [keras_vit.save_released_weights, keras_vit.load_released_weights]
)
def test_files_of_released_names_refuse_it_by_name(refuse, monkeypatch, tmp_path):
    message = "'toy' is a Toy, whose weights have no released names: keep it"
    with pytest.raises(ValueError, match=message):
        refuse(toy(monkeypatch), tmp_path / "model.npz")


def test_a_rule_of_resizing_need_be_no_field_of_a_users_config(monkeypatch):
    model = toy(monkeypatch, one_grid=True)
    resized = keras_vit.at_image_size(model, (24, 16), "bilinear")
    assert resized.config == OneSize()
    assert resized.description.image_size == (24, 16)
    assert resized(np.zeros((1, 24, 16, 3))).shape == (1, 6, 16)


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
