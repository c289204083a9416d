"""A model that another runtime computes, from a conversion of its weights."""

import importlib
import tempfile

import keras
import numpy as np

from keras_vit.runtimes.batches import filled, in_batches
from keras_vit.runtimes.staleness import Values
from zoo.runtimes import RUNTIMES


class Converted:
    """A model in another runtime, converted anew once its weights have changed."""

    def __init__(
        self, model: keras.Model, batch_size: int, precision: str, engine: str
    ):
        self.engine = engine
        self._model, self._batch_size = model, batch_size
        self._precision = precision
        self._runtime = importlib.import_module(f"keras_vit.runtimes.{engine}")
        self._values: Values | None = None
        # By the number of images that they take, None for any.
        self._runs = {}

    def is_outdated(self) -> bool:
        """Returns whether weights have changed since the model was converted."""
        return self._values is None or not self._values.hold()

    def update(self) -> None:
        """Has the model converted anew where its weights have changed."""
        if self.is_outdated():
            # Before the conversion, during which another thread may change them.
            self._runs, self._values = {}, Values(self._model)

    def __call__(self, images):
        self.update()
        return self.computed(images)

    def computed(self, images: np.ndarray) -> np.ndarray:
        """Returns the outputs by the weights that the model was converted with."""
        return in_batches(self._answer, images, self._batch_size)

    def _answer(self, images):
        count = None
        if RUNTIMES[self.engine].of_one_shape:
            # Convert for the first call's number of images and for whole batches only.
            sizes = {*(self._runs or [len(images)]), self._batch_size}
            count = min(size for size in sizes if size >= len(images))
        if count not in self._runs:
            shape = (count, *self._model.input_shape[1:])
            with tempfile.TemporaryDirectory() as folder:
                self._runs[count] = self._runtime.converted(
                    self._model, shape, self._precision, folder
                )
        given = images if count is None else filled(images, count)
        return self._runs[count](given)[: len(images)]
