"""The products with weights that a TFLite file computes."""

import collections
import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Product:
    """A product with a matrix, or a convolution, of a TFLite file.

    Args:
        name: str, of the tensor that comes out.
        operation: str, `"FULLY_CONNECTED"` or `"CONV_2D"`.
        kind: str, how it is computed: `"static"`, `"dynamic"`, `"float16"` or
            `"float32"`, see `train.export.tflite.write_tflite`.
        elements: int, of the matrix.
        tensors: tuple of int, the numbers of what goes in and comes out.
        input: str, of the tensor that goes in.
    """

    name: str
    operation: str
    kind: str
    elements: int
    tensors: tuple[int, int]
    input: str


def products(content):
    """Returns the products with weights of a TFLite file.

    Args:
        content: bytes of the file.

    Returns:
        List of `Product`, in the order of their computation.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(content))
    [graph] = model.subgraphs
    types = flatbuffer_utils.schema_fb.TensorType
    halves = set()
    found = []
    for operator in graph.operators:
        operation = flatbuffer_utils.opcode_to_name(model, operator.opcodeIndex)
        inputs = [graph.tensors[number] for number in operator.inputs if number >= 0]
        output = graph.tensors[operator.outputs[0]]
        if operation == "DEQUANTIZE" and inputs[0].type == types.FLOAT16:
            halves.add(operator.outputs[0])
        if operation not in ("FULLY_CONNECTED", "CONV_2D"):
            continue
        if inputs[1].type == types.INT8:
            kind = "static" if inputs[0].type == types.INT8 else "dynamic"
        else:
            kind = "float16" if operator.inputs[1] in halves else "float32"
        found.append(
            Product(
                name=output.name.decode(),
                operation=operation,
                kind=kind,
                elements=int(np.prod(inputs[1].shape)),
                tensors=(int(operator.inputs[0]), int(operator.outputs[0])),
                input=inputs[0].name.decode(),
            )
        )
    return found


def counts(content):
    """Returns how many products of a TFLite file are computed how.

    Args:
        content: bytes of the file.

    Returns:
        Dict of kinds, see `Product`, and numbers.
    """
    return dict(collections.Counter(product.kind for product in products(content)))
