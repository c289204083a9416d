"""Computing a part of a model once more instead of keeping it, dropout included."""

import contextlib
import contextvars

import keras

_drawn = contextvars.ContextVar("drawn", default=None)


class SeedGenerator(keras.random.SeedGenerator):
    """The generator of Keras, whose seeds can be drawn before they are used."""

    def next(self, ordered=True):
        drawn = _drawn.get()
        return super().next(ordered) if drawn is None else next(drawn[self])


class Dropout(keras.layers.Layer):
    """`keras.layers.Dropout` for what may be computed once more.

    Args:
        rate: float in [0, 1).
        **kwargs: `name`, `dtype` and the other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor.
        training: bool, whether anything is dropped.

    Returns:
        Float tensor of the same shape.

    Raises:
        ValueError: `rate` is outside [0, 1).

    Source:
        Srivastava et al., JMLR 15 (2014).

    Example:

    >>> tuple(Dropout(0.1)(keras.ops.ones((2, 7, 192)), training=True).shape)
    (2, 7, 192)
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"{self.name}: rate must be in [0, 1), got {rate}.")
        self.rate = rate
        if rate > 0.0:
            self.seed_generator = SeedGenerator()

    def call(self, inputs, training=None):
        if not training or self.rate == 0.0:
            return inputs
        return keras.random.dropout(inputs, self.rate, seed=self.seed_generator)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


def rematerialized(function, uses):
    """Returns a function that keeps its argument alone for the gradient.

    What is random in it is the same when it is computed once more, and the same as
    without remat: its seeds are drawn now.

    Args:
        function: of one tensor.
        uses: dict of layer to int, the layers of `function` that draw random numbers,
            `Dropout` or `StochasticDepth`, and how often each is called.

    Returns:
        The function.

    Example:

    >>> dropout = Dropout(0.5)
    >>> again = rematerialized(lambda x: dropout(x, training=True), {dropout: 1})
    >>> tuple(again(keras.ops.ones((2, 3))).shape)
    (2, 3)
    """
    seeds = {
        layer.seed_generator: [layer.seed_generator.next() for _ in range(count)]
        for layer, count in uses.items()
        if layer.rate > 0.0 and not _winds_back(layer)
    }

    def drawing_these(inputs):
        with _using(seeds):
            return function(inputs)

    return keras.remat(drawing_these)


def _winds_back(layer):
    # There keras.random.dropout has no seed but PyTorch's own state, and PyTorch puts
    # that back before it computes something once more.
    return isinstance(layer, Dropout) and keras.backend.backend() == "torch"


@contextlib.contextmanager
def _using(seeds):
    token = _drawn.set({generator: iter(values) for generator, values in seeds.items()})
    try:
        yield
    finally:
        _drawn.reset(token)
