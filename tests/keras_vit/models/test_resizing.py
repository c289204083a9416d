"""Models at another image size, and models for images of any size."""

import keras
import numpy as np
import pytest
import small_models
from harness import check_refusal, flags, normal, numpy, randomize
from small_models import PLAIN, SIZE

import keras_vit
from keras_vit import at_image_size, explain, layers
from keras_vit.structure.image_sizes import own_image_size

ANY = (None, None)
# One of each kind of layers: others are copied, saved and read as these are.
FEW = ("plain", "registers", "rotary, attention pooling", "relative biases")
KINDS = (
    *FEW,
    "hybrid",
    "patches not square",
    "gray, softmax",
    "rows and columns before every block",
    "all tokens",
)
SIZES = (SIZE, (48, 24))


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
def test_a_model_of_any_size_is_that_of_each_size(kind):
    fixed = small_models.shared(kind)
    before = fixed.get_weights()
    model = at_image_size(fixed, ANY)
    assert model.input_shape == (None, None, None, fixed.input_shape[-1])
    assert own_image_size(model) == SIZE
    predictor = keras_vit.Predictor(model)
    for size in SIZES:
        wanted = at_image_size(fixed, size)
        images = images_of(model, size)
        expected = numpy(wanted(images))
        if size == SIZE:
            np.testing.assert_array_equal(expected, numpy(fixed(images)))
        close(model(images), expected)
        close(predictor(images), expected)
        # Back to one size, it is the same as if it had never been another.
        again = at_image_size(model, size)
        assert again.get_config() == wanted.get_config()
        np.testing.assert_array_equal(numpy(again(images)), expected)
        names = [[layer.name for layer in one.layers[1:]] for one in (wanted, fixed)]
        assert names[0] == names[1]
    for old, new in zip(before, fixed.get_weights(), strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize(
    ("kind", "method"),
    [*((kind, None) for kind in FEW), ("hybrid", "bicubic"), ("registers", "released")],
)
def test_files_are_the_same_for_any_size(kind, method, tmp_path):
    fixed = small_models.shared(kind)
    model = at_image_size(fixed, ANY, method)
    one = keras_vit.save_released_weights(fixed, tmp_path / "one.safetensors")
    if method is None:
        other = keras_vit.save_released_weights(model, tmp_path / "any.safetensors")
        assert one.read_bytes() == other.read_bytes()
    images = images_of(model, (48, 24))
    expected = numpy(at_image_size(fixed, (48, 24), method)(images))
    for size in (ANY, (48, 24)):
        options = {"image_size": size, "position_embedding_method": method}
        loaded = keras_vit.load_model(one, **options)
        assert loaded.input_shape[1:3] == size
        close(loaded(images), expected)
        randomize(loaded)
        keras_vit.load_released_weights(loaded, one, position_embedding_method=method)
        close(loaded(images), expected)


def test_attention_outside_of_blocks_knows_the_size_too():
    images = keras.Input((16, 24, 3))
    attention = layers.SelfAttention(2, positions=layers.RotaryPositions("eva", (2, 3)))
    model = keras.Model(images, attention(layers.PatchEncoder(8, 16)(images)))
    assert own_image_size(at_image_size(model, ANY)) == (16, 24)


def test_a_model_built_for_any_size_is_of_about_224():
    # As near as whole patches are.
    for config, side in ((PLAIN, 224), (keras_vit.ViTConfig(24, 1, 3, 40, 60), 240)):
        model = keras_vit.VisionTransformer(config, image_size=[None, None], classes=5)
        assert own_image_size(model) == (side, side)
    model = keras_vit.ViT_Ti16(weights=None, image_size=ANY, include_top=False)
    assert model.input_shape == (None, None, None, 3)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("plain", "mixed_bfloat16"),
        ("rotary, attention pooling", "mixed_bfloat16"),
        ("plain", "float16"),
        ("rows and columns before every block", "bfloat16"),
        ("relative biases", "float64"),
    ],
)
def test_resized_weights_keep_their_dtype(kind, dtype):
    fixed = small_models.made(**small_models.MODELS[kind], dtype=dtype)
    of_any_size = at_image_size(fixed, ANY)
    exact = small_models.made(**small_models.MODELS[kind])
    exact.set_weights([numpy(weight) for weight in fixed.weights])
    for size in SIZES:
        resized, wanted = (at_image_size(model, size) for model in (fixed, exact))
        for one, other in zip(resized.weights, wanted.weights, strict=True):
            stored = "float32" if dtype.startswith("mixed") else dtype
            is_head = one.path[:4] == "head" and dtype != "float64"
            assert one.dtype == ("float32" if is_head else stored)
            tolerance = {"float16": 2e-3, "bfloat16": 1e-2}.get(one.dtype, 1e-5)
            np.testing.assert_allclose(numpy(one), numpy(other), atol=tolerance)
        images = images_of(resized, size)
        expected = resized(images)
        assert of_any_size(images).dtype == expected.dtype
        tolerance = 2e-6 if dtype == "float64" or size == SIZE else 3e-2
        close(of_any_size(images), expected, tolerance)


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


WRAPPERS = [
    (functional, "rows and columns before every block"),
    (functional, "int8"),
    (sequential, "hybrid"),
    (twice, "plain"),
]


@pytest.mark.parametrize("size", [(64, 40), ANY])
@pytest.mark.parametrize(("wrap", "kind"), WRAPPERS)
def test_wrappers_compute_what_the_model_in_them_does(wrap, kind, size):
    if kind == "int8":
        model = keras_vit.quantize_weights(small_models.shared())
    else:
        model = small_models.shared(kind)
    wrapper = wrap(model)
    found = at_image_size(wrapper, size, "bilinear")
    if size != ANY:
        assert type(found) is type(wrapper)
    assert found.input_shape == (None, *size, 3)
    inner = at_image_size(model, (64, 40), "bilinear")
    # The original is as it was.
    for outer, within, shape in ((found, inner, (64, 40)), (wrapper, model, SIZE)):
        images = normal((2, *shape, 3))
        expected = within((4.0 if wrap is twice else 2.0) * images)
        if wrap is not sequential:
            expected = wrapper.get_layer("new_head")(expected)
        np.testing.assert_allclose(numpy(outer(images)), numpy(expected), atol=1e-5)


def test_behind_a_layer_that_changes_the_size():
    images, crop = keras.Input((40, 56, 3)), keras.layers.Cropping2D(4)
    inner = small_models.shared()
    found = at_image_size(keras.Model(images, inner(crop(images))), 32)
    images = images_of(found, (32, 32))
    close(found(images), at_image_size(inner, 24)(crop(images)), 1e-5)


@pytest.mark.parametrize("size", [SIZE, ANY])
def test_frozen_and_low_rank_weights_stay(size):
    fixed = small_models.made()
    fixed.get_layer("encoder_block_0").attention.query.enable_lora(2, lora_alpha=6)
    fixed.get_layer("head").enable_lora(3, lora_alpha=1)
    randomize(fixed)
    fixed.get_layer("encoder_block_1").mlp.trainable = False
    frozen = small_models.made()
    frozen.trainable = False
    frozen.get_layer("encoder_block_1").mlp.trainable = True
    for model in (fixed, frozen, functional(frozen)):
        for copy in (at_image_size(model, size), at_image_size(model, 64)):
            assert flags(copy) == flags(model)
        images = images_of(model, SIZE)
        close(at_image_size(model, size)(images), model(images))
    assert not copy.get_layer(frozen.name).trainable


def test_training_at_several_sizes():
    options = small_models.MODELS["relative biases"] | {"remat": True}
    model = at_image_size(small_models.made(**options), ANY)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # XLA would compile for each size.
    model.compile("sgd", loss, jit_compile=False)
    for size in SIZES:
        before = [numpy(weight) for weight in model.trainable_weights]
        model.fit(images_of(model, size), np.array([1, 3]), verbose=0)
        for old, new in zip(before, model.trainable_weights, strict=True):
            # No gradient: a softmax cancels the bias of keys that are not turned.
            if new.path.split("/")[-2:] != ["key", "bias"]:
                assert (old != numpy(new)).any(), new.path


def test_features_of_any_size(plain):
    chosen = (0, -1, "class_token", "pooled")
    model = keras_vit.features(plain, layers=chosen)
    assert model.output["layer_0"].shape == (None, None, None, 24)
    fixed = at_image_size(small_models.shared(), (48, 24))
    wanted = keras_vit.features(fixed, layers=chosen)
    images = images_of(plain, (48, 24))
    for one in (model, at_image_size(model, (48, 24))):
        found = one(images)
        for name, expected in wanted(images).items():
            close(found[name], expected)
    without = small_models.positions("none")["config"]
    without = keras_vit.VisionTransformer(without, image_size=ANY)
    assert keras_vit.features(without)(images)["layer_1"].shape == (2, 6, 3, 24)


def test_what_is_inside_at_any_size(plain):
    fixed = at_image_size(small_models.shared(), (48, 24))
    images = images_of(plain, (48, 24))
    for see in (
        explain.attention_maps,
        explain.gradient_attention,
        explain.attention_distance,
        lambda *given: explain.token_features(*given).patches,
        lambda model, _: explain.position_embedding_similarity(
            model if model is plain else small_models.shared()
        ),
    ):
        close(see(plain, images), see(fixed, images))


def test_photos_of_any_size(plain):
    photos = np.random.default_rng(0).integers(0, 256, (3, 50, 70, 3), "uint8")
    names = {"class_names": list("abcde"), "top": 1}
    for size, options in ((SIZE, {}), ((48, 24), {"image_size": (48, 24)})):
        fixed = at_image_size(small_models.shared(), size)
        close(keras_vit.embed(plain, photos, **options), keras_vit.embed(fixed, photos))
        found = keras_vit.classify(plain, photos, **names, **options)
        wanted = keras_vit.classify(fixed, photos, **names)
        assert [best[0][:2] for best in found] == [best[0][:2] for best in wanted]


def test_images_that_do_not_fit_are_refused(plain):
    images, photos = images_of(plain, (48, 50)), np.zeros((3, 50, 70, 3), "uint8")
    for call, *parts in (
        (lambda: plain(images), "multiples of the patch size 8x8, got 48x"),
        (lambda: plain.predict(images, verbose=0), "patch size 8x8, got 48x"),
        (lambda: keras_vit.Predictor(plain)(images), "multiples of 8 and 8, got 48x50"),
        (lambda: explain.attention_maps(plain, images), "8 and 8, got 48x50"),
        (lambda: keras_vit.embed(plain, photos, image_size=50), "8 and 8, got 50x50"),
        (
            lambda: keras_vit.embed(small_models.shared(), photos, image_size=48),
            "images of 32x48 alone",
            "at_image_size",
        ),
    ):
        check_refusal(call, *parts)


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
)
def test_each_block_has_positions_of_its_own(others):
    others = type(others).from_config(others.get_config())
    fixed = blocks_of(layers.RotaryPositions("eva", (4, 6)), others)
    model = at_image_size(fixed, ANY)
    runtime = keras_vit.Predictor(fixed, engine="onnxruntime")
    close(runtime(images_of(fixed, SIZE)), fixed(images_of(fixed, SIZE)), 1e-5)
    for size, method in ((SIZE, None), ((48, 24), None), ((48, 24), "bilinear")):
        images = images_of(model, size)
        wanted = at_image_size(fixed, size, method)(images)
        close(at_image_size(model, ANY, method)(images), wanted)


def test_embeddings_of_a_square_grid_at_any_size():
    images = keras.Input((32, 32, 3))
    tokens = keras_vit.ClassToken()(keras_vit.PatchEncoder(8, 24)(images))
    fixed = keras.Model(images, keras_vit.AddPositionEmbs()(tokens))
    randomize(fixed)
    model = at_image_size(fixed, ANY)
    for size in ((32, 32), (48, 24)):
        images = images_of(model, size)
        close(model(images), at_image_size(fixed, size)(images))


def test_each_grid_of_patches_is_of_its_own_input_and_patches():
    images = keras.Input((*SIZE, 3))
    half = keras.layers.AveragePooling2D(2)(images)
    tokens = keras_vit.PatchEncoder(8, 24)(images)
    grids = [
        layers.PatchGrid(size, name=f"grid_{place}")(pixels)
        for place, (size, pixels) in enumerate([(4, images), (8, half), (8, images)])
    ]
    outputs = keras_vit.AddPositionEmbs((4, 6))(tokens)
    model = at_image_size(keras.Model(images, [outputs, *grids]), ANY)
    found = model(images_of(model, (48, 24)))
    assert [tuple(grid.shape) for grid in found[1:]] == [(12, 6), (3, 1), (6, 3)]
