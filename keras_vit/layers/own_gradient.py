"""Functions with a gradient of their own, on TensorFlow."""

import functools


def own_gradient(function):
    """Returns `tf.custom_gradient` of a function of tensors, for models' graphs.

    TensorFlow keeps what `tf.custom_gradient` is called with, and by it the graph, as
    long as the process runs. A model's graph therefore calls the function in a small
    graph of its own, which is made once for each shape and serves all models.
    """

    @functools.cache
    def functions():
        import tensorflow as tf

        with_gradient = tf.custom_gradient(function)
        return with_gradient, tf.function(with_gradient, autograph=False)

    @functools.wraps(function)
    def call(*tensors):
        import tensorflow as tf

        eager, traced = functions()
        return (eager if tf.executing_eagerly() else traced)(*tensors)

    return call
