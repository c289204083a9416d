"""How much models compute."""

import keras
import peer_models
import pytest
import tensorflow as tf

import keras_vit
from benchmarks import model_flags
from keras_vit.models.bit import BiTResNet
from keras_vit.models.resnet_v2 import ResNet50V2
from train.reports import compute
from zoo.network import BIT_VARIANTS

SMALL = {"hidden_size": 24, "num_layers": 3, "num_heads": 3, "mlp_dim": 40}
VIT = keras_vit.ViTConfig(**SMALL, patch_size=(8, 16))
HYBRID = keras_vit.ViTConfig(
    **SMALL, patch_size=1, resnet_stages=(2, 1), resnet_width=32
)


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
    model = ResNet50V2("ResNet50V2", image_size=(64, 32), classes=7)
    found = compute.multiply_adds(model)
    # The profiler adds the biases, norms and activations.
    assert found < profiled(model) < 1.005 * found


@pytest.mark.peers
def test_multiply_adds_of_bit(timm):
    described = timm(peer_models.describe_bit, "resnetv2_50x1_bit", (96, 65))
    model = BiTResNet(BIT_VARIANTS["BiT-R50x1"], image_size=(96, 65))
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
