"""OpenVINO, on the CPU."""

import tempfile

from keras_vit.engines.onnx import write


def make(model, shape, precision):
    """Returns a function from images to a model's outputs."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        # It takes bfloat16 by default where the processor has it.
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
    }
    with tempfile.TemporaryDirectory() as folder:
        graph = openvino.Core().read_model(write(model, folder))
        compiled = openvino.Core().compile_model(graph, "CPU", settings)
    request = compiled.create_infer_request()

    def run(images):
        [outputs] = request.infer({"images": images}, share_inputs=True).values()
        return outputs

    return run
