"""TensorFlow's optimizer of layouts, which runs on GPUs alone, has nothing to say.

It prints "layout failed" where images of a convolution are selected by a mask, and are
else a number without shape, as by a dropout right behind the convolution.
"""

import pytest
import tensorflow as tf
from small_models import HYBRID, PLAIN

from keras_vit import VisionTransformer


def selects(function, *specs):
    """Returns the names of the operations that make the optimizer fail."""
    graph = tf.function(function).get_concrete_function(*specs).graph
    return [
        one.name
        for one in graph.get_operations()
        if one.type == "SelectV2"
        and one.outputs[0].shape.rank == 4
        and any(input.shape.rank == 0 for input in one.inputs)
    ]


def test_dropout_behind_a_convolution_is_found():
    def step(images, seed):
        features = tf.nn.conv2d(images, tf.ones((3, 3, 3, 4)), 1, "SAME")
        return tf.nn.experimental.stateless_dropout(features, 0.5, seed)

    specs = tf.TensorSpec((2, 8, 8, 3)), tf.TensorSpec((2,), "int32")
    assert len(selects(step, *specs)) == 1


@pytest.mark.parametrize("config", [PLAIN, HYBRID])
def test_a_vision_transformer_has_no_dropout_behind_a_convolution(config):
    rates = {"dropout_rate": 0.1, "stochastic_depth_rate": 0.1}
    model = VisionTransformer(config, image_size=32, classes=5, **rates)
    variables = [variable.value for variable in model.trainable_variables]

    def step(images):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(images, training=True))
        return tape.gradient(loss, variables)

    assert selects(step, tf.TensorSpec((2, 32, 32, 3))) == []
