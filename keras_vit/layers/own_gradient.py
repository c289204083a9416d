"""Functions with a gradient of their own, on TensorFlow."""

import functools
import weakref
from collections.abc import Callable
from typing import Any


def own_gradient(function: Callable[..., tuple]) -> Callable:
    """Returns `tf.custom_gradient` of a function of tensors, which keeps no graph.

    What `tf.custom_gradient` is given back in a graph, TensorFlow keeps as long as the
    process runs, and by any tensor of it the graph and its model. Here it is a list
    that is emptied, and a function that knows the gradient as long as its graph lives.
    """

    @functools.wraps(function)
    def call(*tensors: Any) -> Any:
        import tensorflow as tf

        if tf.executing_eagerly():
            return tf.custom_gradient(function)(*tensors)
        outputs = []

        @tf.custom_gradient
        def forgetful(*tensors: Any) -> tuple:
            output, gradient = function(*tensors)
            # Not in its collections, which are copied to graphs that may live longer.
            graph = output.graph
            graph.own_gradients = [*getattr(graph, "own_gradients", ()), gradient]
            known = weakref.ref(gradient)
            outputs.append(output)
            return outputs, lambda upstream: known()(upstream)

        (output,) = forgetful(*tensors)
        outputs[0] = None
        return output

    return call
