"""Rematerialization: recomputing for the gradient, with the same dropout."""

import keras

from keras_vit.layers.base import Layer
from keras_vit.layers.forward_pass import forward_pass, running
from zoo import network


class SeedGenerator(keras.random.SeedGenerator):
    """The generator of Keras, whose seeds can be drawn before they are used."""

    def next(self, ordered=True):
        seeds = forward_pass().seeds
        return super().next(ordered) if seeds is None else next(seeds[self])


class Dropout(Layer):
    """`keras.layers.Dropout` for what may be computed once more."""

    def __init__(self, rate, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.rate = network.rate(rate, f"{self.name}: rate")
        self.seed = seed
        if self.rate > 0.0:
            self.seed_generator = SeedGenerator(seed)

    def call(self, inputs, training=None):
        if not training or self.rate == 0.0:
            return inputs
        return self.dropped(inputs)

    def dropped(self, inputs):
        """Returns inputs some of which are zeros, and the others larger by as much."""
        return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)


def rematerialized(function, uses):
    """Returns a function of one tensor that keeps it alone for the gradient.

    What is random in it is the same when it is computed once more, and the same as
    without remat: its seeds are drawn now. `uses` has how often the function calls each
    of its `Dropout` and `StochasticDepth` layers.
    """
    # On PyTorch keras.random.dropout has no seed but PyTorch's own state, which is put
    # back before something is computed once more.
    without = {Dropout} if keras.backend.backend() == "torch" else {}
    seeds = {
        layer.seed_generator: [layer.seed_generator.next() for _ in range(count)]
        for layer, count in uses.items()
        if layer.rate > 0.0 and type(layer) not in without
    }

    def with_these_seeds(inputs):
        fresh = {generator: iter(values) for generator, values in seeds.items()}
        with running(seeds=fresh):
            return function(inputs)

    return keras.remat(with_these_seeds)
