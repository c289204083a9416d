"""Starts the devices of a run, on the backend that Keras has."""

from typing import Any

import keras

from train.engine import tensorflow_backend


def start(name: str = "auto") -> Any:
    """Gets the devices ready; call it before anything runs on TensorFlow or JAX.

    `name` is the flag `--strategy`. Returns `train.engine.step.Devices` of the backend;
    raises a `RunError` where there are no such devices, or they do not answer.
    """
    if keras.backend.backend() != "jax":
        return tensorflow_backend.start(name)
    from train.engine import jax_backend

    # Otherwise each worker would train alone, in the same directory.
    is_one_of_many = name == "auto" and tensorflow_backend.has_other_workers()
    return jax_backend.start("multiworker" if is_one_of_many else name)
