"""Starts the devices of a run, on the backend that Keras has."""

from typing import Any

import keras

from train.common.errors import RunError
from train.engine import tensorflow_backend


def start(name: str = "auto", mesh: str | None = None) -> Any:
    """Gets the devices ready; call it before anything runs on TensorFlow or JAX.

    `name` and `mesh` are the flags `--strategy` and `--mesh`. Returns
    `train.engine.step.Devices` of the backend; raises a `RunError` where there are no
    such devices, or they do not answer.
    """
    if mesh is not None and name != "sharded":
        raise RunError(
            f"--mesh={mesh} is for --strategy=sharded, and this run has "
            f"--strategy={name}: pass both, or leave --mesh out."
        )
    if keras.backend.backend() != "jax":
        if name == "sharded":
            raise RunError(
                "--strategy=sharded is JAX's: set KERAS_BACKEND=jax, or pass another "
                "--strategy."
            )
        return tensorflow_backend.start(name)
    from train.engine import jax_backend

    # Otherwise each worker would train alone, in the same directory.
    is_one_of_many = name == "auto" and tensorflow_backend.has_other_workers()
    return jax_backend.start("multiworker" if is_one_of_many else name, mesh)
