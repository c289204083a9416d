"""Arithmetic and parameters counted from a configuration."""

import pytest

import keras_vit
from benchmarks import families, model_flags, peer_models
from zoo.catalog.families import MODELS


@pytest.mark.parametrize(
    "variant, image_size, billions",
    [
        ("ViT-Ti_16", 224, 1.254),
        ("ViT-B_16", 384, 55.484),
    ],
)
def test_multiply_adds_of_released_variants(variant, image_size, billions):
    config = keras_vit.VARIANTS[variant]
    count = model_flags.multiply_adds(config, image_size, classes=1000)
    assert count == pytest.approx(billions * 1e9, abs=0.0005e9)


def test_multiply_adds_of_a_hybrid_by_hand():
    config = keras_vit.ViTConfig(
        hidden_size=4,
        num_layers=1,
        num_heads=1,
        mlp_dim=4,
        patch_size=1,
        resnet_stages=(2, 1),
        resnet_width=32,
    )
    # The root leaves 16 of 32 pixels a side, its pooling 8, the second stage 4.
    root = 16 * 16 * (7 * 7 * 3 * 32)
    first = 8 * 8 * (32 * 32 + 9 * 32 * 32 + 32 * 128 + 32 * 128)
    second = 8 * 8 * (128 * 32 + 9 * 32 * 32 + 32 * 128)
    halving = 8 * 8 * (128 * 64) + 4 * 4 * (9 * 64 * 64 + 64 * 256 + 128 * 256)
    embedding = 16 * 256 * 4
    block = 17 * (4 * 4 * 4 + 2 * 4 * 4) + 2 * 17 * 17 * 4
    assert model_flags.multiply_adds(config, 32, classes=10) == (
        root + first + second + halving + embedding + block + 4 * 10
    )


def test_multiply_adds_of_another_family_by_hand():
    config = keras_vit.ViTConfig(
        hidden_size=4,
        num_layers=3,
        num_heads=2,
        mlp_dim=5,
        patch_size=2,
        activation="swiglu",
        num_registers=2,
    )
    # Six patches and two registers; a gate and a value.
    embedding = 6 * (2 * 2 * 3 * 4)
    blocks = 3 * (8 * (4 * 4 * 4 + 4 * 10 + 5 * 4) + 2 * 8 * 8 * 4)
    # Keys and values; query and output; scores and sum; the perceptron.
    pooling = 8 * 2 * 4 * 4 + 2 * 4 * 4 + 2 * 8 * 4 + 2 * 4 * 7
    counted = model_flags.multiply_adds(config, (4, 6), 0, False)
    assert counted == embedding + blocks
    counted = model_flags.multiply_adds(config, (4, 6), 0, False, 7)
    assert counted == embedding + blocks + pooling


def test_names_of_other_families():
    for handle, card in MODELS.items():
        # timm has none of those that segment images.
        known = None if card.architecture == "EoMT" else card.architecture
        assert families.architecture_of(handle) == known
    for model, architecture in {
        "vit_base_patch16_siglip_256.v2_webli": "vit_base_patch16_siglip_256",
        "eva02_tiny_patch14_224": "eva02_tiny_patch14_224",
        "ViT-B_16": None,
        "dinov2": None,
    }.items():
        assert families.architecture_of(model) == architecture


def test_outputs_are_those_of_the_encoders_of_keras_hub():
    for architecture, output in {
        "vit_giant_patch14_reg4_dinov2": "tokens",
        "vit_so400m_patch14_siglip_384": "features",
        "vit_base_patch16_siglip_gap_224": None,
        "vit_base_patch16_clip_224": None,
    }.items():
        assert peer_models.keras_hub_output(architecture) == output


def test_setting_is_what_jobs_take():
    setting = model_flags.describe("ViT-Ti_16", 32, 4)
    model = keras_vit.VisionTransformer(
        keras_vit.ViTConfig(**setting.ours["sizes"]), image_size=32
    )
    assert setting.parameters == setting.peers["parameters"] == model.count_params()
    assert setting.ours["batch"] == 4
    one = model_flags.describe("ViT-Ti_16", 32, 1)
    assert setting.operations == 4 * one.operations
    assert model_flags.describe("R+ViT-Ti_16", 32, 1).parameters is None
