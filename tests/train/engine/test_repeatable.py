import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
# Without the call most gradients of the same batch differ in their last bits.
SCRIPT = """
import numpy as np
import tensorflow as tf
from train import repeatable
repeatable.one_operation_at_a_time()
import keras
import keras_vit

keras.utils.set_random_seed(0)
config = keras_vit.ViTConfig(192, 12, 3, 768, 16)
model = keras_vit.VisionTransformer(config, image_size=64, classes=10)
head = model.get_layer("head").kernel
head.assign(tf.random.stateless_normal(head.shape, [1, 2]))
images = tf.random.stateless_normal((64, 64, 64, 3), [3, 4])

@tf.function
def gradients():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.nn.log_softmax(model(images, training=True))[:, 0])
    return tape.gradient(loss, model.trainable_variables)

first = [gradient.numpy() for gradient in gradients()]
for _ in range(40):
    for one, other in zip(first, gradients()):
        assert np.array_equal(one, other)
print("equal")
"""


@pytest.mark.soak
def test_gradients_repeat_to_the_last_bit():
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True
    )
    assert process.stdout == "equal\n", process.stderr
