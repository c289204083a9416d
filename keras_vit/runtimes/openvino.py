"""OpenVINO, on the CPU."""

import pathlib
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.runtimes.onnx import write

# Values of a token that share a scale in int8.
_GROUP = 192


def converted(
    model: keras.Model, shape: tuple[int | None, ...], precision: str, folder: str
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from images to a model's outputs; writes into the folder."""
    import openvino

    kept = "int8" if precision == "int8" else "float32"
    path = write(model, pathlib.Path(folder, "model.onnx"), precision=kept)
    settings: dict[str, str | int] = {
        "PERFORMANCE_HINT": "LATENCY",
        # It takes bfloat16 by default where the processor has it.
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32",
    }
    if precision == "int8":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _GROUP
    graph = openvino.Core().read_model(path)
    compiled = openvino.Core().compile_model(graph, "CPU", settings)
    request = compiled.create_infer_request()

    def run(images: np.ndarray) -> np.ndarray:
        [outputs] = request.infer({"images": images}, share_inputs=True).values()
        return outputs

    return run
