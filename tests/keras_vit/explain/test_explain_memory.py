"""What looking inside a large model holds in memory."""

import os
import subprocess
import sys

import pytest

# Prints the most memory held above that of the model, for each look.
LOOK = """
import numpy as np
import keras_vit
model = keras_vit.VisionTransformer("ViT-L_16", image_size=384, classes=2)
images = np.random.default_rng(0).uniform(-1, 1, (1, 384, 384, 3)).astype("float32")
def held(name):
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith(name)]
    return int(line.split()[1]) * 1024
model.get_layer("head").kernel.assign(np.eye(1024, 2))
before = held("VmRSS")
for name in ("attention_rollout", "gradient_attention", "attention_maps"):
    look = getattr(keras_vit.explain, name)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    shape = look(model, images).shape
    print(held("VmHWM") - before, *shape)
"""


@pytest.mark.soak
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_large_16_at_384_in_less_than_a_gigabyte():
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rollout, gradient, maps = (
        list(map(int, line.split())) for line in done.stdout.splitlines()
    )
    assert rollout[1:] == gradient[1:] == [1, 577, 577]
    assert rollout[0] < 0.4e9
    assert maps[1:] == [24, 1, 16, 577, 577]
    assert max(gradient[0], maps[0]) < 1e9
