import dataclasses
import functools
import inspect
import re

import keras
import numpy as np
import pytest
from harness import normal, numpy, randomize
from keras import ops

import keras_vit
import zoo
from keras_vit import VARIANTS, VisionTransformer, ViTConfig

# 1000 classes, 224x224, no pre_logits: `models_test.py` of the released code.
PARAMETERS = {
    "ViT-Ti_16": 5_717_416,
    "ViT-S_16": 22_050_664,
    "ViT-S_32": 22_878_952,
    "ViT-B_8": 86_576_872,
    "ViT-B_16": 86_567_656,
    "ViT-B_32": 88_224_232,
    "ViT-L_16": 304_326_632,
    "ViT-L_32": 306_535_400,
    "ViT-H_14": 632_045_800,
    "R+ViT-Ti_16": 6_337_704,
    "R26+ViT-S_32": 36_431_912,
    "R26+ViT-B_32": 101_383_976,
    "R50+ViT-B_16": 98_659_112,
    "R50+ViT-L_32": 328_994_856,
}
# Those that are built with all their blocks.
WHOLE = ("ViT-S_16", "R+ViT-Ti_16")
FUNCTIONS = {
    name: getattr(keras_vit, re.sub("[+-]", "_", name.replace("_", "")))
    for name in PARAMETERS
}
PLAIN = ViTConfig(hidden_size=24, num_layers=3, num_heads=3, mlp_dim=40, patch_size=8)
HYBRID = dataclasses.replace(
    PLAIN, num_layers=1, patch_size=1, resnet_stages=(2, 1, 1), resnet_width=32
)


@pytest.fixture
def without_memory():
    """Models whose variables are never allocated: up to 2.5 GB each."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session(free_memory=False)


def names(model):
    return [layer.name for layer in model.layers]


@functools.cache
def random_model(*args, **kwargs):
    """Built once for these arguments: not to be changed."""
    model = VisionTransformer(*args, **kwargs)
    randomize(model)
    return model


@pytest.mark.parametrize("variant", PARAMETERS)
def test_parameters_of_the_variants(variant, without_memory, monkeypatch):
    left_out = 0
    if variant not in WHOLE:
        # One block of each, which are all alike.
        left_out = VARIANTS[variant].num_layers - 1
        single = dataclasses.replace(VARIANTS[variant], num_layers=1)
        monkeypatch.setitem(VARIANTS, variant, single)
    model = FUNCTIONS[variant](weights=None)
    block = model.get_layer("encoder_block_0").count_params()
    assert model.count_params() + left_out * block == PARAMETERS[variant]
    assert len(model.trainable_variables) == len(model.weights)
    assert model.input_shape == (None, 224, 224, 3)
    assert model.output_shape == (None, 1000)
    assert model.name == variant.lower().replace("+", "_").replace("-", "_")


# What cards have beyond: pre_logits with the classes of ImageNet-21k, 384 pixels, no
# class token; of plain models and hybrids.
@pytest.mark.parametrize(
    "handle",
    [
        "vit-b32/imagenet21k",
        "vit-ti16/augreg-imagenet21k+imagenet2012",
        "vit-s32-gap-norep/gsam",
        "r26-vit-b32/imagenet21k",
        "r-vit-ti16/augreg-imagenet21k+imagenet2012",
    ],
)
def test_a_card_counts_the_parameters_of_its_model(handle, without_memory):
    card = zoo.get(handle)
    model = VisionTransformer(
        card.variant.removesuffix("-gap-norep"),
        image_size=card.image_size,
        classes=card.classes,
        representation_size=card.representation_size,
        pooling=card.pooling,
    )
    assert model.count_params() == card.parameters


def test_tables_are_whole():
    assert keras_vit.ViTConfig is zoo.ViTConfig
    assert VARIANTS is zoo.VARIANTS
    assert VARIANTS.keys() == PARAMETERS.keys() == FUNCTIONS.keys()
    functions = {function.__name__ for function in FUNCTIONS.values()}
    assert functions < set(keras_vit.__all__)
    for name in functions:
        assert getattr(keras_vit, name).__name__ == name


# Name, size, layers, heads, mlp: paper table 1 and AugReg paper table 2.
@pytest.mark.parametrize(
    ("letter", "numbers"),
    [
        ("Ti", (192, 12, 3, 768)),
        ("S", (384, 12, 6, 1536)),
        ("B", (768, 12, 12, 3072)),
        ("L", (1024, 24, 16, 4096)),
        ("H", (1280, 32, 16, 5120)),
    ],
)
def test_sizes_are_those_of_the_papers(letter, numbers):
    rows = [
        config
        for name, config in VARIANTS.items()
        if name.rpartition("ViT-")[2].partition("_")[0] == letter
    ]
    assert rows
    for row in rows:
        assert dataclasses.astuple(row)[:4] == numbers


@pytest.mark.parametrize(
    ("variant", "grid", "stages"),
    [
        ("ViT-B_8", 28, None),
        ("ViT-B_16", 14, None),
        ("ViT-B_32", 7, None),
        ("ViT-H_14", 16, None),
        # (1, 50, 192) in the released file, whatever the name says.
        ("R+ViT-Ti_16", 7, ()),
        ("R26+ViT-S_32", 7, (2, 2, 2, 2)),
        ("R26+ViT-B_32", 7, (2, 2, 2, 2)),
        ("R50+ViT-B_16", 14, (3, 4, 9)),
        ("R50+ViT-L_32", 7, (3, 4, 6, 3)),
    ],
)
def test_grids_at_224(variant, grid, stages):
    config = VARIANTS[variant]
    assert config.grid_size(224) == (grid, grid)
    assert config.stride == (224 // grid, 224 // grid)
    assert config.resnet_stages == stages
    assert config.is_hybrid == (stages is not None)


def test_one_signature():
    signatures = {inspect.signature(function) for function in FUNCTIONS.values()}
    parameters = {tuple(signature.parameters) for signature in signatures}
    assert len(parameters) == 1
    general = list(inspect.signature(VisionTransformer).parameters)
    assert list(parameters.pop()) == general[1:]


@pytest.mark.parametrize(
    ("config", "image_size", "grid"),
    [
        (PLAIN, 32, (4, 4)),
        (PLAIN, (32, 56), (4, 7)),
        (PLAIN, [8, 24], (1, 3)),
        (dataclasses.replace(PLAIN, patch_size=(8, 4)), (32, 56), (4, 14)),
        (HYBRID, 64, (4, 4)),
        # Each of four halvings rounds up: 50, 25, 13, 7, 4.
        (HYBRID, (50, 81), (4, 6)),
        (dataclasses.replace(HYBRID, resnet_stages=(), patch_size=4), 61, (4, 4)),
    ],
)
def test_grids_of_image_sizes(config, image_size, grid):
    model = VisionTransformer(config, image_size=image_size, classes=2)
    assert config.grid_size(image_size) == grid
    assert model.get_layer("position_embedding").grid_size == grid
    height, width = (image_size,) * 2 if isinstance(image_size, int) else image_size
    tokens = model.get_layer("encoder_block_0").input
    assert tokens.shape == (None, 1 + grid[0] * grid[1], 24)
    assert model(ops.ones((2, height, width, 3))).shape == (2, 2)


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({}, (None, 7)),
        ({"pooling": "gap"}, (None, 7)),
        ({"pooling": None}, (None, 17, 7)),
        ({"representation_size": 5}, (None, 7)),
        ({"include_top": False}, (None, 24)),
        ({"include_top": False, "pooling": "gap"}, (None, 24)),
        ({"include_top": False, "pooling": None}, (None, 17, 24)),
        ({"include_top": False, "representation_size": 5}, (None, 5)),
    ],
)
def test_each_output_follows_from_the_tokens(kwargs, shape):
    if kwargs.get("include_top", True):
        kwargs = {**kwargs, "classes": 7}
    model = random_model(PLAIN, image_size=32, **kwargs)
    assert model.output_shape == shape
    assert ("head" in names(model)) == kwargs.get("include_top", True)
    assert ("pre_logits" in names(model)) == ("representation_size" in kwargs)
    assert ("class_token" in names(model)) == (kwargs.get("pooling") != "gap")
    images = normal((2, 32, 32, 3))
    found = numpy(model(images))

    inside = keras.Model(model.input, model.get_layer("encoder_norm").output)
    expected = numpy(inside(images))
    pooling = kwargs.get("pooling", "token")
    if pooling is not None:
        expected = expected[:, 0] if pooling == "token" else expected.mean(axis=1)
    if "representation_size" in kwargs:
        layer = model.get_layer("pre_logits")
        expected = np.tanh(expected @ numpy(layer.kernel) + numpy(layer.bias))
    if "head" in names(model):
        layer = model.get_layer("head")
        expected = expected @ numpy(layer.kernel) + numpy(layer.bias)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_softmax_gives_probabilities():
    images = normal((2, 32, 32, 3))
    logits = random_model(PLAIN, image_size=32, classes=7)
    softmax = random_model(
        PLAIN, image_size=32, classes=7, classifier_activation="softmax"
    )
    expected = np.exp(numpy(logits(images)))
    expected /= expected.sum(axis=-1, keepdims=True)
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(numpy(softmax(images)), expected, atol=1e-6)


@pytest.mark.parametrize("kwargs", [{}, {"head_bias_init": -6.9}])
def test_a_new_head_is_of_zeros_and_its_bias(kwargs):
    model = VisionTransformer(PLAIN, image_size=32, classes=7, **kwargs)
    expected = np.full((2, 7), np.float32(kwargs.get("head_bias_init", 0.0)))
    logits = numpy(model(normal((2, 32, 32, 3))))
    np.testing.assert_array_equal(logits, expected)


def test_rates_of_dropout_and_stochastic_depth():
    model = VisionTransformer(
        dataclasses.replace(PLAIN, num_layers=5),
        image_size=32,
        dropout_rate=0.1,
        stochastic_depth_rate=0.2,
    )
    assert model.get_layer("dropout").rate == 0.1
    blocks = [model.get_layer(f"encoder_block_{index}") for index in range(5)]
    rates = [block.stochastic_depth_rate for block in blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2])
    for block in blocks:
        assert block.dropout.rate == block.mlp.dropout.rate == 0.1
        assert block.stochastic_depth.rate == block.stochastic_depth_rate
        # As released: none on the attention weights.
        assert block.attention.dropout.rate == 0

    single = dataclasses.replace(PLAIN, num_layers=1)
    model = VisionTransformer(single, image_size=32, stochastic_depth_rate=0.2)
    assert model.get_layer("encoder_block_0").stochastic_depth_rate == 0

    plain = VisionTransformer(PLAIN, image_size=32)
    assert plain.get_layer("dropout").rate == 0
    assert plain.get_layer("encoder_block_2").stochastic_depth_rate == 0


def test_remat_is_kept_in_the_file(tmp_path):
    model = random_model(PLAIN, image_size=32, classes=7, remat=True)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.to_json().count('"remat": true') == 3
    images = normal((2, 32, 32, 3))
    np.testing.assert_allclose(
        numpy(again(images, training=True)), numpy(model(images)), atol=1e-6
    )


def test_names_are_the_same_each_time():
    expected = ["images", "embedding", "class_token", "position_embedding", "dropout"]
    expected += [f"encoder_block_{index}" for index in range(3)]
    expected += ["encoder_norm", "pooling", "pre_logits", "head"]
    models = [
        VisionTransformer(PLAIN, image_size=32, representation_size=8) for _ in "ab"
    ]
    for model in models:
        assert names(model) == expected
        assert model.name == "vision_transformer"
    hybrids = [names(VisionTransformer(HYBRID, image_size=32)) for _ in "ab"]
    assert hybrids[0] == hybrids[1]
    assert hybrids[0][:9] == [
        "images",
        "conv_root",
        "gn_root",
        "root_relu",
        "root_pool",
        "resnet_stage_1_unit_1",
        "resnet_stage_1_unit_2",
        "resnet_stage_2_unit_1",
        "resnet_stage_3_unit_1",
    ]
    assert VisionTransformer(PLAIN, image_size=32, name="mine").name == "mine"


@pytest.mark.parametrize("config", [PLAIN, HYBRID])
@pytest.mark.parametrize("channels", [1, 4])
def test_images_have_as_many_channels_as_asked_for(config, channels):
    model = VisionTransformer(config, image_size=32, classes=7, channels=channels)
    assert model.input_shape == (None, 32, 32, channels)
    assert model(ops.ones((2, 32, 32, channels))).shape == (2, 7)


def test_configurations_compare_by_what_they_say():
    assert dataclasses.replace(PLAIN, patch_size=(8, 8)) == PLAIN
    assert dataclasses.replace(HYBRID, resnet_stages=[2, 1, 1]) == HYBRID
    assert hash(dataclasses.replace(PLAIN, patch_size=[8, 8])) == hash(PLAIN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAIN.hidden_size = 48


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="JAX has no float64 by default"
)
def test_tokens_of_a_wide_hybrid_are_as_in_float64():
    config = dataclasses.replace(VARIANTS["R50+ViT-B_16"], num_layers=1)
    options = {"image_size": 224, "include_top": False, "pooling": None}
    single, double = (
        VisionTransformer(config, dtype=dtype, **options)
        for dtype in ("float32", "float64")
    )
    rng = np.random.default_rng(0)

    def like_released(variable):
        shape = variable.shape
        if variable.path.endswith("gamma"):
            return rng.uniform(0.5, 1.5, shape)
        he = np.sqrt(2 / np.prod(shape[:3]))
        deviation = {1: 0.1, 4: he}.get(len(shape), 0.02)
        return rng.normal(scale=deviation, size=shape)

    weights = [like_released(one).astype("float32") for one in single.weights]
    single.set_weights(weights)
    double.set_weights(weights)
    images = rng.uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    expected = numpy(double(images.astype("float64")))
    assert expected.dtype == "float64"
    found = numpy(single(images))
    assert np.abs(found - expected).max() < 5e-5 * np.abs(expected).max()
