"""The one description of a network."""

import dataclasses
import json

import numpy as np
import pytest
from peer_files import golden
from scipy import special

import zoo
from zoo.libraries import description
from zoo.network import RELEASED, SIZES
from zoo.network.head import softmax

TOKEN = zoo.ViTConfig(48, 3, 3, 96, 8)
STEM = zoo.ViTConfig(48, 2, 3, 96, 2, resnet_stages=(), resnet_width=32)


def test_as_released_but_for_some_values():
    said = zoo.ViTConfig.released(
        activation="gelu", layer_norm_epsilon=1e-5, input_std=[1, 2, 3]
    )
    assert (said.activation, said.layer_norm_epsilon) == ("gelu", 1e-5)
    assert (said.input_std, said.resnet_padding) == ((1.0, 2.0, 3.0), "same")
    changed = {"activation", "layer_norm_epsilon", "input_std"}
    assert said.differences(zoo.ViTConfig.released()).keys() == changed
    with pytest.raises(TypeError, match="takes no hidden_size: pass num_heads"):
        zoo.ViTConfig.released(hidden_size=3)
    with pytest.raises(ValueError, match="layer_norm_epsilon, input_std must have a"):
        zoo.ViTConfig.released(layer_norm_epsilon=None, input_std=None)


def test_what_is_none_is_as_the_file_says():
    file = dataclasses.replace(TOKEN.completed(), activation="gelu")
    assert zoo.ViTConfig().completed(file) == file
    config = zoo.ViTConfig(mlp_dim=7, activation="gelu").completed(file)
    assert config == dataclasses.replace(file, mlp_dim=7)
    hybrid = STEM.completed()
    assert zoo.ViTConfig().completed(hybrid) == hybrid
    # A patch size of its own means a stem of its own.
    assert TOKEN.completed(hybrid).resnet_stages is None
    assert TOKEN.completed().computed == RELEASED
    with pytest.raises(ValueError, match="no num_layers, num_heads, mlp_dim: pass all"):
        zoo.ViTConfig(hidden_size=48, patch_size=8).completed()
    with pytest.raises(ValueError, match="a computes other .*activation 'gelu' .the"):
        zoo.ViTConfig(activation="gelu_tanh").completed(file, "a")


def test_what_a_plain_network_has_no_use_for_is_not_compared():
    file = dataclasses.replace(TOKEN.completed(), resnet_epsilons="timm")
    assert zoo.ViTConfig(resnet_epsilons="released").completed(file).num_layers == 3
    file = dataclasses.replace(STEM.completed(), resnet_epsilons="timm")
    with pytest.raises(ValueError, match="resnet_epsilons 'timm' .the ViTConfig has"):
        zoo.ViTConfig(resnet_epsilons="released").completed(file)


def test_a_checkpoint_has_the_whole_description(tmp_path):
    checkpoint = golden()
    assert checkpoint.config == TOKEN.completed()
    assert checkpoint.image_size == (32, 32)
    path = tmp_path / "a.safetensors"
    zoo.write(path, checkpoint, semantics=zoo.ViTConfig(activation="gelu"))
    released = zoo.ViTConfig.released
    assert zoo.read(path).semantics == released(activation="gelu")
    own = zoo.ViTConfig(layer_norm_epsilon=1e-5)
    again = zoo.read(path, semantics=own)
    said = {"activation": "gelu", "layer_norm_epsilon": 1e-5}
    assert again.semantics == released(**said)
    assert zoo.read(path, semantics=released()).semantics == released()
    zoo.write(path, again, semantics=zoo.ViTConfig(input_mean=(0, 0, 0)))
    assert zoo.read(path).semantics == released(**said, input_mean=(0, 0, 0))
    with pytest.raises(zoo.CheckpointError, match="num_heads 4 .the arrays have 3"):
        zoo.read(path, semantics=zoo.ViTConfig(num_heads=4))


def test_headers_are_those_of_the_versions_before():
    entry = {
        "semantics": {
            "activation": "gelu",
            "layer_norm_epsilon": 1e-06,
            "input_mean": [0.5, 0.5, 0.5],
            "input_std": [0.5, 0.5, 0.5],
            "resnet_padding": "same",
            "resnet_epsilons": "released",
        },
        "num_heads": 3,
        "grid_size": [4, 7],
    }
    header = {"format": "pt", "keras_vit": json.dumps(entry)}
    found = description.from_metadata(header, "a.safetensors")
    assert found.config.semantics == zoo.ViTConfig.released(activation="gelu")
    assert (found.config.num_heads, found.grid_size) == (3, (4, 7))
    assert description.to_metadata(found) == header


def test_sizes_are_what_published_models_write():
    assert tuple(zoo.VARIANTS["R50+ViT-B_16"].sizes) == SIZES
    sizes = zoo.VARIANTS["R50+ViT-B_16"].sizes
    assert zoo.ViTConfig(**json.loads(json.dumps(sizes))).sizes == sizes
    assert zoo.ViTConfig(**sizes) == zoo.VARIANTS["R50+ViT-B_16"]


def test_parameters_of_images_that_are_not_square():
    square, wide = (TOKEN.count_parameters(size, 5) for size in (32, (32, 48)))
    assert wide - square == 8 * 48
    assert square - TOKEN.count_parameters(32, 5, class_token=False) == 2 * 48
    with_layer = TOKEN.count_parameters(32, 5, representation_size=10)
    assert with_layer - square == 48 * 10 + 10 - (48 - 10) * 5


def test_parameters_of_relative_positions():
    beit = dataclasses.replace(
        zoo.VARIANTS["ViT-B_16"],
        layer_scale=True,
        qkv_bias="query and value",
        norm_after_pooling=True,
        relative_position_bias=True,
        tokens_with_positions="none",
    )
    # As timm counts beit_base_patch16_224 and beit_base_patch16_384.
    assert beit.count_parameters(224, 1000) == 86530984
    assert beit.count_parameters(384, 1000) == 86744104


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        *(
            ({"layer_norm_epsilon": value}, "layer_norm_epsilon must be a positive num")
            for value in ("1e-6", True, float("nan"), 1e39, 10**400, 0)
        ),
        ({"activation": "relu"}, "activation"),
        ({"input_mean": 0.5}, "input_mean"),
        ({"input_mean": ()}, "input_mean"),
        ({"input_std": (0.5, 0.5, 0.0)}, "input_std"),
        ({"input_std": (0.5, 0.5)}, "input_std"),
        ({"resnet_padding": "valid"}, "resnet_padding"),
        ({"resnet_epsilons": "torch"}, "resnet_epsilons"),
        ({"resnet_stages": (3, 4, 9)}, "resnet_stages and resnet_width go with"),
        (
            {"relative_position_bias": True, "rotary": "eva"},
            "relative_position_bias=True and rotary='eva' are positions of attention",
        ),
    ],
)
def test_values_that_no_network_computes_with_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        dataclasses.replace(zoo.ViTConfig.released(), **fields)


@pytest.mark.parametrize("size", [10**400, 2**31, float("inf"), float("nan")])
def test_a_size_that_no_array_has_is_named(size):
    with pytest.raises(ValueError, match=r"^hidden_size must be .{,200}$"):
        zoo.ViTConfig(size, 1, 1, 4, 8)
    with pytest.raises(ValueError, match=r"^image_size must be .{,200}$"):
        TOKEN.grid_size(size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_is_that_of_scipy_also_of_large_logits(dtype):
    logits = np.random.default_rng(0).normal(size=(3, 4, 7)).astype(dtype)
    # Large logits alone would give each row a single class.
    logits[1:] *= 1000
    before = logits.copy()
    found = softmax(logits)
    assert found.dtype == dtype
    np.testing.assert_array_equal(logits, before)
    expected = special.softmax(logits, axis=-1)
    np.testing.assert_allclose(found, expected, atol=np.finfo(dtype).eps)
