"""ONNX Runtime, on the CPU."""

import tempfile

from keras_vit.runtimes.onnx import write
from zoo.machine import threads


def make(model, shape, precision):
    """Returns a function from images to a model's outputs."""
    import onnxruntime

    # On some systems it writes files of what it is used for.
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads()
    with tempfile.TemporaryDirectory() as folder:
        session = onnxruntime.InferenceSession(
            str(write(model, folder)), options, providers=["CPUExecutionProvider"]
        )

    def run(images):
        [outputs] = session.run(None, {"images": images})
        return outputs

    return run
