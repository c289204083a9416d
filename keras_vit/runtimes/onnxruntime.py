"""ONNX Runtime, on the CPU."""

import tempfile

from keras_vit.runtimes.onnx import write
from zoo.machine import threads
from zoo.runtimes import onnx_session


def make(model, shape, precision):
    """Returns a function from images to a model's outputs."""
    with tempfile.TemporaryDirectory() as folder:
        session = onnx_session(str(write(model, folder)), threads())

    def run(images):
        [outputs] = session.run(None, {"images": images})
        return outputs

    return run
