"""Names and axes of the released arrays in timm, transformers and keras-hub.

One table for reading and writing, `array_names.csv`, with one row per layer; [i] stands
for the i-th third of an array, [i/2] for a half. PyTorch's libraries store dense layers
as (outputs, inputs), convolutions as (outputs, inputs, height, width), and heads and
head size of the attention in one axis; keras-hub stores all as released. Every change
is an einops pattern, so what is written is read back to the last bit.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from zoo.libraries.fields import rows
from zoo.network.released_names import (
    BLOCK,
    CLASS_TOKEN,
    EMBEDDING_ARRAYS,
    OPTIONAL_ARRAYS,
    OPTIONAL_BLOCK_ARRAYS,
    POSITION_EMBEDDING,
    QUERIES,
    UPSCALE,
    layout,
)

_TORCH = {"kernel": ".weight", "scale": ".weight", "bias": ".bias"}
_KERAS = {"kernel": "/vars/0", "scale": "/vars/0", "bias": "/vars/1"}
# The axes in PyTorch's libraries and the released ones, by the end of released names.
_AXES = (
    (r"/(query|key|value)/kernel", "(head size) inputs -> inputs head size"),
    (r"/(query|key|value)/bias", "(head size) -> head size"),
    (r"/out/kernel", "outputs (head size) -> head size outputs"),
    (r"(^|/)(embedding|conv\w+)/kernel", "outputs inputs y x -> y x inputs outputs"),
    (r"/ConvTranspose_0/kernel", "inputs outputs y x -> y x outputs inputs"),
    (r"/DepthwiseConv_0/kernel", "outputs one y x -> y x outputs one"),
    (r"/kernel", "outputs inputs -> inputs outputs"),
)
# In the released names stages and units are counted from 1, in the others from 0.
_RELEASED_START = {"block": 0, "upscale": 0, "stage": 1, "unit": 1}
_PART = re.compile(r"\[([0-9])(?:/([0-9]))?\]")
# Tables and tokens that some files hold without their first axes.
_WITH_FIRST_AXES = (POSITION_EMBEDDING, CLASS_TOKEN, QUERIES)
_EMBEDDING, _ = EMBEDDING_ARRAYS
# NaFlex has the patches that its kernel multiplies flattened.
FLAT_PATCHES = "outputs (y x inputs) -> y x inputs outputs"


def _renamed():
    renamed: dict[str, tuple] = {}
    for row in rows("renamed_parts.csv"):
        for dialect in row["dialects"].split():
            renamed[dialect] = (*renamed.get(dialect, ()), (row["theirs"], row["ours"]))
    return renamed


# The names of a released layer or array in each library, "" where it has none.
_LAYERS = {row["released"]: row for row in rows("array_names.csv")}
# Pairs of parts of names by dialect: in files, and in a column of `TABLE`, where ^
# begins a part that only the start of a name may be, and [i] or [i/2] says which part
# of the column's array the file holds as one of its own.
RENAMED = _renamed()


def _row(released):
    axes = next((axes for end, axes in _AXES if re.search(f"{end}$", released)), "")
    if released in _LAYERS:
        return _LAYERS[released] | {"axes": axes}
    layer, _, parameter = released.rpartition("/")
    ends = {
        "timm": _TORCH[parameter],
        "transformers": _TORCH[parameter],
        "keras_hub": _KERAS[parameter],
    }
    names = {library: _LAYERS[layer][library] for library in ends}
    names = {library: name and name + ends[library] for library, name in names.items()}
    return {"released": released, "axes": axes, **names}


def _template(released):
    for part, number in ((BLOCK, "block"), (UPSCALE, "upscale")):
        released = released.replace(f"{part}_0/", f"{part}_{{{number}}}/")
    return released.replace("block1/unit1/", "block{stage}/unit{unit}/")


_EVERY_ARRAY = layout(1, (1,)) | layout(
    1, (1,), {*OPTIONAL_ARRAYS, *OPTIONAL_BLOCK_ARRAYS}, upscale_blocks=1
)
# Each array under every name that it has. Numbers in names are {block}, {upscale},
# {stage} and {unit}; [i] means the i-th third of an array, [i/2] a half. `axes` is an
# einops pattern from PyTorch's axes to the released ones, or "".
TABLE = tuple(_row(_template(released)) for released in _EVERY_ARRAY)


class Joined:
    """Arrays after one another along their first axis, read when it is used."""

    def __init__(self, parts):
        kinds = {
            None if part is None or not part.ndim else (part.dtype, part.shape[1:])
            for part in parts
        }
        if len(kinds) != 1 or None in kinds:
            raise ValueError(f"needs {len(parts)} parts of one shape")
        self.parts, self.ndim = parts, parts[0].ndim
        ((self.dtype, rest),) = kinds
        self.shape = (sum(part.shape[0] for part in parts), *rest)

    def __array__(self, dtype=None, copy=None):
        return np.concatenate(list(map(np.asarray, self.parts)), dtype=dtype)


class Rearranged:
    """An array with its axes changed by an einops pattern when it is read."""

    def __init__(self, source: Any, pattern: str, **sizes: int):
        import einops

        self.source, self.pattern, self.dtype = source, pattern, source.dtype
        self._sizes = {axis: sizes[axis] for axis in sizes if axis in pattern}
        # A stand-in of one number tells the shape without reading the array.
        stand_in = np.broadcast_to(np.float32(0), source.shape)
        try:
            self.shape = einops.rearrange(stand_in, pattern, **self._sizes).shape
        except einops.EinopsError as error:
            axes = pattern.partition(" -> ")[0]
            raise ValueError(f"expected the axes {axes}") from error
        self.ndim = len(self.shape)

    def __array__(self, dtype=None, copy=None):
        import einops

        array = einops.rearrange(np.asarray(self.source), self.pattern, **self._sizes)
        return np.ascontiguousarray(array, dtype)


def renamed(name: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns a name with the first part of each pair replaced by the second."""
    for old, new in pairs:
        if not old.startswith("^"):
            name = name.replace(old, new)
        elif name.startswith(old[1:]):
            name = new[1:] + name.removeprefix(old[1:])
    return name


def whole(name: str) -> str:
    """Returns the name of the array that a part is of."""
    return _PART.sub("", name)


def in_files(arrays: dict, pairs: Sequence[tuple[str, str]]) -> dict:
    """Returns arrays of a column under the names of a dialect, see `RENAMED`."""
    back = [(ours, theirs) for theirs, ours in pairs]
    parts = {ours: part for _, ours in pairs if (part := _PART.search(ours))}
    named = {}
    for name, array in arrays.items():
        # The attention's own output has the name that an MLP's second layer has.
        own = [pair for pair in back if f".attention{pair[0]}" not in name]
        apart = [ours for ours in parts if whole(ours) in name]
        if not apart:
            named[renamed(name, own)] = array
        for ours in apart:
            number, count = _numbers(parts[ours])
            key = name.replace(whole(ours), ours)
            named[renamed(key, own)] = np.split(array, count)[number]
    return named


def joined(column: str, arrays: dict) -> tuple[dict, list[str]]:
    """Joins the arrays that a column has as one, and returns a list of problems."""
    joined_arrays, apart, problems = {}, {}, []
    for name, array in arrays.items():
        part = _PART.search(name)
        if part is None or any(_rows(column, name)):
            joined_arrays[name] = array
        else:
            number, count = _numbers(part)
            apart.setdefault(whole(name), [None] * count)[number] = array
    for name, parts in apart.items():
        if name in joined_arrays:
            problems.append(f"two arrays for {name}")
        try:
            joined_arrays[name] = Joined(parts)
        except ValueError as error:
            problems.append(f"{name} {error}")
    return joined_arrays, problems


def to_released(
    column: str, arrays: dict, num_heads: int, pooling_heads: int | None = None
) -> tuple[dict, list[str]]:
    """Returns arrays under their released names and axes, and a list of problems.

    An attention pooling has `pooling_heads`, by default those of the blocks.
    """
    released, problems = {}, []
    for name, array in arrays.items():
        rows = list(_rows(column, name))
        if not rows:
            problems.append(f"unknown {name}")
        for row, numbers in rows:
            part = _PART.search(row[column])
            is_apart = part and part[0] in name
            try:
                own = _part(array, *_numbers(part)) if part and not is_apart else array
                if row["released"] in _WITH_FIRST_AXES:
                    own = _with_first_axes(own)
                if row["released"] == _EMBEDDING and own.ndim == 2:
                    own = Rearranged(own, FLAT_PATCHES, **_patch_size(own.shape[1]))
                elif row["axes"] and column != "keras_hub":
                    heads = _heads(row["released"], num_heads, pooling_heads)
                    own = Rearranged(own, row["axes"], head=heads)
            except ValueError as error:
                problems.append(f"{name} has shape {tuple(array.shape)}: {error}")
                continue
            place = row["released"].format(**_shifted(numbers, 1))
            if place in released:
                problems.append(f"two arrays for {place}, one is {name}")
            released[place] = own
    return released, problems


def from_released(
    column: str,
    arrays: Mapping[str, Any],
    num_heads: int,
    pooling_heads: int | None = None,
) -> dict[str, np.ndarray]:
    """Returns released arrays under the names and axes of another library.

    A part that is not there of an array, such as biases of keys, is zeros.
    """
    renamed: dict[str, Any] = {}
    for released, array in arrays.items():
        name = foreign_name(column, released)
        if name is None:
            raise ValueError(f"{column} has no array for {released}")
        ((row, _),) = _rows("released", released)
        part = _PART.search(row[column])
        if row["axes"]:
            pattern = " -> ".join(reversed(row["axes"].split(" -> ")))
            heads = _heads(released, num_heads, pooling_heads)
            array = np.asarray(Rearranged(array, pattern, head=heads))
        if part is None:
            renamed[name] = array
        else:
            number, count = _numbers(part)
            renamed.setdefault(name, [None] * count)[number] = array
    return {
        name: _joined(array) if isinstance(array, list) else array
        for name, array in renamed.items()
    }


def _heads(released, num_heads, pooling_heads):
    """Returns the heads of a released array, which an attention pooling may have."""
    is_pooling = released.startswith("MAPHead_0/")
    return pooling_heads if is_pooling and pooling_heads else num_heads


def _joined(parts):
    like = next(part for part in parts if part is not None)
    zeros = np.zeros_like(like)
    return np.concatenate([zeros if part is None else part for part in parts])


def flat_patches(kernel: np.ndarray) -> np.ndarray:
    """Returns a kernel (outputs, inputs, y, x) as NaFlex has it."""
    return kernel.transpose(0, 2, 3, 1).reshape(len(kernel), -1)


def foreign_name(column: str, released: str) -> str | None:
    """Returns a library's name of the array that holds a released one, or None."""
    for row, numbers in _rows("released", released):
        return _PART.sub("", row[column]).format(**_shifted(numbers, -1)) or None
    return None


def _rows(column, name):
    """Yields the rows of a name and the numbers in it."""
    for row, pattern in _PATTERNS[column]:
        match = pattern.fullmatch(name)
        if match:
            yield row, {key: int(value) for key, value in match.groupdict().items()}


def _pattern(template):
    # A file may hold the part as an array of its own.
    template = re.sub(r"(\\\[[0-9/]+\\\])", r"(?:\1)?", re.escape(template))
    # Without leading zeros, so that no array has two names.
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>0|[1-9][0-9]*)", template))


_PATTERNS = {
    column: [(row, _pattern(row[column])) for row in TABLE if row[column]]
    for column in ("released", "timm", "transformers", "keras_hub")
}


def _shifted(numbers, direction):
    """Returns the numbers in a name as another library counts them."""
    return {name: n + direction * _RELEASED_START[name] for name, n in numbers.items()}


def _with_first_axes(array):
    """Returns a table or token of one sequence, its grid as one axis."""
    if array.ndim == 4:
        batch, rows, columns, size = array.shape
        return array.reshape((batch, rows * columns, size))
    missing = 3 - array.ndim if array.ndim else 0
    return array.reshape((*[1] * missing, *array.shape)) if missing > 0 else array


def _patch_size(length):
    """Returns the axes of a square patch of three channels, of NaFlex's kernels."""
    side = math.isqrt(length // 3)
    if 3 * side**2 != length:
        raise ValueError("its second axis holds a square patch of three channels")
    return {"y": side, "x": side}


def _numbers(part):
    """Returns which part of an array a name means, and how many there are."""
    return int(part[1]), int(part[2] or 3)


def _part(array, number, count):
    """Returns one of some arrays that a library stacks."""
    if not array.ndim or array.shape[0] % count:
        raise ValueError(f"its first axis holds {count} arrays")
    parts = array.reshape((count, array.shape[0] // count, *array.shape[1:]))
    return list(parts)[number]
