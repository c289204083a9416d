"""ResNets to compare with: how they are built, and how much they compute."""

import functools
import importlib.util
import json
import pathlib

import harness
import keras
import numpy as np
import pytest

import keras_vit
from benchmarks import model_flags
from train import baselines
from train.common.errors import RunError
from train.recipes import recipe
from train.reports import compute

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the trainer needs TensorFlow"
)

ROOT = pathlib.Path(__file__).parents[3]
VIT = keras_vit.ViTConfig(
    hidden_size=24, num_layers=3, num_heads=3, mlp_dim=40, patch_size=(8, 16)
)
HYBRID = keras_vit.ViTConfig(
    hidden_size=24,
    num_layers=1,
    num_heads=2,
    mlp_dim=32,
    patch_size=1,
    resnet_stages=(2, 1),
    resnet_width=32,
)


def before_head(model):
    return keras.Model(model.input, model.get_layer("head").input)


@pytest.fixture(autouse=True, scope="module")
def shallow():
    """BiT with one unit in each stage: the depths are for `test_bit_resnet`."""
    with pytest.MonkeyPatch.context() as patch:
        one_each = baselines.BiTConfig((1, 1, 1, 1))
        patch.setitem(baselines.BIT_VARIANTS, "BiT-R50x1", one_each)
        yield


@functools.cache
def built(name):
    """A baseline for images of 64x32 in 16-bit training."""
    keras.utils.set_random_seed(0)
    with harness.global_policy("mixed_bfloat16"):
        return baselines.build(name, image_size=(64, 32), classes=7)


def test_recipes_know_the_baselines_by_name():
    assert tuple(baselines.BASELINES) == recipe.BASELINES


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_a_baseline_begins_with_logits_of_zero(name):
    model = built(name)
    assert model.input_shape == (None, 64, 32, 3)
    assert model.layers[-1].name == "head"
    outputs = [model.get_layer("head").input, model.output]
    images = harness.normal((2, 64, 32, 3))
    features, logits = keras.Model(model.input, outputs)(images)
    assert logits.dtype == "float32"
    np.testing.assert_array_equal(logits, np.zeros((2, 7)))
    assert features.shape == (2, 2048) and features.dtype == "bfloat16"
    assert np.std(harness.numpy(features)) > 1e-3


def test_resnet50v2_takes_images_in_unit_range():
    pixels = np.array([0.0, 127.5, 255.0], "float32").reshape(1, 1, 1, 3)
    found = keras.applications.resnet_v2.preprocess_input(pixels.copy())
    np.testing.assert_allclose(found.ravel(), [-1, 0, 1])


def test_weights_of_files(tmp_path):
    bit = baselines.BiT_R50x1(image_size=64, classes=11)
    path = baselines.save_bit_weights(bit, tmp_path / "bit.npz")
    model = baselines.build("BiT-R50x1", weights=path, image_size=32, classes=3)
    kept = {variable.path: variable for variable in model.variables}
    body = [one for one in bit.variables if not one.path.startswith("head/")]
    assert len(body) == len(kept) - 2 > 40
    for variable in body:
        np.testing.assert_array_equal(kept[variable.path], variable)

    notop = before_head(built("ResNet50V2"))
    notop.save_weights(tmp_path / "notop.weights.h5")
    model = baselines.build(
        "ResNet50V2",
        weights=tmp_path / "notop.weights.h5",
        image_size=32,
        classes=3,
    )
    kernel = notop.get_layer("conv4_block3_2_conv").kernel
    np.testing.assert_array_equal(model.get_layer("conv4_block3_2_conv").kernel, kernel)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("ResNet50", {}, "no baseline 'ResNet50': choose one of BiT-R50x1, ResNet50V2"),
        ("BiT-R50x1", {"image_size": 0}, "image_size must be a positive int"),
        (
            "BiT-R50x1",
            {"weights": "imagenet"},
            "no file or folder imagenet.* URL of a released .npz",
        ),
        ("BiT-R50x1", {"weights": "tests/goldens/token.npz"}, "missing resnet/root_bl"),
        ("ResNet50V2", {"image_size": 16}, "Input size must be at least 32x32"),
        (
            "ResNet50V2",
            {"weights": "no.h5"},
            "no.h5 .*the .h5 of one without its head, or .imagen",
        ),
    ],
)
def test_what_cannot_be_built(name, options, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    with pytest.raises(RunError, match=message):
        baselines.build(name, classes=3, **options)


def test_a_download_that_fails(monkeypatch):
    def fail(**options):
        raise Exception("URL fetch failure on https://storage")

    monkeypatch.setattr(keras.applications, "ResNet50V2", fail)
    with pytest.raises(RunError, match="ResNet50V2 cannot be built: URL fetch failure"):
        baselines.build("ResNet50V2", weights="imagenet", classes=3)


@pytest.mark.slow
def test_batch_norms_on_two_devices_are_as_documented(forks, tmp_path):
    code = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
import keras
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
batch = tf.data.Dataset.from_tensor_slices([[0.0, 0.0]] * 2 + [[8.0, 8.0]] * 2)
batches = strategy.experimental_distribute_dataset(batch.batch(4))
run = tf.function(lambda x: strategy.run(model, (x,), {"training": True}))
for x in batches:
    run(x)
mean = model.layers[0].moving_mean
print([float(v[0]) for v in strategy.experimental_local_results(mean.value)])
print(float(mean.numpy()[0]))
"""
    status, output, errors = forks.streams(["-c", code], tmp_path, {})
    assert status == 0, errors
    each, first = output.splitlines()[-2:]
    np.testing.assert_allclose(json.loads(each), [0.0, 0.08], atol=1e-6)
    assert float(first) == 0.0


@pytest.mark.parametrize(("config", "sides"), [(VIT, (48, 64)), (HYBRID, (64, 40))])
def test_multiply_adds_are_those_of_the_configuration(config, sides):
    model = keras_vit.VisionTransformer(config, image_size=sides, classes=10)
    expected = model_flags.multiply_adds(config, sides, classes=10)
    assert compute.multiply_adds(model) == expected
    images = keras.Input((*sides, 3))
    assert compute.multiply_adds(keras.Model(images, model(images))) == expected


def profiled(model):
    """What TensorFlow's own profiler counts, halved, for one image."""
    images = tf.TensorSpec((1, *model.input_shape[1:]))
    graph = tf.function(model).get_concrete_function(images, training=False).graph
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    found = tf.compat.v1.profiler.profile(graph, options=options)
    return found.total_float_ops / 2


def test_multiply_adds_of_resnet50v2_are_those_of_the_profiler():
    model = built("ResNet50V2")
    found = compute.multiply_adds(model)
    # The profiler adds the biases, norms and activations.
    assert found < profiled(model) < 1.005 * found


@pytest.mark.peers
def test_multiply_adds_of_bit():
    for package in ("torch", "timm"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed, whose numbers are compared")
    import bit_peer_models
    import peer_models

    peer = peer_models.Peer()
    try:
        described = peer(bit_peer_models.describe_bit, "resnetv2_50x1_bit", (96, 65))
    finally:
        peer.close()
    config = baselines.BiTConfig((3, 4, 6, 3))
    model = baselines.BiTResNet(config, image_size=(96, 65))
    assert compute.multiply_adds(model) == described["multiply_adds"]


def test_multiply_adds_of_other_layers():
    images = keras.Input((9, 8, 4))
    features = keras.layers.DepthwiseConv2D(3, strides=2)(images)
    model = keras.Model(images, features)
    assert compute.multiply_adds(model) == 4 * 3 * (3 * 3 * 4)
    sequence = keras.Input((5, 4))
    model = keras.Model(sequence, keras.layers.Conv1D(2, 3, name="odd")(sequence))
    with pytest.raises(ValueError, match="layer odd cannot be counted: how much a Con"):
        compute.multiply_adds(model)
    anything = keras.Input((None, None, 3))
    model = keras.Model(anything, keras.layers.Conv2D(2, 3)(anything))
    with pytest.raises(ValueError, match="give it images of one size"):
        compute.multiply_adds(model)
