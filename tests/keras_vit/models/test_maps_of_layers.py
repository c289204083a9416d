import keras
import numpy as np
import pytest
from harness import randomize

import keras_vit

CONFIG = keras_vit.ViTConfig(
    hidden_size=24, num_layers=3, num_heads=3, mlp_dim=40, patch_size=4
)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 12, 3)).astype("float32")


def build(**options):
    model = keras_vit.VisionTransformer(CONFIG, image_size=(8, 12), **options)
    randomize(model)
    return model


@pytest.fixture(scope="module")
def model():
    return build(classes=5)


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("norm", [True, False])
def test_maps_are_the_tokens_of_blocks(model, norm):
    found = keras_vit.features(model, layers=(0, -1), norm=norm).predict(IMAGES)
    assert list(found) == ["layer_0", "layer_2"]
    for number, maps in enumerate(found.values()):
        tokens = model.get_layer(f"encoder_block_{2 * number}").output
        tokens = keras.Model(model.input, tokens).predict(IMAGES)
        if norm:
            tokens = keras.ops.convert_to_numpy(model.get_layer("encoder_norm")(tokens))
        close(maps[1, 1, 2], tokens[1, -1])
        close(maps, tokens[:, 1:].reshape(2, 2, 3, 24))


def test_tokens_class_token_and_what_the_head_reads(model):
    layers = (-1, "class_token", "pooled")
    found = keras_vit.features(model, layers, as_maps=False).predict(IMAGES)
    expected = keras_vit.explain.token_features(model, IMAGES)
    close(found["layer_2"][:, 1:], expected.patches.reshape(2, 6, 24))
    for name in ("class_token", "pooled"):
        close(found[name], expected.class_token)


def test_weights_are_shared_and_the_rest_is_left_out(model):
    first = keras_vit.features(model, layers=0)
    assert first.count_params() < model.count_params() / 2
    before = first.predict(IMAGES)["layer_0"]
    norm = model.get_layer("encoder_norm")
    norm.beta.assign_add(keras.ops.ones(24))
    close(first.predict(IMAGES)["layer_0"], before + 1)
    norm.beta.assign_sub(keras.ops.ones(24))


def test_at_another_size_and_saved(model, tmp_path):
    small = keras_vit.features(model, layers=(1,))
    large = keras_vit.at_image_size(small, (16, 12))
    expected = keras_vit.features(keras_vit.at_image_size(model, (16, 12)), layers=(1,))
    images = np.concatenate([IMAGES, IMAGES], axis=1)
    close(large.predict(images)["layer_1"], expected.predict(images)["layer_1"])
    large.save(tmp_path / "large.keras")
    again = keras.saving.load_model(tmp_path / "large.keras")
    close(again.predict(images)["layer_1"], expected.predict(images)["layer_1"])
