"""Seeds, precision, and gradients that repeat to the last bit."""

import pathlib
import random
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_vit
from train.engine import reproducibility

ROOT = pathlib.Path(__file__).parents[3]
# With a sum of three tensors in GELU several of these runs differ.
SCRIPT = """
import keras
import numpy as np
import tensorflow as tf

import keras_vit
from train.engine import tensorflow_backend
from train.engine.optimizers import MomentumSGD

devices = tensorflow_backend.start("one")
keras.utils.set_random_seed(0)
model = keras_vit.ViT_Ti16(weights=None, classes=100)
head = model.get_layer("head").kernel
head.assign(tf.random.stateless_normal(head.shape, [1, 2], stddev=0.02))
trainer = devices.trainer(model, MomentumSGD(1e-2))
images = tf.random.stateless_normal((8, 224, 224, 3), [3, 4])
start = [variable.numpy() for variable in trainer.variables]
ends = set()
for _ in range(15):
    for variable, value in zip(trainer.variables, start):
        variable.assign(value)
    for _ in range(3):
        trainer.step(images, tf.range(8))
    ends.add(b"".join(variable.numpy().tobytes() for variable in trainer.variables))
print(len(ends))
"""


@pytest.mark.soak
def test_steps_repeat_to_the_last_bit():
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True
    )
    assert process.stdout == "1\n", process.stderr


def sums(graph):
    """Returns how many tensors each sum of a graph, and of its functions, adds up."""
    whole = graph.as_graph_def()
    nodes = [*whole.node, *(n for one in whole.library.function for n in one.node_def)]
    return [n.attr["N"].i for n in nodes if n.op in ("AddN", "AccumulateNV2")]


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="it is about TensorFlow's sums"
)
@pytest.mark.parametrize("remat", [False, True])
def test_layers_add_no_three_tensors_at_once(remat):
    """TensorFlow may add those in an order that differs from run to run."""
    import tensorflow as tf

    from train.engine.optimizers import MomentumSGD
    from train.engine.tensorflow_backend import TensorFlowTrainer

    config = keras_vit.ViTConfig(8, 2, 2, 16, 8)
    model = keras_vit.VisionTransformer(config, image_size=16, classes=3, remat=remat)
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1))
    images, labels = tf.zeros((2, 16, 16, 3)), tf.zeros(2, "int32")
    found = sums(trainer.step.get_concrete_function(images, labels).graph)
    assert found
    assert set(found) == {2}


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
