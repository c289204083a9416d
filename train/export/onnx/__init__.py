"""Writer of ONNX files, graphs of a few standard operators.

The graph is written layer by layer instead of converted from TensorFlow's: that takes
a second on any backend of Keras, keeps layer norms and GELUs as the single operators
that runtimes optimize, and restricts half precision to where it is harmless.
"""

import collections
import contextlib
import importlib.metadata
import json
import pathlib

import keras
import numpy as np

from keras_vit.lean import blocks_for_class_token
from train.common import packages
from train.common.files import whole_file
from train.export.onnx.graph import Graph
from train.export.onnx.layers import function_of
from train.inference.model_writing import (
    check_class_names,
    check_one_output,
    facts_of,
    has_head,
)

# The first opset with a GELU operator, of October 2023.
OPSET = 20
# Protobuf's limit of 2 GiB, less room for the graph without its weights.
_LARGEST_FILE = 2**31 - 2**25
_PRECISIONS = ("float32", "float16")


def write_onnx(model, path, *, precision="float32", class_names=None):
    """Writes a model as an ONNX file of opset 20, with standard operators only.

    ONNX Runtime 1.17 and later run it, on any device. Its input `images` is float32
    (batch, height, width, channels) in [-1, 1], of any batch size and of the model's
    height and width; of a model for images of any size these are open as well. Its
    output is float32: `logits` (batch, classes), `probabilities` where the head has an
    activation, or `features` of a model without head.

    In float16 the file is half as large, and a tenth slower on ONNX Runtime's CPU
    device. Input and output, the statistics of norms, the softmax, and means over
    tokens or positions stay float32.

    The metadata are `opset`, `precision`, `input_range`, the head's `activation`, the
    `preparation` of photos (one of `zoo.photos.PREPARATIONS`) and, where there are any,
    `class_names`, a JSON list. Weights of 2 GB and more are in a second file with
    `.data` appended to the name; both must stay together under their names.

    Args:
        model: a functional `keras.Model` of `keras_vit`. Mixed precision is written as
            float32, and int8 weights as the floats that they represent.
        path: str or path of the file, in an existing folder.
        precision: `"float32"` or `"float16"`.
        class_names: None, or a sequence of str in the order of the logits.

    Raises:
        ValueError: the model has a layer of another library, an argument is unknown or
            does not fit the model, or a weight is too large for float16.
        RunError: the package onnx is missing, or the file cannot be written.

    Source:
        The operators: https://onnx.ai/onnx/operators.

    Example:
        >>> config = keras_vit.ViTConfig(hidden_size=24, num_layers=1, num_heads=3,
        ...                              mlp_dim=40, patch_size=16)
        >>> model = keras_vit.VisionTransformer(config, image_size=32, classes=2)
        >>> write_onnx(model, "model.onnx", class_names=["cat", "dog"])
    """
    if precision not in _PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(_PRECISIONS)}, got {precision!r}."
        )
    check_one_output(model)
    steps = _steps(model)
    if class_names is not None:
        check_class_names(class_names, model)
    packages.need("Writing ONNX", ("onnx",), extra="export")
    import onnx

    path = pathlib.Path(path)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    proto = onnx.ModelProto(
        ir_version=onnx.helper.find_min_ir_version_for(opsets),
        opset_import=opsets,
        producer_name="keras_vit",
        producer_version=importlib.metadata.version("keras_vit"),
    )
    metadata = {"opset": str(OPSET), "precision": precision, "input_range": "[-1, 1]"}
    metadata |= facts_of(model)
    if class_names is not None:
        metadata["class_names"] = json.dumps(list(class_names), ensure_ascii=False)
    onnx.helper.set_model_props(proto, metadata)
    size = model.count_params() * np.dtype(precision).itemsize
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(whole_file(path, "--out"))
        data = None
        if size > _LARGEST_FILE:
            beside = path.with_name(f"{path.name}.data")
            # Entered last, so put in place first.
            temporary = stack.enter_context(whole_file(beside, "--out"))
            data = stack.enter_context(temporary.open("wb"))
        _fill(Graph(onnx, proto.graph, precision, data), model, steps)
        if data is not None:
            data.flush()
        whole.write_bytes(proto.SerializeToString())
        onnx.checker.check_model(str(whole), full_check=True)
        if data is not None:
            # The weights were in a temporary file so far.
            for tensor in proto.graph.initializer:
                for entry in tensor.external_data:
                    if entry.key == "location":
                        entry.value = beside.name
            whole.write_bytes(proto.SerializeToString())


def _steps(model):
    """Returns the layer calls in order: {(name, index): (function, inputs, options)}.

    `inputs` are the calls whose outputs it takes, by the name of the argument, "" for
    the first one; that of the input layer is not among the calls.
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
    calls = {entry["name"]: entry["inbound_nodes"] for entry in config["layers"]}
    class_token_only = {block.name for block in blocks_for_class_token(model)}
    steps = {}

    def add(name, index, _):
        """Adds the call that an output comes from, behind those that it needs."""
        if (name, index) in steps or not calls[name]:
            return (name, index)
        call = calls[name][index]
        [argument], others = call["args"], call["kwargs"]
        # Of several tensors, which are the outputs of one call, the first.
        firsts = {
            key: one[0] if isinstance(one, (list, tuple)) and one else one
            for key, one in {"": argument, **others}.items()
        }
        inputs = {
            key: add(*first["config"]["keras_history"])
            for key, first in firsts.items()
            if _is_tensor(first)
        }
        options = {**others, **argument["config"]}
        if name in class_token_only:
            options["class_token_only"] = True
        steps[name, index] = function_of(model.get_layer(name)), inputs, options
        return (name, index)

    output = config["output_layers"]
    add(*(output if isinstance(output[0], str) else output[0]))
    return steps


def _is_tensor(value):
    return isinstance(value, dict) and value.get("class_name") == "__keras_tensor__"


def _fill(graph, model, steps):
    graph.proto.name = model.name
    output = "features"
    if has_head(model):
        linear = model.layers[-1].activation is keras.activations.linear
        output = "logits" if linear else "probabilities"
    # Names of sides that the file leaves open.
    sides = {"images": ["batch", "height", "width"], output: ["batch"]}
    shapes = {"images": model.input_shape, output: model.output_shape}
    for known, name in ((graph.proto.input, "images"), (graph.proto.output, output)):
        kind, names = graph.onnx.TensorProto.FLOAT, iter(sides[name])
        shape = [next(names, None) if side is None else side for side in shapes[name]]
        known.append(graph.onnx.helper.make_tensor_value_info(name, kind, shape))
    images = graph.cast("images", "FLOAT16")
    values = collections.defaultdict(lambda: images)
    for (name, index), (function, inputs, options) in steps.items():
        graph.scope = name
        found = {key: values[source] for key, source in inputs.items()}
        value = found.pop("")
        value = function(graph, model.get_layer(name), value, name, **options | found)
        values[name, index] = value
    graph.scope = "output"
    graph.cast(value, "FLOAT")
    graph.proto.node[-1].output[0] = output
