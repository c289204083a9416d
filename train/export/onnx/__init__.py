"""A model as an ONNX file, a graph of a few standard operators.

The graph is written layer by layer rather than converted from TensorFlow's: it comes
out in a second with any backend of Keras, keeps layer norms and GELUs as the single
operators that runtimes are fast with, and half precision where it is harmless.
"""

import contextlib
import importlib.metadata
import json
import pathlib

import keras
import numpy as np

from keras_vit.lean import blocks_for_class_token
from train.common.errors import RunError
from train.common.files import whole_file
from train.export.onnx.graph import Graph
from train.export.onnx.layers import function_of
from train.inference.heads import has_head
from train.inference.model_writing import check_class_names

# The first with GELU as an operator, of October 2023.
OPSET = 20
# Protobuf reads no file of 2 GiB; the graph without its weights takes less than this.
_LARGEST_FILE = 2**31 - 2**25
_PRECISIONS = ("float32", "float16")


def write_onnx(model, path, *, precision="float32", class_names=None):
    """Writes a model as ONNX of opset 20, with standard operators alone.

    ONNX Runtime 1.17 and later run it, on any device. Its input `images` is float32
    (batch, height, width, channels) in [-1, 1], of any batch and of the model's height
    and width. Its output is float32: `logits` (batch, classes); `probabilities` where
    the head has an activation; or `features` of a model without head, which without
    pooling are those of all tokens.

    With `precision="float16"` weights and computation are in float16, but for the
    statistics of norms, the softmax and means over tokens or places, which are in
    float32; so are input and output. The file is half as large. ONNX Runtime's CPU
    device converts as it goes and is a tenth slower with it.

    The metadata has `opset`, `precision`, `input_range` and, where there are any,
    `class_names`, as a JSON list.

    Weights of 2 GB and more do not fit into an ONNX file. They are then in a second
    one beside it, of the same name with `.data` behind it, and both must stay
    together under their names. It takes its place just before the first does.

    Args:
        model: a functional `keras.Model` of `keras_vit`, of any variant, head and
            pooling. One of mixed precision is written as what it is in float32, and
            one with int8 weights with what these stand for.
        path: str or path of the file, in a folder that is there.
        precision: `"float32"` or `"float16"`.
        class_names: None, or a sequence of str in the order of the logits.

    Raises:
        ValueError: the model has a layer that is not ours, an argument is unknown or
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
    steps = _steps(model)
    if class_names is not None:
        check_class_names(class_names, model)
    onnx = _package()
    path = pathlib.Path(path)
    proto = onnx.ModelProto(
        ir_version=onnx.helper.find_min_ir_version_for(
            [onnx.helper.make_opsetid("", OPSET)]
        ),
        opset_import=[onnx.helper.make_opsetid("", OPSET)],
        producer_name="keras_vit",
        producer_version=importlib.metadata.version("keras_vit"),
    )
    _add_metadata(proto, precision, class_names)
    size = model.count_params() * np.dtype(precision).itemsize
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(whole_file(path))
        data = None
        if size > _LARGEST_FILE:
            beside = path.with_name(f"{path.name}.data")
            # What is entered last leaves first.
            temporary = stack.enter_context(whole_file(beside))
            data = stack.enter_context(temporary.open("wb"))
        _fill(Graph(onnx, proto.graph, precision, data), model, steps)
        if data is not None:
            data.flush()
        whole.write_bytes(proto.SerializeToString())
        onnx.checker.check_model(str(whole), full_check=True)
        if data is not None:
            _relocate(proto.graph, beside.name)
            whole.write_bytes(proto.SerializeToString())


def _package():
    try:
        import onnx
    except ImportError as error:
        raise RunError(
            "Writing ONNX needs the package onnx, which is not installed: "
            "pip install onnx"
        ) from error
    return onnx


def _steps(model):
    """The calls of layers from images to output: (layer's name, function, options)."""
    try:
        config = model.get_config()
    except NotImplementedError:
        config = {}  # of a class with arguments of its own
    if (
        "output_layers" not in config
        or not len(model.inputs) == len(model.outputs) == 1
    ):
        raise ValueError(
            f"{model.name} is no functional model of one input and one output: pass a "
            "model as keras_vit makes it."
        )
    calls = {entry["name"]: entry["inbound_nodes"] for entry in config["layers"]}
    output, steps = config["output_layers"], []
    alone = {block.name for block in blocks_for_class_token(model)}
    name, index, _ = output if isinstance(output[0], str) else output[0]
    while calls[name]:
        function, call = function_of(model.get_layer(name)), calls[name][index]
        [taken] = call["args"]
        options = {**call["kwargs"], **taken["config"]}
        if name in alone:
            options["class_token_only"] = True
        steps.append((name, function, options))
        name, index, _ = taken["config"]["keras_history"]
    return steps[::-1]


def _add_metadata(proto, precision, class_names):
    metadata = {"opset": OPSET, "precision": precision, "input_range": "[-1, 1]"}
    if class_names is not None:
        metadata["class_names"] = json.dumps(list(class_names), ensure_ascii=False)
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=str(value))


def _fill(graph, model, steps):
    """Writes the whole graph."""
    graph.proto.name = model.name
    output = "features"
    if has_head(model):
        linear = model.layers[-1].activation is keras.activations.linear
        output = "logits" if linear else "probabilities"
    shapes = {"images": model.input_shape, output: model.output_shape}
    for known, name in ((graph.proto.input, "images"), (graph.proto.output, output)):
        kind, shape = graph.onnx.TensorProto.FLOAT, ["batch", *shapes[name][1:]]
        known.append(graph.onnx.helper.make_tensor_value_info(name, kind, shape))
    value = graph.narrow("images")
    for name, function, options in steps:
        graph.scope = name
        value = function(graph, model.get_layer(name), value, name, **options)
    graph.scope = "output"
    graph.widen(value)
    # The last node gives what the last layer does.
    graph.proto.node[-1].output[0] = output


def _relocate(proto, name):
    """Says that the weights are in another file."""
    for tensor in proto.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = name
