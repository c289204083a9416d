import dataclasses
import functools
import sys
import tracemalloc
import warnings

import keras
import numpy as np
import pytest
from harness import numpy

import keras_vit
import zoo
from keras_vit import VisionTransformer, ViTConfig

GOLDENS = (
    "token",
    "pre_logits",
    "gap",
    "non_square",
    "hybrid_stem",
    "hybrid_three_stages",
)
# The backends' convolutions and products differ in the last bits.
LOGITS_TOLERANCE = 2e-5 if keras.backend.backend() == "tensorflow" else 1e-4


def config_of(entry):
    names = ("hidden_size", "num_layers", "num_heads", "mlp_dim", "patch_size")
    config = {name: entry[name] for name in names}
    if entry["resnet_stages"] is not None:
        config["resnet_stages"] = entry["resnet_stages"]
        config["resnet_width"] = entry["resnet_width"]
    return ViTConfig(**config)


@pytest.fixture(scope="module")
def load(goldens, golden_index):
    """Returns the model of a golden from its own file or another; not to be changed."""

    @functools.cache
    def load(name, file=None, **kwargs):
        entry = golden_index[name]
        if name == "non_square":
            kwargs.setdefault("image_size", entry["image_size"])
        kwargs.setdefault("pooling", entry["classifier"])
        path = goldens / f"{file or name}.npz"
        return VisionTransformer(config_of(entry), path, **kwargs)

    return load


@pytest.fixture(scope="module")
def expected(goldens):
    @functools.cache
    def expected(name):
        with np.load(goldens / f"{name}.expected.npz") as arrays:
            return dict(arrays)

    return expected


def same_arrays(path, other):
    first, second = np.load(path), np.load(other)
    assert set(first) <= set(second)
    # Ours states a grid that is not square, which the released naming cannot.
    assert set(second) - set(first) <= {"Transformer/posembed_input/grid_size"}
    for key in first:
        assert first[key].dtype == second[key].dtype == np.float32, key
        np.testing.assert_array_equal(first[key], second[key], key, strict=True)


def assert_close(found, expected, tolerance=LOGITS_TOLERANCE):
    np.testing.assert_allclose(numpy(found), expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", GOLDENS)
def test_goldens(name, load, expected, golden_index):
    entry, values = golden_index[name], expected(name)
    model = load(name)
    assert model.input_shape == (None, *entry["image_size"], 3)
    assert model.output_shape == (None, entry["classes"])
    assert_close(model(values["images"]), values["logits"])


HEADLESS = {"include_top": False}
PRE_LOGITS = HEADLESS | {"representation_size": 32}
FEATURES = {
    "logits": lambda values: values["logits"],
    "pre-logits": lambda values: values["pre_logits"],
    "tokens": lambda values: values["tokens"],
    "class token": lambda values: values["tokens"][:, 0],
    "mean": lambda values: values["tokens"].mean(axis=1),
    "patches": lambda values: values["tokens"][:, 1:].mean(axis=1),
}


@pytest.mark.parametrize(
    ("name", "options", "answer"),
    [
        ("pre_logits", {"classes": 21}, "logits"),
        ("pre_logits", PRE_LOGITS, "pre-logits"),
        ("pre_logits", HEADLESS, "class token"),
        ("pre_logits", HEADLESS | {"pooling": None}, "tokens"),
        ("gap", HEADLESS, "mean"),
        ("hybrid_stem", HEADLESS | {"pooling": "gap"}, "patches"),
    ],
)
def test_heads_and_poolings_of_a_file(name, options, answer, load, expected):
    values = expected(name)
    model = load(name, **options)
    assert_close(model(values["images"]), FEATURES[answer](values))


def test_other_inputs_are_folded_into_the_patch_embedding(load, goldens, expected):
    mean, std = (0.485, 0.4, 0.3), (0.229, 0.3, 0.5)
    checkpoint = zoo.read(
        goldens / "token.npz", semantics=ViTConfig(input_mean=mean, input_std=std)
    )
    folded = keras_vit.load_model(checkpoint)
    # The arrays take what the released model takes.
    taken = expected("token")["images"]
    images = 2 * (taken * np.array(std) + np.array(mean)) - 1
    found = folded(images.astype("float32"))
    assert_close(found, numpy(load("token")(taken)))


def test_another_image_size(load, expected):
    values = expected("token_resized_48")
    model = load("token", image_size=48)
    embedding = model.get_layer("position_embedding").position_embedding
    assert_close(embedding, values["pos_embedding"], 1e-6)
    assert_close(model(values["images"]), values["logits"])


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "lanczos3"])
def test_other_ways_to_resize(method, load, goldens):
    model = load("token", image_size=(48, 64), position_embedding_method=method)
    embedding = numpy(model.get_layer("position_embedding").position_embedding)
    key = "Transformer/posembed_input/pos_embedding"
    stored = np.load(goldens / "token.npz")[key]
    expected = zoo.resize(stored, (4, 4), (6, 8), method)
    released = zoo.resize(stored, (4, 4), (6, 8))
    np.testing.assert_array_equal(embedding, expected)
    assert np.abs(expected - released).max() > 0.01
    with pytest.raises(ValueError, match="unknown method 'cubic'.*bicubic"):
        load("token", image_size=48, position_embedding_method="cubic")


@pytest.mark.parametrize("name", GOLDENS)
def test_save_released_weights_gives_back_the_file(name, load, goldens, tmp_path):
    keras_vit.save_released_weights(load(name), tmp_path / "saved.npz")
    same_arrays(goldens / f"{name}.npz", tmp_path / "saved.npz")
    # It loads without being told the image size, even the one that is not square.
    kwargs = {"pooling": "gap"} if name == "gap" else {}
    again = VisionTransformer(load(name).config, tmp_path / "saved.npz", **kwargs)
    assert again.input_shape == load(name).input_shape
    for first, second in zip(load(name).weights, again.weights, strict=True):
        np.testing.assert_array_equal(numpy(first), numpy(second))


def test_a_new_head_is_of_zeros_on_the_features_of_the_file(load, expected):
    values = expected("pre_logits")
    assert load("pre_logits").get_layer("pre_logits").units == 32
    for options, name in (({}, "class token"), (PRE_LOGITS, "pre-logits")):
        model = load("pre_logits", **options | {"classes": 5, "include_top": True})
        np.testing.assert_array_equal(numpy(model(values["images"])), np.zeros((2, 5)))
        features = keras.Model(model.input, model.get_layer("head").input)
        assert_close(features(values["images"]), FEATURES[name](values))


def test_a_head_that_is_missing_is_asked_for(load, tmp_path):
    path, model = tmp_path / "headless.npz", load("token", include_top=False)
    keras_vit.save_released_weights(model, path)
    config = model.config
    with pytest.raises(ValueError, match="no head: pass classes=K"):
        VisionTransformer(config, path)
    assert VisionTransformer(config, path, classes=3).output_shape == (None, 3)


def test_a_head_of_zeros_is_told_in_one_line(goldens, load, tmp_path):
    arrays, path = dict(np.load(goldens / "token.npz")), tmp_path / "zero.npz"
    for key in ("head/kernel", "head/bias"):
        arrays[key] *= 0
    np.savez(path, **arrays)
    config = load("token").config
    with pytest.warns(UserWarning) as record:
        VisionTransformer(config, path)
    (message,) = (str(warning.message) for warning in record)
    for part in (str(path), "all zeros", "classes=K", "include_top=False"):
        assert part in message and "\n" not in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VisionTransformer(config, path, classes=3)
        VisionTransformer(config, path, include_top=False)


@pytest.mark.parametrize(
    ("name", "arguments", "what"),
    [
        ("token", {}, "head was"),
        ("pre_logits", {}, "head was"),
        ("pre_logits", {"classes": 3, "representation_size": 32}, "pre_logits were"),
        ("pre_logits", PRE_LOGITS, "pre_logits were"),
    ],
)
def test_gap_refuses_what_was_trained_on_the_class_token(name, arguments, what, load):
    message = f'The {what} trained on the class token in .*pooling="token".*new head'
    with pytest.raises(ValueError, match=message):
        load(name, pooling="gap", **arguments)


def test_a_class_token_is_not_lost_in_silence(load, goldens, golden_index, tmp_path):
    config, path = config_of(golden_index["token"]), goldens / "token.npz"
    with pytest.raises(ValueError, match='Missing in the file: cls.*pooling="gap"'):
        load("gap", pooling="token")
    model = VisionTransformer(config, image_size=32, pooling="gap", classes=3)
    with pytest.raises(ValueError, match='Left over: cls.*no class token: .*"gap"'):
        keras_vit.load_released_weights(model, path, new_head=True)
    other = load.__wrapped__("token", pooling="gap", classes=3)
    keras_vit.load_released_weights(other, path)
    keras_vit.save_released_weights(model, tmp_path / "gap.npz")
    with pytest.raises(ValueError, match="Missing in the file: cls"):
        keras_vit.load_released_weights(other, tmp_path / "gap.npz", new_head=True)


def test_files_cannot_say_that_a_head_is_on_the_patches(load, tmp_path):
    path, model = tmp_path / "saved.npz", load("token", pooling="gap", classes=3)
    with pytest.raises(zoo.CheckpointError, match="its head reads 'gap'.*safetensors"):
        keras_vit.save_released_weights(model, path)
    assert not path.exists()


def test_gray_images(load):
    rng = np.random.default_rng(0)
    gray = rng.uniform(-1, 1, (2, 32, 32, 1)).astype("float32")
    expected = numpy(load("token")(np.repeat(gray, 3, axis=-1)))
    found = numpy(load("token", channels=1)(gray))
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=LOGITS_TOLERANCE, rtol=0)
    # Standardised kernels cannot be summed.
    with pytest.raises(ValueError, match="conv_root/kernel .7, 7, 3, 32."):
        load("hybrid_stem", channels=1)


def test_missing_and_left_over_keys_are_listed(load, goldens):
    missing = r"(?s)pre_logits/bias.*pre_logits/kernel.*representation_size=None"
    with pytest.raises(ValueError, match=missing):
        load("token", representation_size=32)
    config = load("pre_logits").config
    model = VisionTransformer(config, image_size=32, classes=21)
    left = r"(?s)Left over: pre_logits/bias, pre_logits/kernel.*_size=32"
    with pytest.raises(ValueError, match=left):
        keras_vit.load_released_weights(model, goldens / "pre_logits.npz")


@pytest.mark.parametrize(
    ("name", "change", "difference"),
    [
        ("token", {"hidden_size": 96}, "hidden_size 48 (the model has 96)"),
        ("token", {"num_layers": 2}, "num_layers 3 (the model has 2)"),
        ("token", {"num_heads": 6}, "num_heads 3 (the model has 6)"),
        ("token", {"mlp_dim": 97}, "mlp_dim 96 (the model has 97)"),
        ("token", {"patch_size": 16}, "patch_size 8 (the model has 16)"),
        ("token", {"resnet_stages": ()}, "resnet_stages None (the model has ())"),
        ("hybrid_stem", {"resnet_width": 64}, "resnet_width 32 (the model has 64)"),
        (
            "hybrid_three_stages",
            {"resnet_stages": (2, 1)},
            "resnet_stages (2, 1, 1) (the model has (2, 1))",
        ),
    ],
)
def test_another_architecture(name, change, difference, goldens, golden_index):
    config = dataclasses.replace(config_of(golden_index[name]), **change)
    with pytest.raises(ValueError) as error:
        VisionTransformer(config, goldens / f"{name}.npz")
    assert difference in str(error.value)
    assert str(error.value).count("(the model has") == 1


def test_a_grid_that_is_not_square_is_asked_for(load, goldens, golden_index):
    config = config_of(golden_index["non_square"])
    with pytest.raises(ValueError, match="28 positions.*image_size=.height, width."):
        VisionTransformer(config, goldens / "non_square.npz")
    with pytest.raises(ValueError, match="28 positions.*a grid of 4x8"):
        load("non_square", image_size=(32, 64))


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("pre_logits", {"classes": 21}),  # with arrays left over
        ("pre_logits", {"classes": 3, "representation_size": 7}),
        ("damaged", {"classes": 21, "representation_size": 32}),
    ],
)
def test_a_failed_load_changes_nothing(file, options, load, goldens, tmp_path):
    contents = bytearray((goldens / "pre_logits.npz").read_bytes())
    if file == "damaged":
        # The last array before the directory at the end.
        contents[contents.index(b"PK\x01\x02") - 1] ^= 1
    path = tmp_path / "model.npz"
    path.write_bytes(contents)
    model = VisionTransformer(load("pre_logits").config, image_size=32, **options)
    before = model.get_weights()
    with pytest.raises(ValueError):
        keras_vit.load_released_weights(model, path)
    for found, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(found, value)


def test_load_released_weights(load, goldens, expected):
    values = expected("token")
    config = load("token").config
    model = VisionTransformer(config, image_size=32, classes=10)
    keras_vit.load_released_weights(model, goldens / "token.npz")
    assert_close(model(values["images"]), values["logits"])
    # Without the file's head the model keeps its own, here of zeros.
    model = VisionTransformer(config, image_size=32, classes=10)
    keras_vit.load_released_weights(model, goldens / "token.npz", new_head=True)
    np.testing.assert_array_equal(numpy(model(values["images"])), 0)


def test_loading_holds_few_arrays_at_a_time(tmp_path):
    config = ViTConfig(256, num_layers=8, num_heads=4, mlp_dim=1024, patch_size=8)
    model = VisionTransformer(config, image_size=32, classes=10)
    path = keras_vit.save_released_weights(model, tmp_path / "model.npz")
    tracemalloc.start()
    try:
        keras_vit.load_released_weights(model, path, new_head=True)
        # TensorFlow may keep an array as the memory of the variable that it goes into.
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - kept < 0.3 * path.stat().st_size


def test_the_variant_of_a_release_is_the_models_own(monkeypatch):
    asked = []

    def resolve(release, variant=None):
        asked.append(variant)
        raise zoo.CatalogError("told")

    monkeypatch.setattr(sys.modules["zoo.catalog.locate"], "resolve", resolve)
    model = VisionTransformer("ViT-Ti_16", image_size=32, classes=2)
    own = VisionTransformer(ViTConfig(24, 1, 3, 40, 8), image_size=32, classes=2)
    for one, options in ((model, {}), (model, {"variant": "ViT-S_16"}), (own, {})):
        with pytest.raises(zoo.CatalogError, match="told"):
            keras_vit.load_released_weights(one, "augreg-imagenet21k", **options)
    assert asked == ["ViT-Ti_16", "ViT-S_16", None]


def test_released_tiny(shared):
    values = np.load(shared / "weights" / "ViT-Ti_16.expected.npz")
    path = shared / "weights" / "ViT-Ti_16-augreg-imagenet21k+imagenet2012-224.npz"
    images = keras_vit.preprocess_input(values["images"])
    assert_close(keras_vit.ViT_Ti16(path)(images), values["logits"], 2e-4)


# The file and the model compute different numbers


@pytest.fixture
def exact(goldens, tmp_path):
    """A file of another activation and epsilon than those of released ones."""
    path = tmp_path / "exact.safetensors"
    said = ViTConfig.released(activation="gelu", layer_norm_epsilon=1e-5)
    zoo.write(path, zoo.read(goldens / "token.npz").arrays, semantics=said)
    return path


def test_the_model_computes_as_the_file_says_and_keeps_it(exact, expected, tmp_path):
    model, images = keras_vit.load_model(exact), expected("token")["images"]
    block = model.get_layer("encoder_block_1")
    assert (block.mlp.activation, block.mlp_norm.epsilon) == ("gelu", 1e-5)
    assert model.get_layer("encoder_norm").epsilon == 1e-5
    with pytest.raises(zoo.CheckpointError, match="an .npz cannot say activation"):
        keras_vit.save_released_weights(model, tmp_path / "own.npz")
    keras_vit.save_released_weights(model, tmp_path / "own.safetensors")
    again = keras_vit.load_model(tmp_path / "own.safetensors")
    np.testing.assert_array_equal(numpy(again(images)), numpy(model(images)))


def test_a_config_or_a_model_that_computes_otherwise_is_refused(exact, golden_index):
    config = config_of(golden_index["token"])
    VisionTransformer(dataclasses.replace(config, activation="gelu"), exact)
    other = dataclasses.replace(config, activation="gelu_tanh")
    with pytest.raises(ValueError, match="'gelu' .the ViTConfig has 'gelu_tanh'"):
        VisionTransformer(other, exact)
    model = VisionTransformer(config, image_size=32, classes=10)
    with pytest.raises(ValueError, match=r"activation 'gelu' .the model has"):
        keras_vit.load_released_weights(model, exact)
    same = dataclasses.replace(config, activation="gelu", layer_norm_epsilon=1e-5)
    model = VisionTransformer(same, image_size=32, classes=10)
    keras_vit.load_released_weights(model, exact)


def test_inputs_of_a_hybrid_cannot_change(goldens, golden_index):
    said = ViTConfig.released(input_mean=(0.485, 0.4, 0.3))
    checkpoint = zoo.read(goldens / "hybrid_stem.npz", semantics=said)
    with pytest.raises(ValueError, match="0.485.*standardises its kernels"):
        VisionTransformer(config_of(golden_index["hybrid_stem"]), checkpoint)
