"""A model in the runtime of its format: the program of a process of its own.

`train.export.parity` starts it with one JSON object:

    {"runtime": "keras", "path": ..., "threads": ..., "images": ..., "batches": ...,
     "answers": ..., "seconds": ...}

"images" is a file of so many batches, one array after the other, which are read one at
a time: the peak memory is the model's and not the data's. To stdout go JSON lines:
{"done": images} after each batch, at last {"version", "one_by_one", "latency",
"peak_bytes"} or {"error"}. The answers go to a file, as an array.

No import here is another runtime's: their memory would be counted too.
"""

import importlib.metadata
import json
import os
import statistics
import sys
import time
import traceback

import numpy as np

from train.common.hardware import peak_bytes

BATCH = 8
_WARM_UP = 2
_MIN_REPEATS = 5
_ERROR_LINES = 3


def main():
    """Runs the model, and tells what was measured."""
    told = _private_stdout()

    def tell(**message):
        told.write(json.dumps(message) + "\n")
        told.flush()

    try:
        tell(**_measured(json.loads(sys.argv[1]), tell))
    except Exception as error:
        lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
        tell(error=" ".join(line.strip() for line in lines[:_ERROR_LINES]))
        sys.exit(1)


def _measured(settings, tell):
    load = {"keras": keras, "saved_model": saved_model, "tflite": tflite, "onnx": onnx}
    run, facts = load[settings["runtime"]](settings["path"], settings["threads"])
    answers = []
    with open(settings["images"], "rb") as file:
        for index in range(settings["batches"]):
            images = np.load(file)
            if index == 0:
                some = np.resize(images, (BATCH, *images.shape[1:]))
            answers.append(run(images))
            tell(done=len(images))
    latency = {
        str(batch): _seconds(run, some[:batch], settings["seconds"])
        for batch in (1, BATCH)
    }
    np.save(settings["answers"], np.concatenate(answers))
    return {"latency": latency, "peak_bytes": peak_bytes(), **facts}


def keras(path, threads):
    """Returns a function from images to answers, and facts, of a `.keras` file."""
    tensorflow = _tensorflow(threads)
    import keras

    import keras_vit

    model = keras.saving.load_model(path, compile=False)
    version = f"Keras {keras.__version__} on TensorFlow {tensorflow.__version__}"
    return keras_vit.Predictor(model, BATCH), _facts(version)


def saved_model(path, threads):
    """Returns a function from images to answers, and facts, of a SavedModel."""
    tensorflow = _tensorflow(threads)
    loaded = tensorflow.saved_model.load(path)
    signature = loaded.signatures["serving_default"]
    [name] = signature.structured_input_signature[1]

    def run(images):
        [answers] = signature(**{name: tensorflow.constant(images)}).values()
        return answers.numpy()

    run.model = loaded  # which the signature alone does not keep
    return run, _facts(f"TensorFlow {tensorflow.__version__}")


def tflite(path, threads):
    """Returns a function from images to answers, and facts, of a TFLite file.

    A model of a fixed batch gets the images one by one.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    [taken], [given] = interpreter.get_input_details(), interpreter.get_output_details()
    one_by_one = int(taken["shape_signature"][0]) != -1

    def of_batch(images):
        if tuple(interpreter.get_input_details()[0]["shape"]) != images.shape:
            interpreter.resize_tensor_input(taken["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(taken["index"], quantised(images, taken))
        interpreter.invoke()
        return dequantised(interpreter.get_tensor(given["index"]), given)

    def run(images):
        if not one_by_one:
            return of_batch(images)
        return np.concatenate([of_batch(image[None]) for image in images])

    interpreter.allocate_tensors()
    version = importlib.metadata.version("ai-edge-litert")
    return run, _facts(f"LiteRT {version}", one_by_one)


def onnx(path, threads):
    """Returns a function from images to answers, and facts, of an ONNX file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
    )
    [taken] = session.get_inputs()
    dtype = {"tensor(float)": "float32", "tensor(float16)": "float16"}[taken.type]

    def run(images):
        [answers] = session.run(None, {taken.name: images.astype(dtype)})
        return answers.astype("float32")

    return run, _facts(f"ONNX Runtime {onnxruntime.__version__}")


def quantised(values, tensor):
    """Returns numbers as a tensor of LiteRT takes them.

    Args:
        values: float array.
        tensor: dict, what LiteRT tells of the tensor.

    Example:

    >>> tensor = {"dtype": np.uint8, "quantization": (2 / 255, 128)}
    >>> quantised(np.array([-1.01, 0.0, 1.0]), tensor)
    array([  0, 128, 255], dtype=uint8)
    """
    dtype = tensor["dtype"]
    if np.issubdtype(dtype, np.floating):
        return values.astype(dtype)
    scale, zero = tensor["quantization"]
    limits = np.iinfo(dtype)
    return np.clip(np.round(values / scale) + zero, limits.min, limits.max).astype(
        dtype
    )


def dequantised(values, tensor):
    """Returns what a tensor of LiteRT holds as float32.

    Args:
        values: array of the tensor's type.
        tensor: dict, what LiteRT tells of the tensor.

    Example:

    >>> tensor = {"dtype": np.int8, "quantization": (0.5, -128)}
    >>> dequantised(np.array([-128, 127], "int8"), tensor)
    array([  0. , 127.5], dtype=float32)
    """
    values = values.astype("float32")
    if np.issubdtype(tensor["dtype"], np.floating):
        return values
    scale, zero = tensor["quantization"]
    return (values - np.float32(zero)) * np.float32(scale)


def _tensorflow(threads):
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    return tensorflow


def _facts(version, one_by_one=False):
    return {"version": version, "one_by_one": one_by_one}


def _private_stdout():
    """Keeps stdout for itself: what libraries print goes to stderr."""
    told = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return told


def _seconds(run, images, seconds):
    """The median of repeated calls."""
    for _ in range(_WARM_UP):
        run(images)
    times = []
    while len(times) < _MIN_REPEATS or sum(times) < seconds:
        started = time.perf_counter()
        run(images)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
