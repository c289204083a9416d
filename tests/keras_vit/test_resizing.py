import keras
import numpy as np
import pytest
import small_models
from keras import ops

import keras_vit

RESIZABLE = sorted(small_models.MODELS.keys() - {"relative"})


def images_of(model):
    shape = (2, *model.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("kind", RESIZABLE)
def test_the_same_size_computes_the_same(kind):
    model = small_models.made(**small_models.MODELS[kind])
    copy = keras_vit.at_image_size(model, (32, 48))
    images = images_of(model)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(copy(images)), ops.convert_to_numpy(model(images))
    )
    assert [layer.name for layer in copy.layers][1:] == [
        layer.name for layer in model.layers
    ][1:]


@pytest.mark.parametrize("kind", RESIZABLE)
def test_models_of_another_size_run_and_are_saved(kind, tmp_path):
    model = small_models.made(**small_models.MODELS[kind])
    before = model.get_weights()
    resized = keras_vit.at_image_size(model, (48, 72))
    images = images_of(resized)
    assert images.shape[1:3] == (48, 72)
    outputs = ops.convert_to_numpy(resized(images))
    resized.save(tmp_path / "resized.keras")
    loaded = keras.saving.load_model(tmp_path / "resized.keras")
    np.testing.assert_array_equal(ops.convert_to_numpy(loaded(images)), outputs)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("pooling", ["token", "gap"])
@pytest.mark.parametrize("config", [small_models.PLAIN, small_models.HYBRID])
@pytest.mark.parametrize("method", ["released", "bicubic"])
def test_as_when_the_file_is_loaded_at_that_size(config, pooling, method, tmp_path):
    model = small_models.made(config, pooling=pooling)
    file = str(tmp_path / "model.safetensors")
    keras_vit.save_released_weights(model, file)
    expected = keras_vit.load_model(
        file, image_size=(64, 24), position_embedding_method=method
    )
    resized = keras_vit.at_image_size(model, (64, 24), method)
    images = images_of(resized)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(resized(images)), ops.convert_to_numpy(expected(images))
    )


def test_rows_and_columns_lie_between_the_old_ones():
    model = small_models.made(**small_models.positions("2d"))
    layer = model.get_layer("position_embedding_2d")
    layer.row_embedding.assign(np.arange(4.0)[:, None, None] * np.ones(12))
    layer.column_embedding.assign(np.arange(6.0)[None, :, None] * np.ones(12))
    resized = keras_vit.at_image_size(model, (56, 88))
    found = resized.get_layer("position_embedding_2d")
    assert found.grid_size == (7, 11)
    np.testing.assert_allclose(np.array(found.row_embedding)[:, 0, 3], np.arange(7) / 2)
    np.testing.assert_allclose(
        np.array(found.column_embedding)[0, :, 3], np.arange(11) / 2
    )
    np.testing.assert_array_equal(
        np.array(found.class_token_embedding), np.array(layer.class_token_embedding)
    )


def test_int8_models_keep_their_kernels():
    model = keras_vit.quantize_weights(small_models.made())
    resized = keras_vit.at_image_size(model, 32)
    assert resized.output_shape == (None, 5)
    for name in ("embedding", "head"):
        for one, other in zip(
            model.get_layer(name).weights, resized.get_layer(name).weights, strict=True
        ):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.array(one), np.array(other))


def test_what_cannot_be_is_refused():
    model = small_models.made(**small_models.positions("relative"))
    with pytest.raises(ValueError, match="relative positions, which belong to one"):
        keras_vit.at_image_size(model, 32)
    model = small_models.made()
    with pytest.raises(ValueError, match="multiples of the patch size 8x8, got 33x33"):
        keras_vit.at_image_size(model, 33)
    with pytest.raises(ValueError, match="unknown method 'cubic'"):
        keras_vit.at_image_size(model, 64, "cubic")
    with pytest.raises(ValueError, match="image_size must be a positive int"):
        keras_vit.at_image_size(model, 0)
