"""LiteRT, which runs TFLite files, and the conversion to these on TensorFlow."""

import concurrent.futures
import contextlib
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_vit.layers.forward_pass import running
from keras_vit.runtimes.batches import parts_side_by_side
from keras_vit.runtimes.precision import in_float32
from zoo.common.machine import threads


def converted(
    model: keras.Model, shape: tuple[int | None, ...], precision: str, folder: str
) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function from images of a shape to a model's outputs."""
    from ai_edge_litert.interpreter import Interpreter

    model = in_float32(model)

    def call(images: tf.Tensor) -> Any:
        return model(images, training=False)

    count, *sides = shape
    parts = parts_side_by_side(count, precision)
    images = tf.TensorSpec((count // parts, *sides), model.inputs[0].dtype)
    kind = {"float32": "float32", "int8": "dynamic"}[precision]
    content = tflite(model, call, images, kind)
    interpreters = [
        Interpreter(model_content=content, num_threads=threads() // parts)
        for _ in range(parts)
    ]
    for interpreter in interpreters:
        interpreter.allocate_tensors()
    [source] = interpreters[0].get_input_details()
    [target] = interpreters[0].get_output_details()
    pool = concurrent.futures.ThreadPoolExecutor(parts)

    def of_part(interpreter: Interpreter, images: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(target["index"])

    def run(images: np.ndarray) -> np.ndarray:
        halves = np.split(images, parts)
        return np.concatenate([*pool.map(of_part, interpreters, halves)])

    return run


def tflite(
    model: keras.Model,
    call: Callable[[tf.Tensor], Any],
    images: tf.TensorSpec,
    precision: str,
) -> bytes:
    """Returns the bytes of a TFLite file of built-in operations, with one signature.

    The model's variables become constants, and the file returns what `call` does.
    `precision` is `"float32"`; `"float16"`, of weights; or `"dynamic"`, matrices in
    int8, multiplied in int8 with a scale that is computed at run time. Raises a
    `ValueError` where the model computes what TFLite does not.
    """

    def without_loops(images: tf.Tensor) -> Any:
        with running(whole_scores=True):
            return call(images)

    module = tf.Module()
    module.variables_of_model = [variable.value for variable in model.variables]
    module.call = tf.function(without_loops, input_signature=[images], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.call.get_concrete_function()], module
    )
    # Weights as constants, not as variables that callers would have to initialize.
    converter.experimental_enable_resource_variables = False
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        with quiet_tensorflow():
            return converter.convert()
    # Its errors have no public class.
    except Exception as error:
        missing = dict.fromkeys(re.findall(r"'(tf\.\w+)' op is neither", str(error)))
        if missing:
            raise ValueError(
                f"{model.name} computes {', '.join(missing)}, for which TFLite has no "
                "built-in operation: use a SavedModel or ONNX, or replace the layer "
                "that does."
            ) from error
        first, *_ = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(
            f"{model.name} cannot be converted to TFLite: {first}"
        ) from error


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hides TensorFlow's messages below warnings, of the folders that it writes to."""
    before = logging.root.manager.disable
    # Levels do not help: while it saves, TensorFlow resets that of absl.
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)
