"""Features of layers, and kinds of pooling, each a layer and one row."""

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


def test_another_kind_is_built_saved_explained_and_named(monkeypatch, tmp_path):
    row = poolings.Pooling(
        PatchMaxPooling, "the maximum of the patches", class_token=False
    )
    monkeypatch.setitem(poolings.POOLINGS, "max", row)
    model = small_models.made(pooling="max", classes=3)
    images = normal((2, *small_models.SIZE, 3))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    assert kind_of_pooling(loaded) == loaded.description.pooling == "max"
    assert pooling_of(loaded) == "gap"
    assert len(explain.attention_maps(loaded, images)) == 2
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


IMAGES = normal((2, *small_models.SIZE, 3))


@pytest.fixture(scope="module")
def model():
    return small_models.made()


def close(found, expected):
    found, expected = numpy(found), numpy(expected)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("norm", [True, False])
def test_maps_are_the_tokens_of_blocks(model, norm):
    found = keras_vit.features(model, layers=(0, -1), norm=norm)(IMAGES)
    assert list(found) == ["layer_0", "layer_1"]
    for number, maps in enumerate(found.values()):
        tokens = model.get_layer(f"encoder_block_{number}").output
        tokens = keras.Model(model.input, tokens)(IMAGES)
        if norm:
            tokens = model.get_layer("encoder_norm")(tokens)
        close(maps, numpy(tokens)[:, 1:].reshape(2, 4, 6, 24))


def test_tokens_class_token_and_what_the_head_reads(model):
    layers = (-1, "class_token", "pooled")
    found = keras_vit.features(model, layers, as_maps=False)(IMAGES)
    expected = keras_vit.explain.token_features(model, IMAGES)
    close(found["layer_1"][:, 1:], expected.patches.reshape(2, 24, 24))
    for name in ("class_token", "pooled"):
        close(found[name], expected.class_token)


def test_they_share_weights_leave_out_the_rest_and_are_saved(model, tmp_path):
    first = keras_vit.features(model, layers=0)
    assert first.count_params() < 0.7 * model.count_params()
    before = first(IMAGES)["layer_0"]
    beta = model.get_layer("encoder_norm").beta
    beta.assign_add(keras.ops.ones(24))
    close(first(IMAGES)["layer_0"], before + 1)
    first.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    close(again(IMAGES)["layer_0"], before + 1)
    beta.assign_sub(keras.ops.ones(24))
