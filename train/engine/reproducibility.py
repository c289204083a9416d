"""Seeds and precision of a run, so that it repeats to the last bit."""

import contextlib
import random
from collections.abc import Iterator

import keras
import numpy as np


@contextlib.contextmanager
def seeded(seed: int, precision: str) -> Iterator[None]:
    """Sets the seeds and the dtype policy of a run, and restores the previous state.

    Keras draws the seeds of initializers and of dropout from Python's generator. The
    global seeds of TensorFlow and Keras have no part in a run and stay as they are.
    """
    with preserved_state():
        random.seed(seed)
        np.random.seed(seed)
        keras.config.set_dtype_policy(precision)
        yield


@contextlib.contextmanager
def preserved_state() -> Iterator[None]:
    """Restores the random state of Python and NumPy, and the dtype policy, on exit."""
    policy = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(states[0])
        np.random.set_state(states[1])
