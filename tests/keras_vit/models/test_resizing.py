import keras
import numpy as np
import pytest
import small_models
from harness import normal, numpy, randomize
from keras import ops

import keras_vit
from keras_vit import layers

RESIZABLE = sorted(small_models.MODELS.keys() - {"relative"})
# Of each kind of layers; that others save as these do the tests of layers show.
SAVED = ("hybrid", "patches not square", "rows and columns before every block")


def images_of(model):
    shape = (2, *model.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


@pytest.mark.parametrize("kind", RESIZABLE)
def test_models_of_the_same_and_of_another_size(kind, tmp_path):
    model = small_models.shared(kind)
    before = model.get_weights()
    copy = keras_vit.at_image_size(model, (32, 48))
    images = images_of(model)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(copy(images)), ops.convert_to_numpy(model(images))
    )
    assert [layer.name for layer in copy.layers][1:] == [
        layer.name for layer in model.layers
    ][1:]

    resized = keras_vit.at_image_size(model, (48, 72))
    images = images_of(resized)
    assert images.shape[1:3] == (48, 72)
    if kind in SAVED:
        outputs = ops.convert_to_numpy(resized(images))
        resized.save(tmp_path / "resized.keras")
        loaded = keras.saving.load_model(tmp_path / "resized.keras")
        np.testing.assert_array_equal(ops.convert_to_numpy(loaded(images)), outputs)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    ("config", "pooling", "method"),
    [
        (small_models.PLAIN, "token", "released"),
        (small_models.PLAIN, "gap", "bicubic"),
        (small_models.HYBRID, "gap", "released"),
        (small_models.HYBRID, "token", "bicubic"),
    ],
)
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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("kind", ["plain", "rows and columns before every block"])
def test_models_of_every_dtype(kind, dtype):
    model = small_models.made(**small_models.MODELS[kind], dtype=dtype)
    name = "position_embedding" + ("" if kind == "plain" else "_1")
    found = keras_vit.at_image_size(model, 64).get_layer(name)
    again = small_models.made(**small_models.MODELS[kind])
    again.set_weights([numpy(ops.cast(w, "float32")) for w in model.weights])
    expected = keras_vit.at_image_size(again, 64).get_layer(name)
    for one, other in zip(found.weights, expected.weights, strict=True):
        assert one.dtype == dtype
        np.testing.assert_allclose(
            numpy(ops.cast(one, "float32")),
            numpy(ops.cast(ops.cast(other, dtype), "float32")),
            **{"bfloat16": {}, "float16": {"atol": 2e-3}, "float64": {"atol": 1e-5}}[
                dtype
            ],
        )


def test_int8_models_keep_their_kernels():
    model = keras_vit.quantize_weights(small_models.shared())
    resized = keras_vit.at_image_size(model, 32)
    assert resized.output_shape == (None, 5)
    for name in ("embedding", "head"):
        for one, other in zip(
            model.get_layer(name).weights, resized.get_layer(name).weights, strict=True
        ):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.array(one), np.array(other))


def test_what_cannot_be_is_refused():
    model = small_models.shared("relative")
    with pytest.raises(
        ValueError, match="RelativePositionEmbedding, which belongs to one"
    ):
        keras_vit.at_image_size(model, 32)
    model = small_models.shared()
    message = (
        "^The model vision_transformer cannot cut images of 33x36 into whole patches "
        r"of 8x8 pixels: pass image_size=\(32, 32\).$"
    )
    with pytest.raises(ValueError, match=message):
        keras_vit.at_image_size(model, (33, 36))
    behind = keras.Sequential(
        [keras.Input((24, 40, 3)), keras.layers.ZeroPadding2D(4), model]
    )
    with pytest.raises(ValueError, match=r"of 21x27 .*image_size=\(24, 24\).$"):
        keras_vit.at_image_size(behind, (21, 27))
    with pytest.raises(ValueError, match="unknown method 'cubic'"):
        keras_vit.at_image_size(model, 64, "cubic")
    with pytest.raises(ValueError, match="image_size must be a positive int"):
        keras_vit.at_image_size(model, 0)


@pytest.mark.parametrize("size", [(24, 16), (None, None)])
def test_attention_of_one_number_of_tokens_is_refused_in_any_layer(size):
    images = keras.Input((16, 24, 3))
    positions = layers.RelativePositionEmbedding()
    attention = layers.SelfAttention(2, positions=positions)
    model = keras.Model(images, attention(layers.PatchEncoder(8, 16)(images)))
    with pytest.raises(ValueError, match="build and train the model at the image size"):
        keras_vit.at_image_size(model, size)


def functional(model):
    images = keras.Input(model.input_shape[1:])
    outputs = keras.layers.Dense(3, name="new_head")(
        model(keras.layers.Rescaling(2.0)(images))
    )
    return keras.Model(images, outputs, name="wrapper")


def sequential(model):
    images = keras.Input(model.input_shape[1:])
    return keras.Sequential([images, keras.layers.Rescaling(2.0), model])


def twice(model):
    return functional(sequential(model))


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (functional, "hybrid"),
        (functional, "rows and columns before every block"),
        (sequential, "plain"),
        (twice, "plain"),
    ],
)
def test_wrappers_compute_what_the_model_in_them_does(wrap, kind):
    model = small_models.shared(kind)
    wrapper = wrap(model)
    found = keras_vit.at_image_size(wrapper, (64, 40), "bilinear")
    assert type(found) is type(wrapper)
    assert found.input_shape == (None, 64, 40, 3)
    inner = keras_vit.at_image_size(model, (64, 40), "bilinear")
    images = normal((2, 64, 40, 3))
    scale = 4.0 if wrap is twice else 2.0
    expected = inner(scale * images)
    if wrap is not sequential:
        expected = wrapper.get_layer("new_head")(expected)
    np.testing.assert_allclose(numpy(found(images)), numpy(expected), atol=1e-5)
    # The original is as it was.
    images = normal((2, 32, 48, 3))
    expected = model(scale * images)
    if wrap is not sequential:
        expected = wrapper.get_layer("new_head")(expected)
    np.testing.assert_allclose(numpy(wrapper(images)), numpy(expected), atol=1e-5)


def test_int8_models_in_wrappers():
    model = keras_vit.quantize_weights(small_models.shared())
    found = keras_vit.at_image_size(functional(model), 64)
    inner = keras_vit.at_image_size(model, 64)
    images = normal((2, 64, 64, 3))
    expected = found.get_layer("new_head")(inner(2.0 * images))
    np.testing.assert_allclose(numpy(found(images)), numpy(expected), atol=1e-5)


def test_lora_goes_along():
    model = small_models.made()
    part = model.get_layer("encoder_block_1").attention.query
    part.enable_lora(2, lora_alpha=6)
    model.get_layer("head").enable_lora(3, lora_alpha=1)
    randomize(model)
    found = keras_vit.at_image_size(model, 64)
    for one, other in zip(model.weights, found.weights, strict=True):
        assert (one.name, one.trainable) == (other.name, other.trainable)
    images = images_of(model)
    found = keras_vit.at_image_size(model, (32, 48))
    np.testing.assert_allclose(numpy(found(images)), numpy(model(images)), atol=1e-6)


def test_what_is_frozen_stays_so():
    model = small_models.made()
    wrapper = functional(model)
    model.trainable = False
    model.get_layer("encoder_block_1").mlp.trainable = True
    found = keras_vit.at_image_size(wrapper, 64)
    assert [weight.trainable for weight in found.weights] == [
        weight.trainable for weight in wrapper.weights
    ]
    assert not found.get_layer(model.name).trainable


@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Resizing(32, 48, name="fixed"),
        keras.layers.CenterCrop(32, 48, name="fixed"),
        lambda images: keras.layers.Pipeline(
            [keras.layers.Resizing(32, 48, name="fixed")]
        )(images),
        lambda images: keras.ops.image.resize(
            images, (32, 48), data_format="channels_last"
        ),
    ],
    ids=["Resizing", "CenterCrop", "Pipeline", "operation"],
)
def test_models_behind_one_size_are_refused(layer):
    images = keras.Input((96, 96, 3))
    model = keras.Model(images, small_models.shared()(layer(images)))
    with pytest.raises(
        ValueError, match="the layer (fixed|resize.*), which makes images"
    ):
        keras_vit.at_image_size(model, 64)


@pytest.mark.parametrize(
    ("layer", "size", "grid"),
    [
        (keras.layers.ZeroPadding2D(4), (24, 40), (5, 5)),
        (keras.layers.Cropping2D(4), (40, 56), (3, 3)),
        (keras.layers.UpSampling2D(2), (16, 24), (8, 8)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_behind_layers_that_change_the_size(layer, size, grid):
    images = keras.Input((*size, 3))
    inner = small_models.shared()
    model = keras.Model(images, inner(layer(images)))
    found = keras_vit.at_image_size(model, 32)
    expected = keras_vit.at_image_size(inner, [8 * side for side in grid])
    images = normal((2, 32, 32, 3))
    np.testing.assert_allclose(
        numpy(found(images)), numpy(expected(layer(images))), atol=1e-5
    )


def test_other_layers_are_refused_by_name():
    model = small_models.made(pooling=None, include_top=False)
    flat = keras.layers.Flatten()(model.output)
    model = keras.Model(model.input, keras.layers.Dense(2, name="flat")(flat))
    with pytest.raises(ValueError, match="The layer flat of .* one image size"):
        keras_vit.at_image_size(model, 64)

    class Mine(keras.Model):
        def call(self, images):
            return images

    with pytest.raises(ValueError, match="functional or sequential model of one inpu"):
        keras_vit.at_image_size(Mine(), 64)
    images = keras.Input((32, 48, 3))
    model = keras.Model(images, small_models.shared()(Mine(name="mine")(images)))
    with pytest.raises(ValueError, match="The model mine in .* one input and known"):
        keras_vit.at_image_size(model, 64)
