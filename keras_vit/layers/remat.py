"""Rematerialization: recomputing for the gradient, with the same dropout."""

from collections.abc import Callable
from typing import Any

import keras

from keras_vit.layers.base import Layer, Tensor
from keras_vit.layers.forward_pass import forward_pass, running
from keras_vit.layers.own_gradient import own_gradient
from zoo import network


class SeedGenerator(keras.random.SeedGenerator):
    """The generator of Keras, whose seeds can be drawn before they are used."""

    def next(self, ordered: bool = True) -> Tensor:
        seeds = forward_pass().seeds
        return super().next(ordered) if seeds is None else next(seeds[self])


class Dropout(Layer):
    """`keras.layers.Dropout` for what may be computed once more."""

    def __init__(self, rate: float, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.rate = network.rate(rate, f"{self.name}: rate")
        self.seed = seed
        if self.rate > 0.0:
            self.seed_generator = SeedGenerator(seed)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        if not training or self.rate == 0.0:
            return inputs
        return self.dropped(inputs)

    def dropped(self, inputs: Tensor) -> Tensor:
        """Returns inputs some of which are zeros, and the others larger by as much."""
        return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)


def rematerialized(
    function: Callable[[Tensor], Tensor],
    uses: dict[keras.layers.Layer, int],
    variables: list,
) -> Callable:
    """Returns a function of one tensor that keeps it alone for the gradient.

    What is random in it is the same when it is computed once more, and the same as
    without remat: its seeds are drawn now. `uses` has how often the function calls each
    of its `Dropout` and `StochasticDepth` layers; `variables` are all that it reads.
    """
    # On PyTorch keras.random.dropout has no seed but PyTorch's own state, which is put
    # back before something is computed once more.
    without = {Dropout} if keras.backend.backend() == "torch" else {}
    seeds = {
        layer.seed_generator: [layer.seed_generator.next() for _ in range(count)]
        for layer, count in uses.items()
        if layer.rate > 0.0 and type(layer) not in without
    }

    def with_these_seeds(inputs: Tensor) -> Tensor:
        fresh = {generator: iter(values) for generator, values in seeds.items()}
        with running(seeds=fresh):
            return function(inputs)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            return _recomputed(with_these_seeds, variables)
    return keras.remat(with_these_seeds)


def _recomputed(function, variables):
    """Returns what `keras.remat` does, in a graph that TensorFlow does not keep.

    Of what a gradient of one's own reads TensorFlow keeps the variables themselves, so
    that it is given their values.
    """
    import tensorflow as tf

    @own_gradient
    def recomputed(tokens: Tensor, *values: Tensor) -> tuple:
        def output(tokens: Tensor, *values: Tensor) -> Tensor:
            state = list(zip(variables, values, strict=True))
            with keras.StatelessScope(state_mapping=state):
                return function(tokens)

        def gradient(upstream: Tensor) -> Any:
            # TensorFlow would take what it has already, were the upstream not needed.
            first = tf.reduce_max(tf.reshape(upstream, (-1,))[:1])
            some = tf.cast(first, "bool")
            zero = tf.where(some == some, 0.0, float("nan"))
            inputs = (tokens + tf.cast(zero, tokens.dtype), *values)
            with tf.GradientTape() as tape:
                # Quantized kernels are integers, which have no gradient.
                tape.watch([one for one in inputs if one.dtype.is_floating])
                again = output(*inputs)
            return tape.gradient(again, inputs, upstream, unconnected_gradients="zero")

        return output(tokens, *values), gradient

    values = [tf.convert_to_tensor(variable.value) for variable in variables]
    return lambda tokens: recomputed(tokens, *values)
