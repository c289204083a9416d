"""Files of released names hold every weight of a model, or are not written."""

import dataclasses
import functools

import keras
import numpy as np
import pytest
from harness import numpy, randomize
from small_models import PLAIN, made

import keras_vit
import zoo
from keras_vit import quantize_weights
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

BIT = BiTConfig((1, 1))


def bit(**options):
    model = BiTResNet(BIT, image_size=32, classes=5, **options)
    randomize(model)
    return model


KINDS = {
    "vit": (made, keras_vit.save_released_weights, keras_vit.load_released_weights),
    "bit": (bit, keras_vit.save_released_weights, keras_vit.load_released_weights),
}


@functools.cache
def shared(kind):
    """A model of the kind, built once: not to be changed."""
    make, *_ = KINDS[kind]
    return make()


def with_another_head(model):
    return keras.Model(
        model.input,
        keras.layers.Dense(3, name="logits")(model.get_layer("pooling").output),
    )


def with_a_layer_behind(model):
    return keras.Model(model.input, keras.layers.Dense(3, name="own")(model.output))


def with_batch_norm(model):
    return keras.Model(
        model.input, keras.layers.BatchNormalization(name="own")(model.output)
    )


def with_normalization(model):
    return keras.Model(
        model.input, keras.layers.Normalization(name="own")(model.output)
    )


def with_a_model_behind(model):
    own = keras.Sequential(
        [keras.Input(model.output_shape[1:]), keras.layers.Dense(2)], name="own"
    )
    return keras.Model(model.input, own(model.output))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (with_another_head, "logits/kernel, logits/bias. Keep"),
        (with_a_layer_behind, "own/kernel, own/bias. Keep"),
        (with_batch_norm, "own/gamma, own/beta, own/moving_mean, own/moving_var"),
        (with_normalization, "own/mean, own/variance"),
        (with_a_model_behind, "own/dense.*/kernel, own/dense"),
    ],
)
def test_weights_without_a_name_are_refused(kind, change, lost, tmp_path):
    _, save, _ = KINDS[kind]
    model = change(shared(kind))
    with pytest.raises(ValueError, match=f"no released name and would be lost.*{lost}"):
        save(model, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("naming", ["timm", "transformers"])
def test_other_namings_refuse_them_too(naming, tmp_path):
    model = with_a_layer_behind(shared("vit"))
    with pytest.raises(ValueError, match="would be lost: own/kernel, own/bias"):
        keras_vit.save_released_weights(
            model, tmp_path / "model.safetensors", naming=naming
        )
    assert not list(tmp_path.iterdir())


def test_few_of_many_are_listed(tmp_path):
    model = made()
    outputs = model.output
    for _ in range(9):
        outputs = keras.layers.Dense(2)(outputs)
    with pytest.raises(ValueError, match="would be lost: .* and 8 more. Keep"):
        keras_vit.save_released_weights(
            keras.Model(model.input, outputs), tmp_path / "model.npz"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_another_kind_are_refused(kind, tmp_path):
    _, save, _ = KINDS[kind]
    body = shared(kind)
    features = body.get_layer("pooling").output
    for head, lack in (
        (keras.layers.Dense(3, use_bias=False, name="head"), "Dense without bias"),
        (keras.Sequential([keras.layers.Dense(3)], name="head"), "Sequential without"),
    ):
        model = keras.Model(body.input, head(features))
        with pytest.raises(ValueError, match=f"Layer 'head' of .* is a {lack}"):
            save(model, tmp_path / "model.npz")


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_all_its_names_is_written(kind, tmp_path):
    """Seeds of random layers, and what works in training alone, are not in the way."""
    _, save, _ = KINDS[kind]
    model = shared(kind)
    outputs = keras.layers.Dropout(0.5, name="noise")(model.get_layer("pooling").output)
    outputs = keras.layers.Dense(7, name="head")(outputs)
    path = save(keras.Model(model.input, outputs), tmp_path / "model.npz")
    with np.load(path) as arrays:
        assert {a.shape[-1] for name, a in arrays.items() if "head/" in name} == {7}


def around(model, before=None, after=None):
    """A model's layers in a graph of their own, with others around them."""
    images = keras.Input(model.input_shape[1:])
    outputs = images if before is None else before(images)
    for layer in model.layers[1:]:
        outputs = layer(outputs)
    return keras.Model(images, outputs if after is None else after(outputs))


OTHERS = {
    "in front": ({"before": keras.layers.Rescaling(2.0, name="own")}, "own"),
    "an operation": ({"before": lambda images: images * 2.0}, "multiply.*"),
    "behind": ({"after": keras.layers.Softmax(name="own")}, "own"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("others", "name"), OTHERS.values(), ids=OTHERS)
def test_layers_without_a_place_are_refused(kind, others, name, tmp_path):
    _, save, _ = KINDS[kind]
    model = around(shared(kind), **others)
    with pytest.raises(ValueError, match=f"has '{name}.*released files have no place"):
        save(model, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    noise = around(shared(kind), keras.layers.GaussianNoise(0.1))
    save(noise, tmp_path / "noise.npz")


@pytest.mark.parametrize(
    ("kind", "name"), [("vit", "encoder_block_0"), ("bit", "norm")]
)
def test_layers_called_twice_are_refused(kind, name, tmp_path):
    _, save, _ = KINDS[kind]
    model = shared(kind)
    outputs = images = keras.Input(model.input_shape[1:])
    for layer in model.layers[1:]:
        outputs = layer(outputs)
        if layer.name == name:
            outputs = layer(outputs)
    with pytest.raises(ValueError, match=f"calls '{name}' 2 times"):
        save(keras.Model(images, outputs), tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", KINDS)
def test_lora_is_written_as_the_model_computes(kind, tmp_path):
    make, save, load = KINDS[kind]
    tuned, plain = make(), make()
    images = np.random.default_rng(0).uniform(-1, 1, (2, *tuned.input_shape[1:]))
    if kind == "vit":
        layer = tuned.get_layer("encoder_block_0").attention.query
    else:
        layer = tuned.get_layer("block1_unit01").conv2
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    expected = numpy(tuned(images))
    assert np.abs(expected - numpy(plain(images))).max() > 1e-3
    path = save(tuned, tmp_path / "model.npz")
    np.testing.assert_allclose(numpy(load(plain, path)(images)), expected, atol=2e-5)
    with pytest.raises(ValueError, match="LoRA's products beside the kernel of .*load"):
        load(tuned, path)


def cut(model, name):
    return keras.Model(model.input, model.get_layer(name).output, name="cut")


@pytest.mark.parametrize(
    ("kind", "name", "missing"),
    [
        ("vit", "encoder_block_0", "encoder_norm"),
        ("vit", "embedding", "encoder_block_0, encoder_norm"),
        ("bit", "block1_unit01", "norm"),
    ],
)
def test_parts_of_models_are_refused(kind, name, missing, tmp_path):
    _, save, load = KINDS[kind]
    whole = shared(kind)
    path = save(whole, tmp_path / "whole.npz")
    part = cut(whole, name)
    message = f"'cut' is a part of a model, without the layers {missing}, and"
    with pytest.raises(ValueError, match=message):
        save(part, tmp_path / "part.npz")
    with pytest.raises(ValueError, match=message):
        load(part, path)
    # A whole body without its head is whole.
    save(cut(whole, "pooling"), tmp_path / "body.npz")


@pytest.mark.parametrize("kind", KINDS)
def test_both_pairs_are_alike(kind, tmp_path, monkeypatch):
    make, save, load = KINDS[kind]
    model, other = make(), make()
    monkeypatch.setenv("HOME", str(tmp_path))
    path = save(model, "~/model.npz")
    assert path == tmp_path / "model.npz" and path.is_file()
    assert load(other, "~/model.npz") is other
    with pytest.raises(zoo.CheckpointError, match="must end in .npz"):
        save(model, tmp_path / "model.h5")
    with pytest.raises(OSError):
        save(model, tmp_path / "nowhere" / "model.npz")
    with pytest.raises(ValueError, match="has no layers of the released names"):
        save(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), path)
    with pytest.raises(ValueError, match="has int8 weights"):
        load(quantize_weights(model), path)
    # What does not fit is the file's fault, and leaves the model as it is.
    different = (
        keras_vit.VisionTransformer(
            dataclasses.replace(PLAIN, hidden_size=27), image_size=32
        )
        if kind == "vit"
        else BiTResNet(BIT, image_size=32, channels=4)
    )
    before = [numpy(weight) for weight in different.weights]
    with pytest.raises(zoo.CheckpointError, match=r"\(7, 7, 3, 64\)|hidden_size 24"):
        load(different, path)
    for weight, value in zip(different.weights, before, strict=True):
        np.testing.assert_array_equal(numpy(weight), value)
    model.get_layer("head").bias.assign(np.full(5, np.nan))
    with pytest.raises(zoo.CheckpointError, match="holds NaN or infinity"):
        save(model, tmp_path / "nan.npz")
    assert not (tmp_path / "nan.npz").exists()
