"""Sizes of the tensors in the graph of a file, found without computing it.

Operations have ONNX's names, and tensors any that can be a key.
"""

import dataclasses
import math

from zoo.common import limits

_MOST_NUMBERS = 32
# Operations whose outputs have the numbers of their first input.
_SAME_NUMBERS = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}


@dataclasses.dataclass
class Node:
    """An operation.

    Args:
        operation: str.
        inputs: list of the names of tensors.
        outputs: list of the names of tensors.
        attributes: {name: list of numbers}.
        shape: list of int, of the tensor that a `Constant` has.
    """

    operation: str
    inputs: list
    outputs: list
    attributes: dict = dataclasses.field(default_factory=dict)
    shape: list | None = None


def tensorflow_node(operation, inputs, outputs, shapes, constants) -> Node:
    """Returns the `Node` of an operation that has the inputs of TensorFlow.

    Args:
        operation: str, ONNX's name of it.
        inputs: list of the names of tensors.
        outputs: list of the names of tensors.
        shapes: {tensor: list of int}, those that are known.
        constants: {tensor: list of numbers}; one in the order of ONNX may be added.
    """
    values = constants.get(inputs[1]) if len(inputs) > 1 else None
    shape = shapes.get(inputs[0]) if inputs else None
    name = operation, outputs[0]
    if operation == "Pad" and values:
        # TFLite has pairs of before and after; ONNX has first all before.
        constants[name] = values[::2] + values[1::2]
        inputs = [inputs[0], name]
    elif operation == "Resize" and values:
        batch, _, _, channels = shape if shape and len(shape) == 4 else [1] * 4
        constants[name] = [batch, *values, channels]
        inputs = [inputs[0], None, None, name]
    return Node(operation, inputs, outputs)


def check(nodes, shapes, constants) -> None:
    """Refuses operations that compute far more numbers than those of any model.

    Args:
        nodes: iterable of `Node`, each after those whose outputs it takes.
        shapes: {tensor: list of int}, those that are declared, 1 for unknown sides;
            what is found is added.
        constants: {tensor: list of numbers} of small ones; what is found is added.

    Raises:
        ValueError: there are such.
    """
    for node in nodes:
        shape = _output_shape(node, shapes, constants)
        check_size(shape or ())
        for name in node.outputs:
            keep_larger(shapes, name, shape)
            keep_larger(constants, name, _output_values(node, constants))


def check_size(sides) -> None:
    """Raises a `ValueError` for a shape of too many numbers."""
    if _size(sides) > limits.TENSOR_NUMBERS:
        shape = " x ".join(f"{abs(side):,.0f}" for side in sides[:_MOST_NUMBERS])
        raise ValueError(f"it would compute {shape} numbers at once")


def keep_larger(known, name, values) -> None:
    """Adds values to a dict unless it has larger ones: branches may share names."""
    if values is not None and _size(values) >= _size(known.get(name) or ()):
        known[name] = values


def _output_values(node, constants):
    """Returns the numbers that an operation computes of constants, None of others."""
    inputs = [constants.get(name) for name in node.inputs]
    if node.operation == "Constant":
        return next(iter(node.attributes.values()), None)
    if node.operation in _SAME_NUMBERS:
        return inputs[0] if inputs else None
    if None in inputs or not 0 < len(inputs) <= _MOST_NUMBERS:
        return None
    if node.operation == "Concat":
        return [value for values in inputs for value in values][:_MOST_NUMBERS]
    if node.operation == "Mul" and min(map(len, inputs)) == 1:
        [factor], values = sorted(inputs, key=len)
        # Larger numbers are beyond the limit anyway, and would grow each time.
        return [max(-(2**63), min(value * factor, 2**63)) for value in values]
    return None


def _output_shape(node, shapes, constants):
    """Returns the shape of what an operation computes, None where it is not known."""
    inputs = [*node.inputs, *[None] * 4]
    rule = _SHAPES.get(node.operation, lambda node, shape, values: None)
    values = [constants.get(name) for name in inputs[:4]]
    return rule(node, shapes.get(inputs[0]), values)


def _range(node, shape, values):
    if not all(map(_is_one, values[:3])):
        return None
    [start], [stop], [step] = values[:3]
    return [(stop - start) / step] if step else None


def _padded(node, shape, values):
    pads = values[1] or node.attributes.get("pads") or ()
    half = len(pads) // 2
    added = map(sum, zip(pads[:half], pads[half:], strict=False))
    sides = shape if shape and len(shape) == half else [1] * half
    return [side + more for side, more in zip(sides, added, strict=True)]


def _broadcast(one, other):
    axes = max(len(one), len(other))
    one, other = ([1] * (axes - len(sides)) + [*sides] for sides in (one, other))
    return list(map(max, one, other))


def _multiplied(shape, factors):
    factors = factors or ()
    if shape is None or len(shape) != len(factors):
        return factors
    return [side * factor for side, factor in zip(shape, factors, strict=True)]


def _is_one(values):
    return values is not None and len(values) == 1


def _size(sides):
    return math.prod(side for side in map(abs, map(float, sides)) if side > 1)


# A function takes a node, the shape of its first input and the values of four inputs,
# and returns the shape of its output.
_SHAPES = {
    **dict.fromkeys(
        ("Cast", "Clip", "Dropout", "Identity", "Neg", "Relu", "Sqrt"),
        lambda node, shape, values: shape,
    ),
    "Constant": lambda node, shape, values: node.shape,
    "ConstantOfShape": lambda node, shape, values: values[0],
    "Expand": lambda node, shape, values: _broadcast(shape or (), values[1] or ()),
    "OneHot": lambda node, shape, values: [*(shape or ()), *(values[1] or ())],
    "Pad": _padded,
    "Range": _range,
    "Resize": lambda node, shape, values: (
        values[3] or _multiplied(shape, values[2] or values[1])
    ),
    "Tile": lambda node, shape, values: _multiplied(shape, values[1]),
    "Upsample": lambda node, shape, values: _multiplied(shape, values[1]),
}
