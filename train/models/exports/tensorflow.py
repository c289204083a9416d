"""TensorFlow: loads SavedModels, whose sizes are checked before it takes memory."""

import graphlib
import json
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from train.models.exports import graph_sizes
from train.models.exports.description import FACTS, ExportedModel, Facts
from train.models.run_directory import read_names
from zoo.common import limits
from zoo.common.regular_files import read_text

if TYPE_CHECKING:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

# Values are read of constants of at most this many numbers.
_SMALL = 64
# TensorFlow's operations have these names in ONNX.
_NAMES = {
    "BroadcastTo": "Expand", "Cast": "Cast", "ConcatV2": "Concat",
    "ExpandDims": "Unsqueeze", "Fill": "ConstantOfShape", "Identity": "Identity",
    "MirrorPad": "Pad", "Mul": "Mul", "Neg": "Neg", "Pack": "Concat", "Pad": "Pad",
    "PadV2": "Pad", "Range": "Range", "Relu": "Relu", "Reshape": "Reshape",
    "ResizeBicubic": "Resize", "ResizeBilinear": "Resize",
    "ResizeNearestNeighbor": "Resize", "Sqrt": "Sqrt", "Squeeze": "Squeeze",
    "StatelessRandomUniform": "ConstantOfShape",
    "StatelessRandomUniformV2": "ConstantOfShape", "Tile": "Tile",
}  # fmt: skip


def load(path: str, threads: int | None = None) -> ExportedModel:
    """Loads a SavedModel."""
    tensorflow = tensorflow_on(threads)
    loaded = tensorflow.saved_model.load(path)

    def function(name: str) -> Callable[[np.ndarray], np.ndarray]:
        signature = loaded.signatures[name]
        [argument] = signature.structured_input_signature[1]

        def run(images: np.ndarray) -> np.ndarray:
            inputs = {argument: tensorflow.constant(images)}
            [answers] = signature(**inputs).values()
            return answers.numpy()

        # The signature alone does not keep it alive.
        run.model = loaded  # type: ignore[attr-defined]
        return run

    signature = loaded.signatures["serving_default"]
    [source] = signature.structured_input_signature[1].values()
    [(output, target)] = signature.structured_outputs.items()
    has_features = output != "features" and "features" in loaded.signatures
    names = pathlib.Path(path, "assets", "class_names.txt")
    file = pathlib.Path(path, "assets.extra", FACTS)
    said = json.loads(read_text(file, limits.NOTE_BYTES)) if file.exists() else {}
    facts = Facts.of_texts(said)
    return ExportedModel(
        function("serving_default"),
        f"TensorFlow {tensorflow.__version__}",
        (*(facts.image_size or source.shape[1:3]), *source.shape[3:]),
        tuple(target.shape),
        output,
        class_names=read_names(names) if names.exists() else None,
        features=function("features") if has_features else None,
        **vars(facts),
    )


def tensorflow_on(threads: int | None) -> Any:
    """Imports TensorFlow, and sets its threads unless they are None."""
    import tensorflow

    if threads is not None:
        tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
        tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    return tensorflow


def check_sizes(model: "SavedModel") -> None:
    """Raises a `ValueError` for tensors of far more numbers than any model has.

    Known are the sizes that a SavedModel declares, and those of what operations fill,
    repeat or pad by constants of their function. Sizes that it computes of its images
    are not.
    """
    for meta_graph in model.meta_graphs:
        graph = meta_graph.graph_def
        _check(graph.node)
        for function in graph.library.function:
            _check(function.node_def)


def _check(nodes):
    nodes = {node.name: node for node in nodes}
    sizes = graph_sizes.Sizes()
    for name, node in nodes.items():
        for attribute in node.attr.values():
            for shape in _shapes(attribute):
                graph_sizes.check_size(_sides(shape))
        if node.op == "Const":
            tensor = node.attr["value"].tensor
            sizes.shapes[name] = _sides(tensor.tensor_shape)
            sizes.constants[name] = _values(tensor)
    inputs = {name: [*map(_name, node.input)] for name, node in nodes.items()}
    for name in graphlib.TopologicalSorter(inputs).static_order():
        node = nodes.get(name)
        if node is not None and (operation := _NAMES.get(node.op)):
            # The last input is the axis.
            tensors = inputs[name][: -1 if node.op == "ConcatV2" else None]
            sizes.add_of_tensorflow(operation, tensors, [name])


def _shapes(attribute):
    match attribute.WhichOneof("value"):
        case "shape":
            return [attribute.shape]
        case "tensor":
            return [attribute.tensor.tensor_shape]
        case "list":
            tensors = (tensor.tensor_shape for tensor in attribute.list.tensor)
            return [*attribute.list.shape, *tensors]
    return []


def _name(tensor):
    """Returns the operation whose output a tensor is, such as `^a`, `a:1`, `a:y:0`."""
    return tensor.removeprefix("^").partition(":")[0]


def _sides(shape):
    return [side.size for side in shape.dim]


def _values(tensor):
    """Returns the numbers of a small tensor, None of a large one or of texts."""
    import tensorflow as tf

    sides = _sides(tensor.tensor_shape)
    if not all(0 < side <= _SMALL for side in sides) or len(sides) > 2:
        return None
    try:
        values = tf.make_ndarray(tensor)
    except (TypeError, KeyError):  # of a type that has no numbers, or is not known
        return None
    is_small = values.size <= _SMALL and values.dtype.kind in "iuf"
    return values.ravel().tolist() if is_small else None
