"""Writer of ONNX graphs of a few standard operators.

The graph is written layer by layer instead of converted from TensorFlow's: that takes
a second on any backend of Keras, keeps layer norms and GELUs as the single operators
that runtimes optimize, and restricts half precision to where it is harmless.
"""

import contextlib
import os
import pathlib
from typing import Any

import keras
import numpy as np

from keras_vit.runtimes.onnx.graph import Graph
from keras_vit.runtimes.onnx.layers import function_of
from keras_vit.version import __version__

# The first opset with a GELU operator, of October 2023.
OPSET = 20
# Protobuf's limit of 2 GiB, less room for the graph without its weights.
LARGEST_FILE = 2**31 - 2**25


def write(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    output: str = "outputs",
    precision: str = "float32",
    metadata: dict[str, str] | None = None,
) -> pathlib.Path:
    """Writes a functional model of `keras_vit` as an ONNX file; returns its path.

    Its input is called `images`. Larger weights than the file can hold are beside it,
    in one with `.data` appended to its name. `precision` is `"float32"`, `"float16"`,
    or `"int8"` of matrices with a scale per column; `metadata` are texts by name.
    """
    import onnx

    path = pathlib.Path(path)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.ModelProto(
        ir_version=onnx.helper.find_min_ir_version_for(opsets),
        opset_import=opsets,
        producer_name="keras_vit",
        producer_version=__version__,
    )
    onnx.helper.set_model_props(proto, metadata or {})
    config = config_of(model)
    with contextlib.ExitStack() as stack:
        data = None
        kept = "float16" if precision == "float16" else "float32"
        if size_of(model, kept) > LARGEST_FILE:
            beside = path.with_name(f"{path.name}.data")
            data = stack.enter_context(beside.open("wb"))
        _fill(Graph(onnx, proto.graph, precision, data), model, config, output)
    path.write_bytes(proto.SerializeToString())
    return path


def size_of(model: keras.Model, precision: str = "float32") -> int:
    """Returns the bytes of a model's weights."""
    return model.count_params() * np.dtype(precision).itemsize


def config_of(model: keras.Model) -> dict:
    """Returns the config of a functional model of layers that can be written.

    Raises a `ValueError` for others, before anything is written.
    """
    try:
        config = model.get_config()
    except NotImplementedError:
        config = {}  # of a subclass with arguments of its own
    if (
        "output_layers" not in config
        or not len(model.inputs) == len(model.outputs) == 1
    ):
        raise ValueError(
            f"{model.name} is not a functional model of one input and one output: pass "
            "a model of keras_vit."
        )
    for operation in model.operations:
        if isinstance(operation, keras.Model):
            config_of(operation)
        elif not isinstance(operation, keras.layers.InputLayer):
            function_of(operation)
    return config


def _fill(graph, model, config, output):
    graph.proto.name = model.name
    # Names of sides that the file leaves open.
    sides = {"images": ["batch", "height", "width"], output: ["batch"]}
    shapes = {"images": model.input_shape, output: model.output_shape}
    for known, name in ((graph.proto.input, "images"), (graph.proto.output, output)):
        kind, names = graph.onnx.TensorProto.FLOAT, iter(sides[name])
        shape = [next(names, None) if side is None else side for side in shapes[name]]
        known.append(graph.onnx.helper.make_tensor_value_info(name, kind, shape))
    value = _add(graph, model, config, graph.cast("images", "FLOAT16"))
    graph.scope = "output"
    graph.cast(value, "FLOAT")
    graph.proto.node[-1].output[0] = output


def _add(graph, model, config, images):
    """Adds a model's layers, and those of models in it; returns the output's name."""
    calls = {entry["name"]: entry["inbound_nodes"] for entry in config["layers"]}
    class_token_block = getattr(model, "class_token_block", None)
    # With those that are no layers, such as `tokens[:, 0]`.
    operations = {one.name: one for one in model.operations}
    values = {}

    def value_of(name: str, index: int, _: int) -> Any:
        """Returns the value of a layer's call, added behind those that it needs."""
        if not calls[name]:
            return images
        if (name, index) in values:
            return values[name, index]
        layer, call = operations[name], calls[name][index]
        [argument], others = call["args"], call["kwargs"]
        # Several tensors are the outputs of one call: take the first.
        firsts = {
            key: one[0] if isinstance(one, (list, tuple)) and one else one
            for key, one in {"": argument, **others}.items()
        }
        inputs = {
            key: value_of(*first["config"]["keras_history"])
            for key, first in firsts.items()
            if _is_tensor(first)
        }
        value, options = inputs.pop(""), dict(others)
        if isinstance(layer, keras.layers.Concatenate):
            value = [value_of(*one["config"]["keras_history"]) for one in argument]
        else:
            options |= argument["config"]
        graph.scope = name
        if isinstance(layer, keras.Model):
            outside, graph.prefix = graph.prefix, f"{graph.prefix}{name}/"
            values[name, index] = _add(graph, layer, layer.get_config(), value)
            graph.prefix = outside
            return values[name, index]
        if layer is class_token_block:
            options["class_token_only"] = True
        function = function_of(layer)
        values[name, index] = function(graph, layer, value, name, **options | inputs)
        return values[name, index]

    last = config["output_layers"]
    return value_of(*(last if isinstance(last[0], str) else last[0]))


def _is_tensor(value):
    return isinstance(value, dict) and value.get("class_name") == "__keras_tensor__"
