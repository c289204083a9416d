"""ONNX Runtime, on the CPU."""

import pathlib
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.runtimes.onnx import write
from zoo.common.machine import threads
from zoo.runtimes import onnx_session


def converted(
    model: keras.Model, shape: tuple[int | None, ...], precision: str, folder: str
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from images to a model's outputs; writes into the folder."""
    path = write(model, pathlib.Path(folder, "model.onnx"))
    session = onnx_session(str(path), threads())

    def run(images: np.ndarray) -> np.ndarray:
        [outputs] = session.run(None, {"images": images})
        return outputs

    return run
