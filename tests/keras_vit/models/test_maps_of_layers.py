import keras
import numpy as np
import pytest
import small_models
from harness import normal, numpy

import keras_vit

IMAGES = normal((2, *small_models.SIZE, 3))


@pytest.fixture(scope="module")
def model():
    return small_models.made()


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("norm", [True, False])
def test_maps_are_the_tokens_of_blocks(model, norm):
    found = keras_vit.features(model, layers=(0, -1), norm=norm).predict(IMAGES)
    assert list(found) == ["layer_0", "layer_1"]
    for number, maps in enumerate(found.values()):
        tokens = model.get_layer(f"encoder_block_{number}").output
        tokens = keras.Model(model.input, tokens).predict(IMAGES)
        if norm:
            tokens = numpy(model.get_layer("encoder_norm")(tokens))
        close(maps, tokens[:, 1:].reshape(2, 4, 6, 24))


def test_tokens_class_token_and_what_the_head_reads(model):
    layers = (-1, "class_token", "pooled")
    found = keras_vit.features(model, layers, as_maps=False).predict(IMAGES)
    expected = keras_vit.explain.token_features(model, IMAGES)
    close(found["layer_1"][:, 1:], expected.patches.reshape(2, 24, 24))
    for name in ("class_token", "pooled"):
        close(found[name], expected.class_token)


def test_they_share_weights_leave_out_the_rest_and_are_saved(model, tmp_path):
    first = keras_vit.features(model, layers=0)
    assert first.count_params() < 0.7 * model.count_params()
    before = first.predict(IMAGES)["layer_0"]
    beta = model.get_layer("encoder_norm").beta
    beta.assign_add(keras.ops.ones(24))
    close(first.predict(IMAGES)["layer_0"], before + 1)
    first.save(tmp_path / "small.keras")
    again = keras.saving.load_model(tmp_path / "small.keras")
    close(again.predict(IMAGES)["layer_0"], before + 1)
    beta.assign_sub(keras.ops.ones(24))
