"""ONNX Runtime, on the CPU."""

import os
import pathlib
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.runtimes.onnx import write
from zoo.common.machine import threads
from zoo.runtimes import onnx_session


def convert(
    model: keras.Model, shape, precision: str, folder: str | os.PathLike
) -> pathlib.Path:
    """Writes a model into a folder; returns the path of the file."""
    return write(model, pathlib.Path(folder, "model.onnx"))


def load(path: str | os.PathLike, precision: str) -> Callable:
    """Returns a function from images to a model's outputs."""
    session = onnx_session(str(path), threads())

    def run(images) -> np.ndarray:
        [outputs] = session.run(None, {"images": images})
        return outputs

    return run
