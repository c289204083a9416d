"""Runs a program on two simulated devices of TensorFlow, in a process of its own."""

import os
import subprocess
import sys

# Before anything else uses TensorFlow.
_PREPARE = """
import sys

import tensorflow as tf

[cpu] = tf.config.list_physical_devices("CPU")
one = tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [one] * 2)
"""


def run(program, run_dir):
    """Runs it with the run directory as its argument; it must train on both."""
    done = subprocess.run(
        [sys.executable, "-c", _PREPARE + program, str(run_dir)],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "on 2 devices" in done.stdout
