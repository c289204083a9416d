"""What loading weights and looking inside a model hold in memory."""

import os
import subprocess
import sys

import keras
import pytest

# Prints the most memory that a call holds above what there was before.
PEAK = """
import os, sys, keras_vit
import numpy as np
def held(name):
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith(name)]
    return int(line.split()[1]) * 1024
def print_peak(call, *arguments, **options):
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = held("VmRSS")
    call(*arguments, **options)
    print(held("VmHWM") - before)
"""
SAVE = """
model = keras_vit.VisionTransformer("ViT-S_16", classes=10)
keras_vit.save_released_weights(model, sys.argv[1])
"""
LOAD = """
model = keras_vit.VisionTransformer("ViT-S_16", classes=10)
print_peak(keras_vit.load_released_weights, model, sys.argv[1], new_head=True)
"""
LOOK = """
model = keras_vit.VisionTransformer("ViT-L_16", image_size=384, classes=2)
model.get_layer("head").kernel.assign(np.eye(1024, 2))
images = np.random.default_rng(0).uniform(-1, 1, (1, 384, 384, 3)).astype("float32")
for name in ("attention_rollout", "gradient_attention", "attention_maps"):
    print_peak(getattr(keras_vit.explain, name), model, images)
"""
pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc"),
]


def peaks_of(program, *arguments):
    command = [sys.executable, "-c", PEAK + program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.splitlines()]


def test_loading_holds_few_arrays_at_a_time(tmp_path):
    path = tmp_path / "weights.npz"
    peaks_of(SAVE, path)
    [extra] = peaks_of(LOAD, path)
    # JAX compiles something for every shape.
    share = 1.2 if keras.backend.backend() == "jax" else 0.5
    assert extra < share * path.stat().st_size


def test_large_16_at_384_is_looked_into_in_less_than_a_gigabyte():
    rollout, gradient, maps = peaks_of(LOOK)
    assert rollout < 0.4e9
    assert max(gradient, maps) < 1e9
