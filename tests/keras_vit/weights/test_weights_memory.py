"""What loading weights holds in memory, and what it leaves behind where it fails."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from harness import numpy

import keras_vit
import zoo

CONFIG = keras_vit.ViTConfig(32, num_layers=2, num_heads=2, mlp_dim=64, patch_size=8)
# Prints the most memory of a load above what the model held before, and the size of
# the file.
LOAD = """
import os, sys, keras_vit
config = keras_vit.ViTConfig(
    768, num_layers=4, num_heads=12, mlp_dim=3072, patch_size=16
)
model = keras_vit.VisionTransformer(config, classes=10)
if not os.path.exists(sys.argv[1]):
    keras_vit.save_released_weights(model, sys.argv[1])
    sys.exit()
def held(name):
    with open("/proc/self/status") as file:
        [line] = [line for line in file if line.startswith(name)]
    return int(line.split()[1]) * 1024
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = held("VmRSS")
keras_vit.load_released_weights(model, sys.argv[1], new_head=True)
print(held("VmHWM") - before, os.path.getsize(sys.argv[1]))
"""


@pytest.mark.soak
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_loading_holds_few_arrays_at_a_time(tmp_path):
    command = [sys.executable, "-c", LOAD, str(tmp_path / "weights.npz")]
    subprocess.run(command, check=True)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    extra, size = map(int, done.stdout.split())
    assert size > 1e8
    # JAX compiles something for every shape.
    share = 1.2 if keras.backend.backend() == "jax" else 0.5
    assert extra < share * size


def test_damage_is_found_before_a_variable_is_changed(tmp_path):
    path = tmp_path / "weights.npz"
    model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=3)
    keras_vit.save_released_weights(model, path)
    contents = bytearray(path.read_bytes())
    # The last array before the directory at the end.
    contents[contents.index(b"PK\x01\x02") - 1] ^= 1
    path.write_bytes(contents)
    model = keras_vit.VisionTransformer(CONFIG, image_size=32, classes=3)
    before = [numpy(variable) for variable in model.variables]
    with pytest.raises(zoo.CheckpointError, match="damaged or cut short"):
        keras_vit.load_released_weights(model, path)
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(numpy(variable), value, err_msg=variable.path)
