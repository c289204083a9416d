"""A kind of pooling is a layer and one row."""

import keras
import numpy as np
import pytest
import small_models
from harness import normal, numpy
from keras import ops

import keras_vit
from keras_vit import explain
from keras_vit.layers import PatchPooling, poolings
from keras_vit.structure import kind_of_pooling, pooling_of


@keras.saving.register_keras_serializable(package="test")
class PatchMaxPooling(PatchPooling):
    def call(self, tokens):
        return ops.max(tokens[:, self.num_prefix_tokens :], axis=1)


@pytest.fixture
def with_max(monkeypatch):
    row = poolings.Pooling(
        PatchMaxPooling, "the maximum of the patches", class_token=False, shows="gap"
    )
    monkeypatch.setitem(poolings.POOLINGS, "max", row)


def test_another_kind_is_built_saved_explained_and_named(with_max, tmp_path):
    model = small_models.made(pooling="max", classes=3)
    images = normal((2, *small_models.SIZE, 3))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    assert kind_of_pooling(loaded) == loaded.description.pooling == "max"
    assert pooling_of(loaded) == "gap"
    maps = explain.attention_maps(loaded, images)
    assert maps.shape[0] == 2
    found = keras_vit.features(loaded, ("pooled", -1))(images)
    maximum = numpy(found["layer_1"]).max(axis=(1, 2))
    np.testing.assert_allclose(numpy(found["pooled"]), maximum, atol=1e-6)
    with pytest.raises(ValueError, match="pooling 'max' is not known"):
        keras_vit.save_released_weights(model, tmp_path / "file.safetensors")


def test_a_layer_of_a_class_made_of_another_is_of_the_nearest_kind():
    kinds = {
        kind: poolings.kind_of_layer(row.layer.__new__(row.layer))
        for kind, row in poolings.POOLINGS.items()
    }
    assert kinds == {kind: kind for kind in poolings.POOLINGS}
    assert poolings.kind_of_layer(keras.layers.Dense(1)) is None
