import functools
from dataclasses import replace

import keras
import numpy as np
import pytest
from harness import global_policy, gradients, normal, numpy, randomize, rms
from keras import ops

from keras_vit import (
    VisionTransformer,
    ViTConfig,
    load_released_weights,
    quantize_weights,
    save_released_weights,
)
from keras_vit.layers import StdConv2D
from keras_vit.layers.int8 import Int8ClassificationHead, Int8Dense, Int8StdConv2D
from keras_vit.models.bit import BiTResNet
from keras_vit.weights.quantization import int8_and_scale, is_quantized
from zoo.network import BiTConfig

PLAIN = ViTConfig(24, num_layers=2, num_heads=3, mlp_dim=40, patch_size=8)
ONE_BLOCK = replace(PLAIN, num_layers=1)
HYBRID = replace(PLAIN, patch_size=1, resnet_stages=(1, 1), resnet_width=32)
# Bits that a policy computes with, the leading one included.
BITS = {"float32": 24, "mixed_bfloat16": 8, "mixed_float16": 11}
SHARED_POSITIONS = replace(
    PLAIN, activation="gelu", position_embedding_at="every_layer_shared"
)
SMALL, TOKENS = {"image_size": (16, 24)}, {"pooling": None, "include_top": False}
MODELS = {
    "token": (PLAIN, SMALL | {"classes": 5, "representation_size": 7}),
    "features": (PLAIN, SMALL | {"pooling": "gap", "include_top": False}),
    "shared positions": (SHARED_POSITIONS, SMALL | {"channels": 1, "classes": 5}),
    "relative positions": (
        replace(PLAIN, position_embedding="relative"),
        SMALL | TOKENS,
    ),
    "hybrid": (HYBRID, {"image_size": (32, 48), "classes": 5}),
    "bit": (BiTConfig((1, 1)), {"image_size": (32, 48), "classes": 5}),
}


def made(name, policy="float32"):
    return shared.__wrapped__(name, policy)


@functools.cache
def shared(name, policy="float32"):
    """A model of `MODELS`, built once: not to be changed."""
    config, options = MODELS[name]
    make = BiTResNet if name == "bit" else VisionTransformer
    with global_policy(policy):
        model = make(config, **options)
    randomize(model)
    return model


def images_of(model):
    return normal((3, *model.input_shape[1:]))


def rounded(kernel):
    """A kernel to the nearest of 255 steps a channel, in float64."""
    step = np.abs(kernel).max(axis=tuple(range(kernel.ndim - 1))) / 127
    return np.round(kernel / step) * step


def kernels(model):
    return [weight for weight in model.weights if weight.name == "kernel"]


@pytest.mark.parametrize("shape", [(40, 24), (3, 3, 8, 16), (1, 1)])
def test_rounds_to_the_nearest_step(shape):
    kernel = normal(shape)
    values, scale = int8_and_scale(kernel)
    assert (values.dtype, values.shape) == ("int8", shape)
    assert (scale.dtype, scale.shape) == ("float32", shape[-1:])
    largest = np.abs(values.astype(int)).max(axis=tuple(range(len(shape) - 1)))
    np.testing.assert_array_equal(largest, 127)
    np.testing.assert_allclose(values * scale, rounded(kernel), rtol=1e-6)
    assert (np.abs(values * scale - kernel) <= 0.5001 * scale).all()


def test_zeros_and_the_smallest_and_largest_numbers():
    kernel = np.array([[0, 1e-40, 1e-30, 3e38], [0, 0, -1e-30, -3e38]], "float32")
    with np.errstate(all="raise", under="ignore"):
        values, scale = int8_and_scale(kernel)
    np.testing.assert_array_equal(values, [[0, 0, 127, 127], [0, 0, -127, -127]])
    assert (scale >= np.finfo("float32").tiny).all() and np.isfinite(scale).all()
    np.testing.assert_allclose(values * scale, kernel, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("token", "float32"),
        ("token", "mixed_bfloat16"),
        ("token", "mixed_float16"),
        ("features", "float32"),
        ("shared positions", "float32"),
        ("relative positions", "mixed_bfloat16"),
    ],
)
def test_computes_what_the_float_model_does_with_rounded_kernels(name, policy):
    model = made(name, policy)
    quantized = quantize_weights(model)
    images = images_of(model)
    given = numpy(model(images))
    for kernel in kernels(model):
        kernel.assign(rounded(numpy(kernel)))
    found = quantized(images)
    expected = model(images)
    assert found.dtype == expected.dtype
    # Only a kernel between two numbers of the compute dtype may be rounded otherwise.
    tolerance = 2.0 ** (6 - BITS[policy]) * rms(numpy(expected))
    np.testing.assert_allclose(numpy(found), numpy(expected), rtol=0, atol=tolerance)
    if policy == "float32":
        assert rms(numpy(found) - given) > 100 * tolerance


@pytest.mark.parametrize("epsilons", ["released", "timm"])
@pytest.mark.parametrize("padding", ["same", "symmetric"])
def test_convolutions_keep_the_standardised_kernel(padding, epsilons):
    inputs = keras.Input((9, 6, 4))
    layer = StdConv2D(
        5, 3, strides=2, padding=padding, use_bias=True, epsilons=epsilons, name="conv"
    )
    model = keras.Model(inputs, layer(inputs))
    randomize(model)
    found = quantize_weights(model).get_layer("conv")
    assert type(found) is Int8StdConv2D
    assert found.get_config() == layer.get_config()

    kernel = numpy(layer.kernel)
    centred = kernel - kernel.mean(axis=(0, 1, 2))
    variance = kernel.var(axis=(0, 1, 2))
    scales = {"released": np.sqrt(variance) + 1e-5, "timm": np.sqrt(variance + 1e-8)}
    standardized = rounded(centred / scales[epsilons])
    np.testing.assert_allclose(numpy(found.kernel), standardized, atol=1e-5)
    images = normal((2, 9, 6, 4))
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    expected = ops.conv(
        padded if padding == "symmetric" else images,
        ops.convert_to_tensor(standardized.astype("float32")),
        strides=2,
        padding="valid" if padding == "symmetric" else "same",
        data_format="channels_last",
    )
    np.testing.assert_allclose(
        numpy(found(images)), numpy(expected) + numpy(layer.bias), atol=1e-4
    )


@pytest.mark.parametrize(
    ("name", "policy"), [("token", "float32"), ("hybrid", "mixed_bfloat16")]
)
def test_survives_saving_and_cloning(name, policy, tmp_path):
    model = shared(name, policy)
    before = model.get_weights()
    quantized = quantize_weights(model)
    for kept, weight in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(kept, weight)
    images = images_of(model)
    expected = numpy(quantized(images))

    quantized.save(tmp_path / "int8.keras")
    loaded = keras.saving.load_model(tmp_path / "int8.keras")
    np.testing.assert_array_equal(numpy(loaded(images)), expected)
    for one, other in zip(loaded.weights, quantized.weights, strict=True):
        about = (one.name, one.dtype, one.shape)
        assert about == (other.name, other.dtype, other.shape)
    clone = keras.models.clone_model(loaded)
    assert numpy(clone(images)).shape == expected.shape
    quantized.save_weights(tmp_path / "int8.weights.h5")
    clone.load_weights(tmp_path / "int8.weights.h5")
    # Clones compute all tokens.
    rounding = 1e-2 if policy == "mixed_bfloat16" else 1e-5
    np.testing.assert_allclose(
        numpy(clone(images)), expected, rtol=rounding, atol=rounding
    )


@pytest.mark.parametrize("name", MODELS)
def test_every_kernel_is_int8_and_nothing_else(name):
    model = shared(name)
    quantized = quantize_weights(model)
    assert [layer.name for layer in quantized.layers] == [
        layer.name for layer in model.layers
    ]
    assert is_quantized(quantized) and not is_quantized(model)
    assert quantized.name == model.name
    for weight in quantized.weights:
        assert weight.dtype == ("int8" if weight.name == "kernel" else "float32")
    channels = sum(kernel.shape[-1] for kernel in kernels(model))
    assert quantized.count_params() == model.count_params() + channels
    assert {weight.path for weight in quantized.trainable_variables} == {
        weight.path for weight in model.trainable_variables if weight.name != "kernel"
    }


def test_gradients_pass_through_to_what_is_trainable():
    quantized = quantize_weights(shared("token"))
    for gradient in gradients(quantized, normal((3, 16, 24, 3))):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


def test_a_model_in_a_model_with_layers_of_others():
    inner = made("token")
    images = keras.Input((16, 24, 3))
    features = keras.layers.Conv2D(3, 3, padding="same", name="other")(images)
    logits = keras.layers.Dense(2, use_bias=False, name="last")(inner(features))
    model = keras.Model(images, logits)
    randomize(model)
    quantized = quantize_weights(model)
    dtypes = {weight.path: weight.dtype for weight in quantized.weights}
    assert dtypes["other/kernel"] == "float32"
    assert dtypes["last/kernel"] == "int8"
    nested = quantized.get_layer(inner.name)
    assert is_quantized(nested) and nested is not inner
    batch = images_of(model)
    expected = numpy(model(batch))
    assert 0 < rms(numpy(quantized(batch)) - expected) < 0.1 * rms(expected)


def test_refuses_what_cannot_be_quantised():
    model = made("token")
    quantized = quantize_weights(model)
    with pytest.raises(ValueError, match="has int8 weights already: pass the float"):
        quantize_weights(quantized)
    with pytest.raises(ValueError, match="model must be a keras.Model, got"):
        quantize_weights(model.get_layer("head"))
    inputs = keras.Input((3,))
    with pytest.raises(ValueError, match="has no kernels to quantise"):
        quantize_weights(keras.Model(inputs, keras.layers.ReLU()(inputs)))

    attention = model.get_layer("encoder_block_1").attention
    attention.key.kernel.assign(np.full((24, 24), np.nan))
    with pytest.raises(ValueError, match="encoder_block_1/attention/key has values"):
        quantize_weights(model)
    attention.query.enable_lora(2)
    with pytest.raises(ValueError, match="LoRA's kernels beside its own: save it with"):
        quantize_weights(model)
    with pytest.raises(ValueError, match="tune the float model"):
        quantized.get_layer("encoder_block_1").attention.query.enable_lora(2)


def test_released_files_hold_float_weights(tmp_path):
    model = VisionTransformer(PLAIN, image_size=16)
    save_released_weights(model, tmp_path / "float.npz")
    quantized = quantize_weights(model)
    message = "has int8 weights, and released files hold float ones: keep it with"
    with pytest.raises(ValueError, match=message):
        save_released_weights(quantized, tmp_path / "int8.npz")
    with pytest.raises(ValueError, match=message):
        load_released_weights(quantized, tmp_path / "float.npz")
    assert not (tmp_path / "int8.npz").exists()
    with pytest.raises(ValueError, match=message):
        save_released_weights(quantize_weights(shared("bit")), tmp_path / "int8.npz")


def test_heads_of_a_model_stay_heads():
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    assert type(quantize_weights(dense).layers[-1]) is Int8Dense
    head = quantize_weights(shared("token")).get_layer("head")
    assert type(head) is Int8ClassificationHead
    assert head.compute_dtype == "float32"


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_what_keras_quantises_straight_after_building_is_saved_and_loaded(
    tmp_path, mode
):
    model = VisionTransformer(ONE_BLOCK, image_size=16, classes=3)
    model.quantize(mode)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 16, 16, 3)).astype("float32")
    expected = numpy(model(images))
    assert np.isfinite(expected).all()

    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    query = loaded.get_layer("encoder_block_0").attention.query
    assert query.quantization_mode == mode
    np.testing.assert_array_equal(numpy(loaded(images)), expected)

    model.save_weights(tmp_path / "model.weights.h5")
    clone = keras.models.clone_model(model)
    clone.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(numpy(clone(images)), expected)


def test_the_policies_of_parts_survive_a_configuration_of_an_unbuilt_layer():
    model = VisionTransformer(ONE_BLOCK, image_size=16, classes=3)
    model.quantize("int8")
    block = model.get_layer("encoder_block_0")
    config = block.get_config()
    assert "attention.query" in config["part_policies"]
    assert type(block).from_config(config).get_config() == config
