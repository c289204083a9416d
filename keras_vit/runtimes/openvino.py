"""OpenVINO, on the CPU."""

import tempfile

from keras_vit.runtimes.onnx import write

# Values of a token that share a scale in int8.
_GROUP = 192


def make(model, shape, precision):
    """Returns a function from images to a model's outputs."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        # It takes bfloat16 by default where the processor has it.
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bfloat16" else "f32",
    }
    weights = "float32"
    if precision == "int8":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _GROUP
        weights = "int8"
    with tempfile.TemporaryDirectory() as folder:
        graph = openvino.Core().read_model(write(model, folder, weights))
        compiled = openvino.Core().compile_model(graph, "CPU", settings)
    request = compiled.create_infer_request()

    def run(images):
        [outputs] = request.infer({"images": images}, share_inputs=True).values()
        return outputs

    return run
