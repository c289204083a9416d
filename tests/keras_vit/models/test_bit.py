"""BiT's ResNets: the whole against timm, its files."""

import keras
import numpy as np
import peer_models
import pytest
from harness import normal, numpy, randomize

import keras_vit
import zoo
from keras_vit.models.bit import BiTResNet
from keras_vit.structure import architectures
from zoo.network import BIT_VARIANTS, BiTConfig

ROOT = "resnet/root_block/standardized_conv2d/kernel"
SMALL = BiTConfig((1, 2))


def small(seed=0, **options):
    """A model of two stages with weights at which mistakes show."""
    model = BiTResNet(SMALL, **{"image_size": 32, "classes": 5, **options})
    randomize(model, seed)
    return model


@pytest.fixture(scope="module")
def whole():
    """The small model, for tests that do not change it."""
    return small()


@pytest.fixture
def arrays(whole, tmp_path):
    """The arrays of a released file of the small model."""
    with np.load(keras_vit.save_released_weights(whole, tmp_path / "in.npz")) as file:
        return dict(file)


def written(path, arrays):
    np.savez(path, **arrays)
    return path


def test_its_architecture_can_be_in_a_set():
    architecture = architectures.of_config(SMALL)
    assert architecture in {architecture, architectures.of_config(zoo.ViTConfig())}


def test_the_root_pools_zeros_around_the_image():
    model = BiTResNet(SMALL, image_size=8, classes=2)
    root = keras.Model(model.input, model.get_layer("root_pool").output)
    # Without a bias, one of the two is below zero wherever the other is above.
    images = normal((1, 8, 8, 3))
    images = np.concatenate([images, -images])
    conv = numpy(model.get_layer("root_conv")(images))
    padded = np.pad(conv, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = windows[:, ::2, ::2].max(axis=(-1, -2))
    assert expected.shape == (2, 2, 2, 64)
    # The padding wins in a window where the whole image is below zero.
    assert expected[:, 0, 0].min() == 0
    np.testing.assert_allclose(numpy(root(images)), expected, atol=1e-6)


def test_logits_are_those_of_timm(timm, tmp_path):
    images = peer_models.photos((64, 97))
    model = BiTResNet("BiT-R50x1", image_size=64, classes=11)
    randomize(model)
    path = keras_vit.save_released_weights(model, tmp_path / "R50x1.npz")
    model = BiTResNet("BiT-R50x1", path, image_size=(64, 97))
    found = numpy(model(2 * images - 1))
    expected = timm(peer_models.load_bit, images, "resnetv2_50x1_bit", path, 11)
    # timm adds 1e-8 to the variance of a kernel where BiT adds 1e-10.
    assert peer_models.difference(found, expected) < 2e-5


@pytest.mark.parametrize("variant", BIT_VARIANTS)
def test_the_table_is_that_of_timm(timm, variant):
    config = BIT_VARIANTS[variant]
    name = f"resnetv2_{variant.removeprefix('BiT-R')}_bit"
    described = timm(peer_models.describe_bit, name, (64, 64))
    assert config.depths == described["depths"]
    assert 64 * config.width_factor == described["width"]
    if variant == "BiT-R50x1":
        model = BiTResNet("BiT-R50x1", image_size=32)
        assert model.count_params() == described["parameters"] == 25_549_352


def test_a_model_and_its_file(whole, arrays, tmp_path):
    images = normal((2, 32, 32, 3))
    expected = numpy(whole(images))
    path = written(tmp_path / "a.npz", arrays)
    again = keras_vit.load_model(str(path), image_size=32)
    # The file says which network it is of.
    assert again.config == SMALL
    np.testing.assert_array_equal(numpy(again(images)), expected)
    other = small(seed=1)
    assert keras_vit.load_released_weights(other, path) is other
    np.testing.assert_array_equal(numpy(other(images)), expected)
    # A file that was loaded is written as it was.
    with np.load(keras_vit.save_released_weights(other, tmp_path / "b.npz")) as file:
        assert file.files and set(file.files) == arrays.keys()
        for key in file.files:
            np.testing.assert_array_equal(file[key], arrays[key])
    with pytest.raises(TypeError, match="BiTResNet.. takes no patch_size"):
        keras_vit.load_model(path, patch_size=8)


def test_heads_of_a_file(whole, arrays, tmp_path):
    path = written(tmp_path / "a.npz", arrays)
    images = normal((1, 32, 32, 3))
    features = BiTResNet(SMALL, path, image_size=32, include_top=False)
    before_head = keras.Model(whole.input, whole.get_layer("head").input)
    expected = numpy(before_head(images))
    assert expected.shape == (1, 512) and expected.std() > 0.1
    np.testing.assert_array_equal(numpy(features(images)), expected)
    kept = small(seed=1)
    head = numpy(kept.get_layer("head").kernel)
    keras_vit.load_released_weights(kept, path, new_head=True)
    np.testing.assert_array_equal(numpy(kept.get_layer("head").kernel), head)
    headless = {key: array for key, array in arrays.items() if "head" not in key}
    with pytest.raises(ValueError, match="has no head: pass classes=K"):
        BiTResNet(SMALL, written(path, headless), image_size=32)
    zeros = {k: a * 0 if "head" in k else a for k, a in arrays.items()}
    with pytest.warns(UserWarning, match="all zeros, and so will be the logits"):
        BiTResNet(SMALL, written(path, zeros), image_size=32)


def test_problems_of_a_file_are_listed_at_once(arrays, tmp_path):
    model = small(seed=1)
    before = [numpy(variable) for variable in model.variables]
    norm = "resnet/block2/unit02/b/group_norm/gamma"
    wrong = {key: array for key, array in arrays.items() if key != norm}
    wrong["resnet/block3/unit01/a/group_norm/gamma"] = arrays[norm]
    wrong[ROOT] = arrays[ROOT][..., :32]
    path = written(tmp_path / "wrong.npz", wrong)
    with pytest.raises(zoo.CheckpointError) as raised:
        keras_vit.load_released_weights(model, path)
    message = str(raised.value)
    assert message.startswith(f"{path} is not a checkpoint of BiT that fits")
    assert f"\n  missing {norm}\n" in message
    assert "\n  unknown resnet/block3/unit01/a/group_norm/gamma\n" in message
    assert f"\n  {ROOT} has shape (7, 7, 3, 32), not (7, 7, 3, 64)" in message
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(numpy(variable), value)


UNIT = "resnet/block9/unit01/b/standardized_conv2d/kernel"
WRONG = [
    # Half a head is no head of another size.
    ("resnet/head/conv2d/bias", None, "missing resnet/head/conv2d/bias"),
    # A small array names a unit, which is not made before it is refused.
    (UNIT, np.zeros(3, "float32"), f"unknown {UNIT}"),
    # `tests/zoo/containers` has what readers of files refuse.
    (ROOT, np.zeros((7, 7, 3, 64), "int32"), f"{ROOT} has dtype int32"),
]


@pytest.mark.parametrize(("key", "array", "message"), WRONG)
def test_one_wrong_array_is_refused_by_name(key, array, message, arrays, tmp_path):
    arrays[key] = array
    if array is None:
        del arrays[key]
    path = written(tmp_path / "wrong.npz", arrays)
    with pytest.raises(zoo.CheckpointError, match=message):
        keras_vit.load_model(path)
