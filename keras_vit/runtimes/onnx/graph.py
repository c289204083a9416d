"""Builder of ONNX graphs."""

import pathlib
from collections.abc import Callable, Hashable, Sequence
from typing import IO, Any

import keras
import numpy as np

# Alignment of weights in the external data file, so that it can be memory-mapped.
_PAGE = 4096
_LARGEST_HALF = np.finfo("float16").max
# The end of any axis.
_END = 2**31 - 1
# The scale of a column of zeros.
_SMALLEST_SCALE = 1e-30


class Graph:
    """Adds nodes and weights to a graph; values are referred to by name.

    `onnx` is the module, `proto` the `onnx.GraphProto` to extend, and `data` the open
    file for the weights, None to store them in the graph.
    """

    def __init__(self, onnx: Any, proto: Any, precision: str, data: IO[bytes] | None):
        self.onnx = onnx
        self.proto = proto
        self.is_half, self.is_int8 = precision == "float16", precision == "int8"
        self.data = data
        self.scope = "input"
        # Names of weights begin with that of the network, of several in one model.
        self.prefix = ""
        self._integers, self._constants, self._once = {}, {}, {}
        self._known = set()
        # Names of values with their channels first.
        self.images = set()

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output; returns the output's name."""
        name = f"{self.scope}/{operator}_{len(self.proto.node)}"
        self.proto.node.append(
            self.onnx.helper.make_node(operator, inputs, [name], name, **attributes)
        )
        return name

    def once(self, key: Hashable, add: Callable[[], Any]) -> Any:
        """Returns what `add()` returned when a key was first asked for."""
        key = (self.prefix, key)
        if key not in self._once:
            self._once[key] = add()
        return self._once[key]

    def integers(self, values: Any) -> str:
        """Returns the name of a constant of one or more integers, added once."""
        return self.constant(np.asarray(values, "int64"))

    def constant(self, values: np.ndarray) -> str:
        """Returns the name of a constant of some NumPy dtype, added once."""
        kind, known = "constant", self._constants
        if values.dtype.kind == "i":
            kind, known = "integers", self._integers
            values = values.astype("int64")
        key = (values.dtype, values.shape, values.tobytes())
        if key not in known:
            known[key] = name = f"{kind}_{len(known)}"
            self.proto.initializer.append(
                self.onnx.numpy_helper.from_array(values, name)
            )
        return known[key]

    def weight(self, name: str, values: Any, half: bool = True) -> str:
        """Returns the name of a weight, added once; in float32 unless `half`."""
        name = f"{self.prefix}{name}"
        if name in self._known:
            return name
        self._known.add(name)
        values = keras.ops.convert_to_numpy(values)
        if np.issubdtype(values.dtype, np.integer):
            raise ValueError(
                f"{name} has integers: export the model before Keras quantizes it, or "
                "use keras_vit.quantize_weights."
            )
        half = half and self.is_half
        if half and np.abs(values).max(initial=0) > _LARGEST_HALF:
            raise ValueError(
                f"{name} has numbers larger than float16 holds: export with "
                'precision="float32".'
            )
        return self._stored(name, np.asarray(values, "float16" if half else "float32"))

    def matrix(self, name: str, values: Any) -> str:
        """Returns the name of a matrix to multiply by, of int8 where asked for."""
        if not self.is_int8:
            return self.weight(name, values)
        values = keras.ops.convert_to_numpy(values).astype("float32")
        scales = np.maximum(np.abs(values).max(axis=0), _SMALLEST_SCALE) / 127
        parts = {
            "values": np.rint(values / scales).astype("int8"),
            "scales": scales.astype("float32"),
        }
        name = f"{self.prefix}{name}"
        parts = [self._stored(f"{name}/{key}", part) for key, part in parts.items()]
        return self.node("DequantizeLinear", *parts, axis=1)

    def _stored(self, name, values):
        tensor = self.onnx.numpy_helper.from_array(values, name)
        if self.data is not None:
            self.data.write(bytes(-self.data.tell() % _PAGE))
            self.onnx.external_data_helper.set_external_data(
                tensor,
                location=pathlib.Path(self.data.name).name,
                offset=self.data.tell(),
                length=len(tensor.raw_data),
            )
            self.data.write(tensor.raw_data)
            tensor.ClearField("raw_data")
        self.proto.initializer.append(tensor)
        return name

    def weights(self, name: str, layer: keras.layers.Layer, *parts: str) -> list[str]:
        """Returns the names of some weights of a layer of that name."""
        return [self.weight(f"{name}/{part}", getattr(layer, part)) for part in parts]

    def cast(self, value: str, kind: str) -> str:
        """Casts to "FLOAT" or "FLOAT16" in a graph of float16, else does nothing."""
        if not self.is_half:
            return value
        return self.node("Cast", value, to=self.onnx.TensorProto.DataType.Value(kind))

    def wide(self, operator: str, value: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node that computes in float32."""
        value = self.cast(value, "FLOAT")
        return self.cast(self.node(operator, value, *inputs, **attributes), "FLOAT16")

    def reshape(self, value: str, *sides: int | str) -> str:
        """Adds a reshape; a side of 0 is kept, and names are those of integers."""
        if all(isinstance(side, int) for side in sides):
            return self.node("Reshape", value, self.integers(sides))
        sides = [
            side if isinstance(side, str) else self.integers([side]) for side in sides
        ]
        return self.node("Reshape", value, self.node("Concat", *sides, axis=0))

    def part(self, value: str, start: int, end: int = _END, axis: int = 0) -> str:
        """Adds a slice of a value along an axis, by default to its end."""
        ends = (self.integers([number]) for number in (start, end, axis))
        return self.node("Slice", value, *ends)

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        """Adds a transpose."""
        return self.node("Transpose", value, perm=axes)

    def image(self, value: str) -> str:
        """Adds a transpose to channels first, unless they are."""
        return value if value in self.images else self.transpose(value, (0, 3, 1, 2))

    def spatial(
        self, operator: str, value: str, *inputs: str, **attributes: Any
    ) -> str:
        """Adds a node that takes and returns (batch, channels, height, width)."""
        value = self.node(operator, self.image(value), *inputs, **attributes)
        self.images.add(value)
        return value
