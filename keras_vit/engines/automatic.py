"""The fastest engine, found on the images that a predictor is given."""

import time

import numpy as np

from keras_vit.engines import choices
from keras_vit.engines.batches import split
from keras_vit.engines.compiled import Compiled
from keras_vit.engines.converted import Converted
from keras_vit.engines.onnx import LARGEST_FILE, size_of
from keras_vit.engines.table import ENGINES, KERAS, fits, is_keras_on_cpu

# How far answers may be from those of Keras, of the largest of these.
TOLERANCES = {"float32": 2e-5, "bfloat16": 5e-2}
# Alternating runs by which two engines are compared.
_RUNS = 3


class Automatic:
    """Begins with Keras, and changes to the fastest engine once that pays.

    Attributes:
        engine: str, what computes.
        trials: dict of what was tried: {engine: seconds of a batch, or str, why not}.
    """

    def __init__(self, model, batch_size, precision):
        self._model, self._batch_size = model, batch_size
        self._precision = precision
        self._compiled = Compiled(model, batch_size, precision)
        # What computes is on the CPU, and a copy of the weights fits beside them.
        can_change = is_keras_on_cpu() and size_of(model) <= LARGEST_FILE
        self._engines = [
            name
            for name in (ENGINES if can_change else ())
            if name != KERAS and fits(model, name, precision)
        ]
        self._path = choices.path_of(model, batch_size, precision, self._engines)
        self._begin()

    def _begin(self):
        self.engine, self._answer, self.trials = KERAS, self._compiled, {}
        self._kept = choices.read(self._path, (KERAS, *self._engines))
        self._to_try = [self._kept] if self._kept else self._engines
        if self._kept == KERAS:
            self._to_try = []
        # The first batch is compiled for, which says nothing of the others.
        self._seconds = None

    def __call__(self, images):
        if self._answer is not self._compiled:
            if not self._answer.is_outdated():
                return self._answer.computed(images)
            self._begin()
        outputs = [self._of_batch(batch) for batch in split(images, self._batch_size)]
        return np.concatenate(outputs) if outputs[1:] else outputs[0]

    def _of_batch(self, images):
        if not self._to_try:
            return self._answer(images)
        if self._seconds is None:
            self._seconds = 0.0
            return self._answer(images)
        started = time.perf_counter()
        outputs = self._answer(images)
        self._seconds += time.perf_counter() - started
        needed = (conversion_seconds(self._model, name) for name in self._to_try)
        if self._seconds > sum(needed):
            self._choose(images, outputs)
        return outputs

    def _choose(self, images, expected):
        for engine in self._to_try:
            row = ENGINES[engine]
            other = Converted(self._model, self._batch_size, row, self._precision)
            try:
                found = other(images)
            # A model or a machine that a runtime does not take, in its own words.
            except Exception as error:
                self.trials[engine] = f"{type(error).__name__}: {error}"
                continue
            error, largest = np.abs(found - expected).max(), np.abs(expected).max()
            if not error <= TOLERANCES[self._precision] * largest:
                self.trials[engine] = (
                    f"its answers differ by {error:.1e}, of {largest:.1e} at most"
                )
                continue
            times = [
                [_seconds(answer, images) for answer in (self._answer, other)]
                for _ in range(_RUNS)
            ]
            own, others = map(float, np.min(times, axis=0))
            self.trials |= {self.engine: own, engine: others}
            if others < own:
                self.engine, self._answer = engine, other
        self._to_try = []
        if self.engine != self._kept:
            choices.write(self._path, self.engine, self.trials)


def conversion_seconds(model, engine):
    """Returns about how many seconds the conversion of a model takes."""
    return ENGINES[engine].cost * (1.0 + 5e-8 * model.count_params())


def _seconds(answer, images):
    started = time.perf_counter()
    answer(images)
    return time.perf_counter() - started
