"""One model for images of any size: what it computes, and every tool with it."""

import keras
import numpy as np
import pytest
import small_models
from harness import flags, numpy, randomize

import keras_vit
from keras_vit import at_image_size, explain, layers
from keras_vit.structure import own_image_size

ANY = (None, None)
KINDS = sorted(small_models.MODELS.keys() - {"relative"})
SIZES = (small_models.SIZE, (48, 24), (96, 120))
PLAIN, SIZE = small_models.PLAIN, small_models.SIZE


def images_of(model, size, count=2):
    shape = (count, *size, model.input_shape[-1])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def close(found, wanted, tolerance=2e-6):
    found, wanted = numpy(found), numpy(wanted)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.fixture(scope="module")
def plain():
    """For tests that do not change it."""
    return at_image_size(small_models.shared(), ANY)


@pytest.mark.parametrize("kind", KINDS)
def test_as_models_of_each_size(kind, tmp_path):
    fixed = small_models.shared(kind)
    model = at_image_size(fixed, ANY)
    assert model.input_shape == (None, None, None, fixed.input_shape[-1])
    assert own_image_size(model) == SIZE
    predictor = keras_vit.Predictor(model)
    for size in SIZES:
        wanted = at_image_size(fixed, size)
        images = images_of(model, size)
        close(model(images), wanted(images))
        close(predictor(images), wanted(images))
        # Back to one size, it is the same as if it had never been another.
        again = at_image_size(model, size)
        assert again.get_config() == wanted.get_config()
        np.testing.assert_array_equal(numpy(again(images)), numpy(wanted(images)))


@pytest.mark.parametrize(
    "kind",
    ["hybrid", "registers", "rotary, attention pooling", "relative biases"],
)
def test_saved_cloned_and_quantized(kind, tmp_path):
    fixed = small_models.shared(kind)
    model = at_image_size(fixed, ANY)
    images = images_of(model, (48, 24))
    wanted = numpy(model(images))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), wanted)
    clone = keras.models.clone_model(model)
    # Weights go between models of one size and of any.
    for source in (model, fixed):
        source.save_weights(tmp_path / "model.weights.h5")
        for target in (
            clone,
            at_image_size(small_models.made(**small_models.MODELS[kind]), ANY),
        ):
            randomize(target)
            target.load_weights(tmp_path / "model.weights.h5")
            close(target(images), wanted)
    quantized = keras_vit.quantize_weights(model)
    of_one_size = keras_vit.quantize_weights(at_image_size(fixed, (48, 24)))
    close(quantized(images), of_one_size(images))


@pytest.mark.parametrize(
    "kind", ["plain", "registers", "rotary, attention pooling", "relative biases"]
)
def test_files_of_released_names(kind, tmp_path):
    fixed = small_models.shared(kind)
    model = at_image_size(fixed, ANY)
    one = keras_vit.save_released_weights(fixed, tmp_path / "one.safetensors")
    other = keras_vit.save_released_weights(model, tmp_path / "any.safetensors")
    assert one.read_bytes() == other.read_bytes()
    loaded = keras_vit.load_model(one, image_size=ANY)
    assert loaded.input_shape == model.input_shape
    images = images_of(model, (48, 24))
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))
    randomize(loaded)
    keras_vit.load_released_weights(loaded, other)
    np.testing.assert_array_equal(numpy(loaded(images)), numpy(model(images)))


def test_variants_and_rules_are_chosen_when_building(tmp_path):
    model = keras_vit.VisionTransformer(PLAIN, image_size=ANY, classes=5)
    assert own_image_size(model) == (224, 224)
    of_patches = keras_vit.ViTConfig(
        hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=60
    )
    # As near to 224 as whole patches are.
    model = keras_vit.VisionTransformer(of_patches, image_size=[None, None])
    assert own_image_size(model) == (240, 240)
    model = keras_vit.ViT_Ti16(weights=None, image_size=ANY, include_top=False)
    assert model.input_shape == (None, None, None, 3)
    file = tmp_path / "model.safetensors"
    keras_vit.save_released_weights(small_models.shared(), file)
    for method in ("bicubic", "lanczos3"):
        model = keras_vit.load_model(
            file, image_size=ANY, position_embedding_method=method
        )
        images = images_of(model, (96, 120))
        wanted = at_image_size(small_models.shared(), (96, 120), method)
        close(model(images), wanted(images))
    with pytest.raises(ValueError, match="height, width. pair"):
        keras_vit.VisionTransformer(PLAIN, image_size=(None, 32))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
def test_other_dtypes(dtype):
    for kind in ("plain", "rotary, attention pooling", "relative biases"):
        fixed = small_models.made(**small_models.MODELS[kind], dtype=dtype)
        model = at_image_size(fixed, ANY)
        for size in SIZES:
            images = images_of(model, size)
            wanted = at_image_size(fixed, size)(images)
            assert model(images).dtype == wanted.dtype
            tolerance = 2e-6 if dtype == "float64" or size == SIZE else 3e-2
            close(model(images), wanted, tolerance)


def test_every_part_of_a_model_that_wraps_it():
    inner = small_models.shared("registers")
    inputs = keras.Input((*SIZE, 3))
    fixed = keras.Model(inputs, keras.layers.Softmax()(inner(inputs)))
    for wrapped in (fixed, keras.Sequential([inputs, inner, keras.layers.Softmax()])):
        model = at_image_size(wrapped, ANY)
        images = images_of(model, (48, 24))
        close(model(images), at_image_size(fixed, (48, 24))(images))


def test_frozen_and_low_rank_weights_stay():
    fixed = small_models.made()
    fixed.get_layer("encoder_block_0").attention.query.enable_lora(2)
    fixed.get_layer("encoder_block_1").mlp.trainable = False
    randomize(fixed)
    model = at_image_size(fixed, ANY)
    assert list(flags(model).values()) == list(flags(fixed).values())
    images = images_of(model, SIZE)
    close(model(images), fixed(images))


@pytest.mark.parametrize(
    "kind", ["remat and dropout", "rotary, attention pooling", "relative biases"]
)
def test_training_at_several_sizes(kind):
    model = at_image_size(small_models.made(**small_models.MODELS[kind]), ANY)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for size in ((48, 24), SIZE):
        before = [numpy(weight) for weight in model.trainable_weights]
        model.fit(images_of(model, size), np.array([1, 3]), verbose=0)
        for old, new in zip(before, model.trainable_weights, strict=True):
            # No gradient: a softmax cancels the bias of keys that are not turned.
            if new.path.split("/")[-2:] != ["key", "bias"]:
                assert (old != numpy(new)).any(), new.path


def test_features_and_what_is_inside(plain):
    model = keras_vit.features(plain, layers=(0, -1, "class_token", "pooled"))
    assert model.output["layer_0"].shape == (None, None, None, 24)
    size = (48, 24)
    fixed = at_image_size(small_models.shared(), size)
    wanted = keras_vit.features(fixed, layers=(0, -1, "class_token", "pooled"))
    images = images_of(plain, size)
    found, wanted = model.predict(images, verbose=0), wanted.predict(images, verbose=0)
    assert found["layer_0"].shape == (2, 6, 3, 24)
    for name in wanted:
        close(found[name], wanted[name])
    again = at_image_size(model, size)
    close(again(images)["layer_1"], wanted["layer_1"])
    without = keras_vit.VisionTransformer(
        small_models.positions("none")["config"], image_size=ANY
    )
    maps = keras_vit.features(without)(images)
    assert maps["layer_1"].shape == (2, 6, 3, 24)

    close(explain.attention_maps(plain, images), explain.attention_maps(fixed, images))
    close(
        explain.gradient_attention(plain, images),
        explain.gradient_attention(fixed, images),
    )
    close(
        explain.attention_distance(plain, images),
        explain.attention_distance(fixed, images),
    )
    found, wanted = (explain.token_features(one, images) for one in (plain, fixed))
    close(found.patches, wanted.patches)
    np.testing.assert_array_equal(
        explain.position_embedding_similarity(plain),
        explain.position_embedding_similarity(small_models.shared()),
    )
    assert plain.class_token_block is plain.get_layer("encoder_block_1")


def test_photos(plain):
    photos = np.random.default_rng(0).integers(0, 256, (3, 50, 70, 3), "uint8")
    names = ("a", "b", "c", "d", "e")
    for size, options in ((SIZE, {}), ((48, 24), {"image_size": (48, 24)})):
        fixed = at_image_size(small_models.shared(), size)
        close(keras_vit.embed(plain, photos, **options), keras_vit.embed(fixed, photos))
        found, wanted = (
            keras_vit.classify(model, photos, class_names=names, **others)
            for model, others in ((plain, options), (fixed, {}))
        )
        assert [[one[:2] for one in best] for best in found] == [
            [one[:2] for one in best] for best in wanted
        ]
    with pytest.raises(ValueError, match="images of 32x48 alone.*at_image_size"):
        keras_vit.embed(small_models.shared(), photos, image_size=48)
    with pytest.raises(ValueError, match="sides are multiples of 8 and 8, got 50x50"):
        keras_vit.embed(plain, photos, image_size=50)


def test_what_cannot_be_is_refused(plain):
    images = images_of(plain, (48, 50))
    for function in (plain, lambda images: plain.predict(images, verbose=0)):
        with pytest.raises(
            ValueError, match="multiples of the patch size 8x8, got 48x"
        ):
            function(images)
    for function in (
        keras_vit.Predictor(plain),
        lambda images: explain.attention_maps(plain, images),
    ):
        with pytest.raises(ValueError, match="multiples of 8 and 8, got 48x50"):
            function(images)
    with pytest.raises(
        ValueError, match="RelativePositionEmbedding, which belongs to one"
    ):
        at_image_size(small_models.shared("relative"), ANY)
    with pytest.raises(ValueError, match="makes images one size"):
        inner = small_models.shared()
        at_image_size(
            keras.Sequential(
                [keras.Input((64, 64, 3)), keras.layers.Resizing(*SIZE), inner]
            ),
            ANY,
        )
    with pytest.raises(ValueError, match="unknown method 'nonsense'"):
        at_image_size(small_models.shared(), ANY, "nonsense")
    row = keras.Sequential(
        [
            keras.Input((*SIZE, 3)),
            keras_vit.PatchEncoder(8, 24),
            keras_vit.AddPositionEmbs((4, 6)),
        ]
    )
    with pytest.raises(ValueError, match="build a functional model"):
        at_image_size(row, ANY)


def blocks_of(*positions):
    images = keras.Input((*SIZE, 3))
    tokens = keras_vit.ClassToken()(keras_vit.PatchEncoder(8, 24)(images))
    for one in positions:
        tokens = keras_vit.TransformerBlock(3, 40, positions=one)(tokens)
    model = keras.Model(images, layers.PatchPooling()(tokens))
    randomize(model)
    return model


@pytest.mark.parametrize(
    "others",
    [
        layers.RotaryPositions("eva", (4, 6), base=10.0),
        layers.RotaryPositions("eva", (4, 6), stretched_to=(2, 3)),
        layers.RotaryPositions("dinov3", (4, 6)),
        layers.RelativePositionBias((4, 6)),
    ],
    ids=["base", "stretched", "kind", "biases"],
)
def test_each_block_has_positions_of_its_own(others):
    others = type(others).from_config(others.get_config())
    rotary = layers.RotaryPositions("eva", (4, 6))
    fixed = blocks_of(rotary, others)
    model = at_image_size(fixed, ANY)
    runtime = keras_vit.Predictor(fixed, engine="onnxruntime")
    close(runtime(images_of(fixed, SIZE)), fixed(images_of(fixed, SIZE)), 1e-5)
    for size in (SIZE, (48, 24)):
        images = images_of(model, size)
        close(model(images), at_image_size(fixed, size)(images))


def test_another_rule_for_biases_of_any_size():
    fixed = blocks_of(layers.RelativePositionBias((4, 6)))
    images = images_of(fixed, (48, 24))
    wanted = at_image_size(fixed, (48, 24), "bilinear")(images)
    close(at_image_size(at_image_size(fixed, ANY), ANY, "bilinear")(images), wanted)
