"""TensorFlow's graphs of a step: nothing unused, no surprises, repeatable bits."""

import functools
import os
import random
import subprocess
import sys

import keras
import numpy as np
import pytest
import small_models
import tensorflow as tf
from made_steps import IS_JAX, trainer_of
from small_models import HYBRID, PLAIN

from train.engine import reproducibility

pytestmark = pytest.mark.skipif(IS_JAX, reason="it is about TensorFlow's graphs")


def test_random_numbers_follow_the_seed_and_go_on_as_before():
    def state():
        policy, numpy_state = keras.config.dtype_policy().name, np.random.get_state()[1]
        return policy, random.getstate(), numpy_state.tolist()

    before, drawn = state(), []
    for _ in range(2):
        with pytest.raises(KeyError), reproducibility.seeded(3, "mixed_bfloat16"):
            assert keras.config.dtype_policy().name == "mixed_bfloat16"
            drawn.append(keras.initializers.GlorotUniform()((2, 3)).numpy().tolist())
            drawn[-1].append(np.random.uniform())
            raise KeyError
        assert state() == before
    assert drawn[0] == drawn[1]


def sums(graph):
    """Returns how many tensors each sum of a graph, and of its functions, adds up."""
    whole = graph.as_graph_def()
    nodes = [*whole.node, *(n for one in whole.library.function for n in one.node_def)]
    return {n.attr["N"].i for n in nodes if n.op in ("AddN", "AccumulateNV2")}


@pytest.mark.parametrize("remat", [False, True])
def test_layers_add_no_three_tensors_at_once(remat):
    """TensorFlow may add those in an order that differs from run to run."""
    trainer = trainer_of(lambda: small_models.made(remat=remat))
    images, labels = tf.zeros((2, 32, 48, 3)), tf.zeros(2, "int32")
    assert sums(trainer.step.get_concrete_function(images, labels).graph) == {2}


@pytest.mark.parametrize("config", [PLAIN, HYBRID])
def test_no_dropout_is_right_behind_a_convolution(config):
    """There TensorFlow's optimizer of layouts prints "layout failed", on GPUs."""
    rates = {"dropout_rate": 0.1, "stochastic_depth_rate": 0.1}
    model = small_models.made(config, **rates)
    step = tf.function(functools.partial(model, training=True))
    graph = step.get_concrete_function(tf.zeros((2, *small_models.SIZE, 3))).graph
    masks = [one for one in graph.get_operations() if one.type == "SelectV2"]
    assert masks
    for mask in masks:
        if mask.outputs[0].shape.rank == 4:
            # Images, and else a number without shape.
            assert all(one.shape.rank for one in mask.inputs), mask.name


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_the_last_block_trains_one_token(micro_batches, monkeypatch):
    """For exports see tests/train/export."""
    seen = small_models.seen_by(monkeypatch)
    trainer = trainer_of(small_models.made, micro_batches=micro_batches)
    images, labels = np.zeros((2, 32, 48, 3), "float32"), np.zeros(2, "int32")
    # Traced for the harder of the two cases: tracing takes seconds.
    tf.config.run_functions_eagerly(micro_batches == 1)
    try:
        trainer.step(images, labels)
        assert seen and seen == [False, True] * (len(seen) // 2)
        seen.clear()
        trainer.answers(images, labels)
        assert seen == [False, True]
    finally:
        tf.config.run_functions_eagerly(False)


# Each of ten times a model is made and used; how much memory is held is printed.
MANY = """
import gc, sys
import numpy as np
import keras_vit
def trained(**arguments):
    import tensorflow as tf
    from train.engine.optimizers import MomentumSGD
    from train.engine.tensorflow_backend import TensorFlowTrainer
    model = keras_vit.ViT_Ti16(image_size=32, classes=3, weights=None, **arguments)
    trainer = TensorFlowTrainer(model, MomentumSGD(1e-2))
    images, labels = tf.ones((4, 32, 32, 3)), tf.constant([0, 1, 2, 0])
    for _ in range(2):
        trainer.step(images, labels)
def rematerialized():
    trained(remat=True)
def predictor():
    model = keras_vit.ViT_Ti16(image_size=512, classes=3, weights=None)
    keras_vit.Predictor(model, engine="keras")(np.ones((1, 512, 512, 3), "float32"))
def held():
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
for count in range(10):
    globals()[sys.argv[1]]()
    gc.collect()
    print(held())
"""


@pytest.mark.soak
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
@pytest.mark.parametrize("kind", ["trained", "rematerialized", "predictor"])
def test_ten_models_leave_no_more_in_memory_than_two(kind):
    told = subprocess.check_output([sys.executable, "-c", MANY, kind], text=True)
    megabytes = [float(line) for line in told.splitlines()]
    assert len(megabytes) == 10
    assert megabytes[-1] < megabytes[1] + 30, megabytes
