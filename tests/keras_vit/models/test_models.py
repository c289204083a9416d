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
from keras_vit import VARIANTS, VisionTransformer, ViTConfig

FUNCTIONS = {
    name: getattr(keras_vit, re.sub("[+-]", "_", name.replace("_", "")))
    for name in VARIANTS
}
# Paper table 1 and AugReg paper table 2.
HEADS = {"Ti": 3, "S": 6, "B": 12, "L": 16, "H": 16}
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


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_are_networks_of_their_rows(variant, without_memory, monkeypatch):
    assert VARIANTS[variant].num_heads == HEADS[re.search(r"ViT-(\w+)_", variant)[1]]
    # One block of each, which are all alike. `tests/zoo/catalog` has the whole numbers.
    single = dataclasses.replace(VARIANTS[variant], num_layers=1)
    monkeypatch.setitem(VARIANTS, variant, single)
    model = FUNCTIONS[variant](weights=None)
    assert model.count_params() == single.count_parameters(224, 1000)
    assert len(model.trainable_variables) == len(model.weights)
    assert model.input_shape == (None, 224, 224, 3)
    assert model.output_shape == (None, 1000)
    assert model.name == variant.lower().replace("+", "_").replace("-", "_")
    arguments = list(inspect.signature(VisionTransformer).parameters)
    assert list(inspect.signature(FUNCTIONS[variant]).parameters) == arguments[1:]


@pytest.mark.parametrize(
    ("config", "image_size", "grid"),
    [
        (PLAIN, [8, 24], (1, 3)),
        (dataclasses.replace(PLAIN, patch_size=(8, 4)), (32, 56), (4, 14)),
        # Each of four halvings rounds up: 50, 25, 13, 7, 4.
        (HYBRID, (50, 81), (4, 6)),
        (dataclasses.replace(HYBRID, resnet_stages=(), patch_size=4), 61, (4, 4)),
    ],
)
def test_grids_of_image_sizes(config, image_size, grid):
    model = VisionTransformer(config, image_size=image_size, classes=2)
    assert config.grid_size(image_size) == grid
    assert model.get_layer("position_embedding").grid_size == grid
    tokens = model.get_layer("encoder_block_0").input
    assert tokens.shape == (None, 1 + grid[0] * grid[1], 24)
    assert model(ops.ones((2, *model.input_shape[1:]))).shape == (2, 2)


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({}, (None, 7)),
        ({"classifier_activation": "softmax"}, (None, 7)),
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
    if "classifier_activation" in kwargs:
        expected = np.exp(expected)
        expected /= expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 5])
def test_rates_and_remat_are_those_of_blocks(count):
    options = {"dropout_rate": 0.1, "stochastic_depth_rate": 0.2, "remat": True}
    config = dataclasses.replace(PLAIN, num_layers=count)
    model = VisionTransformer(config, image_size=32, **options)
    assert model.get_layer("dropout").rate == 0.1
    blocks = [model.get_layer(f"encoder_block_{index}") for index in range(count)]
    rates = [block.stochastic_depth.rate for block in blocks]
    np.testing.assert_allclose(rates, [0, 0.05, 0.1, 0.15, 0.2][:count])
    for block in blocks:
        assert block.dropout.rate == block.mlp.dropout.rate == 0.1
        assert block.remat
        # As released: none on the attention weights.
        assert block.attention.dropout.rate == 0

    plain = VisionTransformer(config, image_size=32)
    block = plain.get_layer(f"encoder_block_{count - 1}")
    assert plain.get_layer("dropout").rate == block.dropout.rate == 0
    assert block.stochastic_depth.rate == 0 and not block.remat
