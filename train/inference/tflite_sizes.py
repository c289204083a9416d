"""What a TFLite file says of sizes, before its runtime takes memory."""

import mmap

import numpy as np

from train.inference import graph_sizes
from zoo.regular_files import open_regular

# Bytes of a tensor whose values are read.
_SMALL = 256
# Operations of TFLite by the names of ONNX.
_NAMES = {
    "BROADCAST_TO": "Expand", "CAST": "Cast", "CONCATENATION": "Concat",
    "EXPAND_DIMS": "Unsqueeze", "FILL": "ConstantOfShape", "MIRROR_PAD": "Pad",
    "MUL": "Mul", "NEG": "Neg", "PACK": "Concat", "PAD": "Pad", "PADV2": "Pad",
    "RANGE": "Range", "RELU": "Relu", "RESHAPE": "Reshape",
    "RESIZE_BILINEAR": "Resize", "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "SQRT": "Sqrt", "SQUEEZE": "Squeeze", "TILE": "Tile",
}  # fmt: skip


def check_sizes(path):
    """Refuses tensors of far more numbers than any model has.

    Known are the sizes that the file declares, and those of what operations fill,
    repeat or pad by constants. Sizes that a graph computes of its images are not.

    Args:
        path: path of a `.tflite` file.

    Raises:
        ValueError: there are such.
        OSError: it cannot be read.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    schema = flatbuffer_utils.schema_fb
    with open_regular(path) as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = schema.Model.GetRootAs(content)
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    types = {
        schema.TensorType.FLOAT32: "<f4",
        schema.TensorType.INT32: "<i4",
        schema.TensorType.INT64: "<i8",
    }
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    operations = [
        _NAMES.get(names.get(max(one.BuiltinCode(), one.DeprecatedBuiltinCode())), "")
        for one in codes
    ]
    for number in range(model.SubgraphsLength()):
        graph = model.Subgraphs(number)
        shapes, constants = {}, {}
        for index in range(graph.TensorsLength()):
            tensor = graph.Tensors(index)
            shapes[index] = list(map(int, _array(tensor.ShapeAsNumpy())))
            graph_sizes.check_size(shapes[index])
            buffer = model.Buffers(tensor.Buffer())
            kind = types.get(tensor.Type())
            if kind and 0 < buffer.DataLength() <= _SMALL:
                values = np.frombuffer(buffer.DataAsNumpy().tobytes(), kind)
                constants[index] = values.tolist()
        graph_sizes.check(
            _nodes(graph, operations, shapes, constants), shapes, constants
        )


def _nodes(graph, operations, shapes, constants):
    """Yields the operations of a graph whose sizes are known, as those of ONNX."""
    for index in range(graph.OperatorsLength()):
        one = graph.Operators(index)
        operation = operations[one.OpcodeIndex()]
        inputs, outputs = (
            list(map(int, _array(names)))
            for names in (one.InputsAsNumpy(), one.OutputsAsNumpy())
        )
        if operation:
            yield graph_sizes.tensorflow_node(
                operation, inputs, outputs, shapes, constants
            )


def _array(numbers):
    # The reader gives 0 for a list that is not there.
    return [] if isinstance(numbers, int) else numbers
