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
from zoo.runtimes import KERAS, RUNTIMES

# How far answers may be from those of Keras, of the largest of these.
TOLERANCES = {"float32": 2e-5, "bfloat16": 5e-2}
# Alternating runs by which engines are compared, at most.
_RUNS = 3
# A conversion takes as much memory as this many copies of the weights.
_MEMORY = 4


class Automatic:
    """Begins with Keras, and changes to the fastest engine once that pays.

    Attributes:
        engine: str, what computes.
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
        self._announce, self._clock = announce, clock
        self._model, self._batch_size = model, batch_size
        self._precision = precision
        self._compiled = Compiled(model, batch_size, precision)
        self._engines = [
            name
            for name, row in RUNTIMES.items()
            if row.is_automatic and fits(model, name, precision)
        ]
        # Others compute in float32 what Keras may compute in half precision, and
        # converting takes several times the memory of the weights.
        if (
            not is_keras_on_cpu()
            or (precision == "float32" and not is_of_policy(model, "float32"))
            or 0 < available_bytes() < _MEMORY * size_of(model)
        ):
            self._engines = []
        self._begin()

    def _begin(self):
        self.engine, self._answer, self.trials = KERAS, self._compiled, {}
        self._to_try = self._engines
        # Size of the first batch; not timed, it compiles.
        self._count = None

    def __call__(self, images):
        if self._answer is not self._compiled:
            if not self._answer.is_outdated():
                return self._answer.computed(images)
            self._begin()
        return in_batches(self._of_batch, images, self._batch_size)

    def _of_batch(self, images):
        if not self._to_try:
            return self._answer(images)
        if self._count is None:
            self._count, self._seconds = len(images), 0.0
            # Batches in a row of another number of images.
            self._others = 0
            self._path = fastest.path_of(
                self._model, images.shape, self._precision, self._engines
            )
            self._kept = fastest.read(self._path, (KERAS, *self._engines))
            if self._kept == KERAS:
                self._to_try = []
            elif self._kept:
                self._to_try = [self._kept]
            return self._answer(images)
        started = self._clock()
        outputs = self._answer(images)
        self._seconds += self._clock() - started
        if len(images) != self._count:
            # One may be a last batch; of two the following are, too.
            self._others += 1
            if self._others > 1:
                self._count, self._to_try = None, self._engines
            return outputs
        self._others = 0
        needed = len(self._to_try) * conversion_seconds(self._model)
        if np.isfinite(outputs).all() and self._seconds > needed:
            if self._announce is not None:
                self._announce(
                    f"converting the model for {' and '.join(self._to_try)}: about "
                    f"{needed:.0f} s"
                )
            self._choose(images, outputs)
        return outputs

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
        elif self._kept:
            # As the machine is now, another may be the fastest.
            self._kept, self._to_try = None, self._engines
            return
        else:
            self._take_fastest(images, others)
        self._to_try = []

    def _take_fastest(self, images, others):
        answers = {KERAS: self._compiled, **others}
        runs, limit = [], self._clock() + conversion_seconds(self._model)
        # Batches that take seconds are timed once.
        while not runs or len(runs) < _RUNS and self._clock() < limit:
            runs.append(
                {
                    name: _seconds(answer, images, self._clock)
                    for name, answer in answers.items()
                }
            )
        times = {name: min(run[name] for run in runs) for name in answers}
        self.trials |= times
        self.engine = min(times, key=times.get)
        self._answer = answers[self.engine]
        # A runtime that failed may not fail the next time.
        if others:
            fastest.write(self._path, self.engine, self.trials)


def conversion_seconds(model: keras.Model) -> float:
    """Returns about how many seconds the conversion of a model takes."""
    return 1.0 + 5e-8 * model.count_params()


def _seconds(answer, images, clock):
    started = clock()
    answer(images)
    return clock() - started
