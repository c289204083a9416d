"""Seeds, precision and the order of operations: runs that repeat to the last bit."""

import contextlib
import random

import keras
import numpy as np
import tensorflow as tf


@contextlib.contextmanager
def seeded(seed, precision):
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
def preserved_state():
    """Restores the random state of Python and NumPy, and the dtype policy, on exit."""
    policy = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(states[0])
        np.random.set_state(states[1])


def one_operation_at_a_time():
    """Makes TensorFlow run one operation after the other, each on all cores.

    Side by side, operations end in an order that differs from run to run, and with it
    the order in which TensorFlow's `AddN` adds up the gradients of a tensor with
    several uses, and their last bits. Costs about 4% of a training step on two cores.
    Call it before anything runs on TensorFlow, which raises a `RuntimeError` else.
    """
    tf.config.threading.set_inter_op_parallelism_threads(1)
