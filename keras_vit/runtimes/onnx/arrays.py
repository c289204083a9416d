"""Functions of NumPy that add nodes to an ONNX graph.

What a model for images of any size computes from their size is a formula in
`zoo.network.position_embedding` and `keras_vit.layers.rotation`, which take the module
of the functions that they call. `Arrays` stands for NumPy there.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit.runtimes.onnx.graph import Graph


class Arrays:
    """Stands for NumPy's module; its functions take and return `Array` in float64."""

    def __init__(self, graph: Graph):
        self._graph = graph

    def array(self, value: Any, dtype: str = "float64") -> "Array":
        """Returns an `Array` of a number, an array, or one that there is."""
        if isinstance(value, Array):
            return value
        return Array(self._graph, self._graph.constant(np.asarray(value, dtype)))

    def arange(self, stop: "Array", dtype: str = "float64") -> "Array":
        zero, one = self.array(0.0, dtype), self.array(1.0, dtype)
        return zero.node("Range", stop, one)

    def abs(self, x: "Array") -> "Array":
        return x.node("Abs")

    def sin(self, x: "Array") -> "Array":
        return x.node("Sin")

    def cos(self, x: "Array") -> "Array":
        # ONNX Runtime has no cosine of float64.
        return self.sin(x + np.pi / 2)

    def maximum(self, one: Any, other: Any) -> "Array":
        return self.array(one).node("Max", self.array(other))

    def minimum(self, one: Any, other: Any) -> "Array":
        return self.array(one).node("Min", self.array(other))

    def where(self, condition: "Array", one: Any, other: Any) -> "Array":
        return condition.node("Where", self.array(one), self.array(other))

    def sum(self, x: "Array", axis: int, keepdims: bool) -> "Array":
        return x.node("ReduceSum", np.array([axis]), keepdims=int(keepdims))

    def pad(self, x: "Array", widths: Sequence[tuple[int, int]]) -> "Array":
        return x.node("Pad", np.transpose(widths).reshape(-1))

    def reshape(self, x: "Array", shape: Sequence[int]) -> "Array":
        return x.node("Reshape", np.array(shape))

    def concatenate(self, arrays: "Sequence[Array]", axis: int) -> "Array":
        first, *others = arrays
        return first.node("Concat", *others, axis=axis)

    def repeat(self, x: "Array", count: int, axis: int) -> "Array":
        # Matrices only, along their last axis.
        assert axis == -1
        return self.tile(x[:, :, None], (1, 1, count)).node(
            "Reshape", np.array((0, -1))
        )

    def tile(self, x: "Array", counts: Sequence[int]) -> "Array":
        return x.node("Tile", np.array(counts))

    def meshgrid(
        self, rows: "Array", columns: "Array", indexing: str
    ) -> "tuple[Array, Array]":
        assert indexing == "ij"
        rows, columns = rows[:, None], columns[None, :]
        return rows + 0.0 * columns, columns + 0.0 * rows


def _operator(operator, is_reflected=False):
    """Returns a method of `Array` for one of Python's operators."""

    def method(one, other):
        if not isinstance(other, Array):
            values = np.asarray(other, "float64")
            other = Array(one._graph, one._graph.constant(values))
        return other.node(operator, one) if is_reflected else one.node(operator, other)

    return method


class Array:
    """A value of a graph, with NumPy's operators."""

    def __init__(self, graph: Graph, name: str):
        self._graph, self.name = graph, name

    def node(self, operator: str, *others: Any, **attributes: Any) -> "Array":
        """Adds a node that takes the value and others, NumPy's arrays too."""
        names = [
            other.name if isinstance(other, Array) else self._graph.constant(other)
            for other in others
        ]
        name = self._graph.node(operator, self.name, *names, **attributes)
        return Array(self._graph, name)

    __add__ = __radd__ = _operator("Add")
    __sub__ = _operator("Sub")
    __rsub__ = _operator("Sub", is_reflected=True)
    __mul__ = __rmul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __rtruediv__ = _operator("Div", is_reflected=True)
    __pow__ = _operator("Pow")
    __lt__ = _operator("Less")
    __le__ = _operator("LessOrEqual")
    __eq__ = _operator("Equal")
    __hash__ = None
    # NumPy's arrays leave operators with an `Array` to it.
    __array_ufunc__ = None

    def __getitem__(self, key):
        array = self
        for axis, part in enumerate(key):
            if part is None:
                array = array.node("Unsqueeze", np.array([axis]))
            elif part != slice(None):
                start = part.start or 0
                stop = np.iinfo("int64").max if part.stop is None else part.stop
                ends = np.array([[start], [stop], [axis]])
                array = array.node("Slice", *ends)
        return array
