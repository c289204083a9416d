"""What models that are trained and asked one after another leave in memory."""

import os
import subprocess
import sys

import keras
import pytest

MANY = """
import gc, sys
import keras, numpy as np
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
    print(held(), flush=True)
"""


@pytest.mark.soak
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its graphs")
@pytest.mark.parametrize("kind", ["trained", "rematerialized", "predictor"])
def test_ten_models_end_where_two_did(kind):
    command = [sys.executable, "-c", MANY, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    megabytes = list(map(float, done.stdout.split()))
    assert len(megabytes) == 10
    print(*megabytes)
    assert megabytes[-1] < megabytes[1] + 30
