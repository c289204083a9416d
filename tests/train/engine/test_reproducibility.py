"""Seeds, precision, and gradients that repeat to the last bit."""

import pathlib
import random
import subprocess
import sys

import keras
import numpy as np
import pytest

from train.engine import reproducibility

ROOT = pathlib.Path(__file__).parents[3]
# Without `start` most gradients of the same batch differ in their last bits.
SCRIPT = """
import numpy as np
import tensorflow as tf
from train.engine import tensorflow_backend
tensorflow_backend.start("one")
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


def test_random_numbers_follow_the_seed_and_go_on_as_before():
    before = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()[1].tolist()
    drawn = []
    for _ in range(2):
        with (
            pytest.raises(KeyError),
            reproducibility.seeded(3, "mixed_bfloat16"),
        ):
            assert keras.config.dtype_policy().name == "mixed_bfloat16"
            initializer = keras.initializers.GlorotUniform()
            drawn.append(keras.ops.convert_to_numpy(initializer((2, 3))).tolist())
            drawn[-1].append(np.random.uniform())
            raise KeyError
        assert keras.config.dtype_policy() == before
        assert random.getstate() == states[0]
        assert np.random.get_state()[1].tolist() == states[1]
    assert drawn[0] == drawn[1]
