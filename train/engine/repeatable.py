"""Runs that repeat to the last bit."""

import contextlib
import random

import keras
import numpy as np
import tensorflow as tf


@contextlib.contextmanager
def settled(seed, precision):
    """Sets the random numbers and the precision of a run, and restores those before.

    Keras draws the seeds of initializers and of dropout from Python's generator. The
    global seeds of TensorFlow and Keras have no part in a run and stay as they are.

    Args:
        seed: int, from 0 to 2^32 - 1.
        precision: str, a policy of `keras.config.set_dtype_policy`.
    """
    with left_as_found():
        random.seed(seed)
        np.random.seed(seed)
        keras.config.set_dtype_policy(precision)
        yield


@contextlib.contextmanager
def left_as_found():
    """Restores at its end the random numbers of Python and NumPy, and the precision."""
    policy = keras.config.dtype_policy()
    states = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(states[0])
        np.random.set_state(states[1])


def one_operation_at_a_time():
    """Lets TensorFlow start an operation only when the one before it is done.

    Each operation still has all cores. Side by side, they end in an order that differs
    from run to run, and with it the order in which TensorFlow's `AddN` adds up the
    gradients of a tensor with several uses, and their last bits. Costs about 4% of a
    training step on two cores.

    Call it before anything runs on TensorFlow.

    Raises:
        RuntimeError: TensorFlow runs already.
    """
    tf.config.threading.set_inter_op_parallelism_threads(1)
