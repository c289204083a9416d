"""The fastest engine, found on the images that a predictor is given."""

import time
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.runtimes import fastest
from keras_vit.runtimes.batches import in_batches
from keras_vit.runtimes.converted import Converted
from keras_vit.runtimes.keras import Compiled
from keras_vit.runtimes.onnx import size_of
from keras_vit.runtimes.precision import is_of_policy
from keras_vit.runtimes.requirements import fits, is_keras_on_cpu
from zoo.common.machine import available_bytes
from zoo.runtimes import KERAS, RUNTIMES, computing

# How far answers may be from those of the first engine, of the largest of these. In
# int8 each engine has scales of its own.
TOLERANCES = {"float32": 2e-5, "bfloat16": 5e-2, "int8": 2e-1}
# Alternating runs by which engines are compared, at most.
_RUNS = 3
# The first batch is computed twice where so many are known to follow: the second time
# tells how long one takes.
_MANY_BATCHES = 20


class Automatic:
    """Begins with the engine that answers first, and changes to the fastest in time.

    That is where the others are likely to save more than their conversion takes: of a
    known number of images the time of those that are left is weighed, else as much
    time as the conversion takes must have passed.

    In int8, where engines differ visibly, one computes all that follows: it is chosen
    at the first batch, of a known number of images, or stays the first.

    Attributes:
        engine: str, what computes.
        left: int, images that are still to come; None where that is not known.
        trials: dict of what was tried: {engine: seconds of a batch, or str, why not}.

    `announce` is that of `Predictor`, and `clock` a function to seconds that have
    passed since some moment.
    """

    def __init__(
        self,
        model: keras.Model,
        batch_size: int,
        precision: str,
        announce: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._announce = announce or (lambda message: None)
        self._clock = clock
        self._model, self._batch_size = model, batch_size
        self._precision = precision
        first, *others = [
            name for name in computing(precision) if fits(model, name, precision)
        ]
        self._first = (
            Compiled(model, batch_size, precision)
            if first == KERAS
            else Converted(model, batch_size, precision, first)
        )
        memory, size = available_bytes(), size_of(model)
        self._engines = [
            name
            for name in others
            if precision in RUNTIMES[name].saves
            and not 0 < memory < RUNTIMES[name].memory * size
        ]
        # Others compute in float32 what Keras may compute in half precision.
        is_half = precision == "float32" and not is_of_policy(model, "float32")
        if first == KERAS and (is_half or not is_keras_on_cpu()):
            self._engines = []
        self.left: int | None = None
        self._begin()

    def _begin(self):
        self.engine, self._answer, self.trials = self._first.engine, self._first, {}
        self._to_try = self._engines
        # Size of the first batch; not timed, it compiles.
        self._count = None

    def __call__(self, images):
        if self._answer.is_outdated():
            self._begin()
            self._first.update()
        return in_batches(self._of_batch, images, self._batch_size)

    def _of_batch(self, images):
        if self.left is not None:
            self.left = max(0, self.left - len(images))
        if not self._to_try:
            return self._answer.computed(images)
        is_first = self._count is None
        if is_first:
            self._start(images)
            outputs = self._answer.computed(images)
            if self.left is None or self.left < _MANY_BATCHES * len(images):
                self._end_of_first()
                return outputs
        started = self._clock()
        outputs = self._answer.computed(images)
        self._seconds += self._clock() - started
        self._batches += 1
        if len(images) != self._count:
            # One may be a last batch; of two the following are, too.
            self._others += 1
            if self._others > 1:
                self._count, self._to_try = None, self._engines
            return outputs
        self._others = 0
        if np.isfinite(outputs).all() and self._pays():
            names, seconds = " and ".join(self._to_try), self._needed()
            self._announce(f"converting the model for {names}: about {seconds:.0f} s")
            self._choose(images, outputs)
        if is_first:
            self._end_of_first()
            return self._answer.computed(images)
        return outputs

    def _end_of_first(self):
        if self._precision == "int8":
            self._to_try = []

    def _start(self, images):
        self._count = len(images)
        self._seconds, self._batches = 0.0, 0
        # Batches in a row of another number of images.
        self._others = 0
        first = self._first.engine
        engines = [first, *self._engines]
        self._path = fastest.path_of(
            self._model, images.shape, self._precision, engines
        )
        self._kept, seconds = fastest.read(self._path, engines)
        if self._kept == first:
            self._to_try = []
        elif self._kept:
            self._to_try = [self._kept]
        self._set_saves()
        if self._kept in seconds and first in seconds:
            self._saves = 1.0 - seconds[self._kept] / seconds[first]

    def _set_saves(self):
        saves = [RUNTIMES[name].saves[self._precision] for name in self._to_try]
        self._saves = max(saves, default=0.0)

    def _needed(self):
        return conversion_seconds(self._model, self._to_try)

    def _pays(self):
        needed = self._needed()
        if self.left is None:
            return self._seconds > needed
        each = self._seconds / (self._batches * self._count)
        # To compare engines takes about as long again.
        return self.left * each * self._saves > (1 if self._kept else 2) * needed

    def _choose(self, images, expected):
        others = {}
        for engine in self._to_try:
            other = Converted(self._model, self._batch_size, self._precision, engine)
            try:
                answers = other(images)
            # A model or a machine that a runtime does not take, in its own words.
            except Exception as error:
                self.trials[engine] = f"{type(error).__name__}: {error}"
                continue
            error, largest = np.abs(answers - expected).max(), np.abs(expected).max()
            if error <= TOLERANCES[self._precision] * largest:
                others[engine] = other
            else:
                self.trials[engine] = (
                    f"its answers differ by {error:.1e}, of {largest:.1e} at most"
                )
        if self._kept in others:
            self.engine, self._answer = self._kept, others[self._kept]
            self._announce(f"{self.engine} computes now, the fastest here before")
        elif self._kept:
            # As the machine is now, another may be the fastest.
            self._to_try = [name for name in self._engines if name != self._kept]
            self._kept = None
            self._set_saves()
            return
        else:
            self._take_fastest(images, others)
        self._to_try = []

    def _take_fastest(self, images, others):
        answers = {self._first.engine: self._first, **others}
        limit = self._clock() + self._needed()
        times = fastest.seconds_of(answers, images, _RUNS, limit, self._clock)
        self.trials |= times
        self.engine = min(times, key=times.get)
        self._answer = answers[self.engine]
        milliseconds = ", ".join(
            f"{name} {1000 * seconds / len(images):.3g}"
            for name, seconds in sorted(times.items(), key=lambda item: item[1])
        )
        self._announce(f"{self.engine} computes now; ms per image: {milliseconds}")
        # A runtime that failed may not fail the next time.
        if others:
            fastest.write(self._path, self.engine, self.trials)


def conversion_seconds(model: keras.Model, engines: list[str]) -> float:
    """Returns about how many seconds the conversions of a model take."""
    weights = model.count_params()
    return sum(RUNTIMES[name].conversion_seconds(weights) for name in engines)
