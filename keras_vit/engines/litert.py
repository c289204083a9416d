"""LiteRT, which runs TFLite files."""

import tensorflow as tf

from keras_vit.engines.precision import in_precision
from keras_vit.engines.table import threads
from keras_vit.engines.tflite import convert


def make(model, shape, precision):
    """Returns a function from images of a shape to a model's outputs."""
    from ai_edge_litert.interpreter import Interpreter

    model = in_precision(model)

    def call(images):
        return model(images, training=False)

    images = tf.TensorSpec(shape, model.inputs[0].dtype)
    kind = {"float32": "float32", "int8": "dynamic"}[precision]
    content = convert(model, call, images, kind)
    interpreter = Interpreter(model_content=content, num_threads=threads())
    interpreter.allocate_tensors()
    [source] = interpreter.get_input_details()
    [target] = interpreter.get_output_details()

    def run(images):
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(target["index"])

    return run
