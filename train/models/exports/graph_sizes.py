"""Sizes of the tensors in the graph of a file, found without computing it.

Operations have ONNX's names, and tensors any that can be a key.
"""

import math
from collections.abc import Hashable, Sequence

from zoo.common import limits

_MOST_NUMBERS = 32
# Operations whose outputs have the numbers of their first input.
_SAME_NUMBERS = {"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}


class Sizes:
    """What is known of the tensors of a graph: shapes, and numbers of small ones.

    Shapes are declared or found, with 1 for unknown sides.
    """

    def __init__(self):
        self.shapes: dict[Hashable, list] = {}
        self.constants: dict[Hashable, list] = {}

    def keep(self, name: Hashable, shape: list | None, values: list | None) -> None:
        """Adds what is not None, unless larger is known: branches may share names."""
        for known, new in ((self.shapes, shape), (self.constants, values)):
            if new is not None and _size(new) >= _size(known.get(name) or ()):
                known[name] = new

    def add(
        self,
        operation: str,
        inputs: list,
        outputs: list,
        attributes: dict[str, list | None] | None = None,
        shape: list | None = None,
    ) -> None:
        """Adds an operation, after those whose outputs it takes.

        `attributes` are numbers, `shape` that of a `Constant`. Raises a `ValueError` if
        it computes far more numbers than any model's.
        """
        attributes = attributes or {}
        values = [self.constants.get(name) for name in inputs]
        computed = _output_values(operation, values, attributes)
        values = [*values, *[None] * 4]
        if operation == "Pad":
            values[1] = values[1] or attributes.get("pads")
        if operation != "Constant":
            shape = self.shapes.get(inputs[0]) if inputs else None
        rule = _SHAPES.get(operation, lambda shape, values: None)
        shape = rule(shape, values)
        check_size(shape or ())
        for name in outputs:
            self.keep(name, shape, computed)

    def add_of_tensorflow(self, operation: str, inputs: list, outputs: list) -> None:
        """Adds an operation of ONNX's name that has the inputs of TensorFlow."""
        values = self.constants.get(inputs[1]) if len(inputs) > 1 else None
        shape = self.shapes.get(inputs[0]) if inputs else None
        name = operation, outputs[0]
        if operation == "Pad" and values:
            # TFLite has pairs of before and after; ONNX has first all before.
            self.constants[name] = values[::2] + values[1::2]
            inputs = [inputs[0], name]
        elif operation == "Resize" and values:
            batch, _, _, channels = shape if shape and len(shape) == 4 else [1] * 4
            self.constants[name] = [batch, *values, channels]
            inputs = [inputs[0], None, None, name]
        self.add(operation, inputs, outputs)


def check_size(sides: Sequence[float]) -> None:
    """Raises a `ValueError` for a shape of too many numbers."""
    if _size(sides) > limits.TENSOR_NUMBERS:
        shape = " x ".join(f"{abs(side):,.0f}" for side in sides[:_MOST_NUMBERS])
        raise ValueError(f"it would compute {shape} numbers at once")


def _output_values(operation, inputs, attributes):
    """Returns the numbers that an operation computes of constants, None of others."""
    if operation == "Constant":
        return next(iter(attributes.values()), None)
    if operation in _SAME_NUMBERS:
        return inputs[0] if inputs else None
    if None in inputs or not 0 < len(inputs) <= _MOST_NUMBERS:
        return None
    if operation == "Concat":
        return [value for values in inputs for value in values][:_MOST_NUMBERS]
    if operation == "Mul" and min(map(len, inputs)) == 1:
        [factor], values = sorted(inputs, key=len)
        # Larger numbers are beyond the limit anyway, and would grow each time.
        return [max(-(2**63), min(value * factor, 2**63)) for value in values]
    return None


def _range(shape, values):
    ends = [part or () for part in values[:3]]
    if any(len(part) != 1 for part in ends):
        return None
    [start], [stop], [step] = ends
    return [(stop - start) / step] if step else None


def _padded(shape, values):
    pads = values[1] or ()
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


def _size(sides):
    return math.prod(side for side in map(abs, map(float, sides)) if side > 1)


# A function takes the shape of an operation's first input, of a constant its own, and
# the values of its inputs, and returns the shape of its output.
_SHAPES = {
    **dict.fromkeys(
        ("Cast", "Clip", "Constant", "Dropout", "Identity", "Neg", "Relu", "Sqrt"),
        lambda shape, values: shape,
    ),
    "ConstantOfShape": lambda shape, values: values[0],
    "Expand": lambda shape, values: _broadcast(shape or (), values[1] or ()),
    "OneHot": lambda shape, values: [*(shape or ()), *(values[1] or ())],
    "Pad": _padded,
    "Range": _range,
    "Resize": lambda shape, values: (
        values[3] or _multiplied(shape, values[2] or values[1])
    ),
    "Tile": lambda shape, values: _multiplied(shape, values[1]),
    "Upsample": lambda shape, values: _multiplied(shape, values[1]),
}
