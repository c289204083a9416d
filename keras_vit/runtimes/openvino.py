"""OpenVINO, on the CPU."""

import functools
import pathlib
from collections.abc import Callable

import keras
import numpy as np

from keras_vit.runtimes.batches import parts_side_by_side
from keras_vit.runtimes.onnx import write

# Values of a token that share a scale in int8.
_GROUP = 192


def converted(
    model: keras.Model,
    shape: tuple[int | None, ...],
    precision: str,
    folder: str,
    rest: str = "f32",
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from images to a model's outputs; writes into the folder.

    In int8 `rest` is what OpenVINO computes all but products of matrices in.
    """
    import openvino

    kept = "int8" if precision == "int8" else "float32"
    path = write(model, pathlib.Path(folder, "model.onnx"), precision=kept)
    settings: dict[str, str | int] = {
        # It takes bfloat16 by default where the processor has it.
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else rest,
    }
    if precision == "int8":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _GROUP
    core = openvino.Core()
    graph = core.read_model(path)

    @functools.cache
    def requests(count: int) -> list:
        """Returns so many, which compute side by side."""
        streams = (
            {"PERFORMANCE_HINT": "LATENCY"} if count == 1 else {"NUM_STREAMS": count}
        )
        compiled = core.compile_model(graph, "CPU", settings | streams)
        return [compiled.create_infer_request() for _ in range(count)]

    def run(images: np.ndarray) -> np.ndarray:
        parts = np.split(images, parts_side_by_side(len(images), precision))
        running = list(zip(requests(len(parts)), parts, strict=True))
        try:
            for request, part in running:
                request.start_async({"images": part}, share_inputs=True)
        finally:
            # Also where one does not start: another has the memory of its part.
            for request, _ in running:
                request.wait()
        outputs = [request.get_output_tensor(0).data for request, _ in running]
        return np.concatenate(outputs)

    return run
