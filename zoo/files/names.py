"""The names that other libraries give to the released arrays.

One table for reading and writing, one row an array. PyTorch's libraries store dense
layers as (outputs, inputs), convolutions as (outputs, inputs, height, width), and
heads and head size of the attention in one axis; keras-hub stores all as released.
Every change is a transposition or another division into axes, so what is written is
read back to the last bit.
"""

from __future__ import annotations

import dataclasses
import math
import re
from typing import NamedTuple

import numpy as np

from zoo.released_names import BLOCK, CLASS_TOKEN, POSITION_EMBEDDING

_SAME = ""
_DENSE = "out in -> in out"
_CONVOLUTION = "out in y x -> y x in out"
_HEADS_KERNEL = "(head size) in -> in head size"
_HEADS_BIAS = "(head size) -> head size"
_OUT_KERNEL = "out (head size) -> head size out"
# In the released names stages and units are counted from 1, in the others from 0.
_RELEASED_START = {"block": 0, "stage": 1, "unit": 1}
_PART = re.compile(r"\[([0-9])\]$")
_PARTS = 3


class Row(NamedTuple):
    """One array under every name it has, None where a library has no such array.

    Numbers in names are {block}, {stage} and {unit}; a name that ends in [i] is that
    of the i-th third of an array.

    Args:
        released: str, the released name.
        axes: str, the axes in PyTorch's libraries and the released ones.
        timm: str or None.
        transformers: str or None.
        keras_hub: str or None.
    """

    released: str
    axes: str
    timm: str | None
    transformers: str | None
    keras_hub: str | None


def _layer(released, axes, timm, transformers, keras_hub, part=""):
    """Rows of a layer with a kernel and a bias."""
    kernel_axes, bias_axes = axes if isinstance(axes, tuple) else (axes, _SAME)
    return tuple(
        Row(
            f"{released}/{parameter}",
            parameter_axes,
            timm and f"{timm}.{torch}{part}",
            transformers and f"{transformers}.{torch}",
            keras_hub and f"{keras_hub}/vars/{number}",
        )
        for parameter, parameter_axes, torch, number in (
            ("kernel", kernel_axes, "weight", 0),
            ("bias", bias_axes, "bias", 1),
        )
    )


def _norm(released, timm, transformers=None, keras_hub=None):
    """Rows of a normalisation."""
    kernel, bias = _layer(released, _SAME, timm, transformers, keras_hub)
    return (kernel._replace(released=f"{released}/scale"), bias)


_B = f"{BLOCK}_{{block}}"
_T = "blocks.{block}"
_H = "encoder.layer.{block}"
_K = "layers/vi_t_encoder/encoder_layers/vi_t_encoder_block_{block}"
_PATCHES = "layers/vi_t_patching_and_embedding"
_U = "block{stage}/unit{unit}"
_S = "patch_embed.backbone.stages.{stage}.blocks.{unit}"

TABLE = (
    Row(
        CLASS_TOKEN,
        _SAME,
        "cls_token",
        "embeddings.cls_token",
        f"{_PATCHES}/vars/0",
    ),
    Row(
        POSITION_EMBEDDING,
        _SAME,
        "pos_embed",
        "embeddings.position_embeddings",
        f"{_PATCHES}/position_embedding/vars/0",
    ),
    *_layer(
        "embedding",
        _CONVOLUTION,
        "patch_embed.proj",
        "embeddings.patch_embeddings.projection",
        f"{_PATCHES}/patch_embedding",
    ),
    *_norm(
        f"{_B}/LayerNorm_0",
        f"{_T}.norm1",
        f"{_H}.layernorm_before",
        f"{_K}/layer_norm_1",
    ),
    *(
        row
        for number, name in enumerate(("query", "key", "value"))
        for row in _layer(
            f"{_B}/MultiHeadDotProductAttention_1/{name}",
            (_HEADS_KERNEL, _HEADS_BIAS),
            f"{_T}.attn.qkv",
            f"{_H}.attention.attention.{name}",
            f"{_K}/mha/{name}_dense",
            part=f"[{number}]",
        )
    ),
    *_layer(
        f"{_B}/MultiHeadDotProductAttention_1/out",
        _OUT_KERNEL,
        f"{_T}.attn.proj",
        f"{_H}.attention.output.dense",
        f"{_K}/mha/output_dense",
    ),
    *_norm(
        f"{_B}/LayerNorm_2",
        f"{_T}.norm2",
        f"{_H}.layernorm_after",
        f"{_K}/layer_norm_2",
    ),
    *_layer(
        f"{_B}/MlpBlock_3/Dense_0",
        _DENSE,
        f"{_T}.mlp.fc1",
        f"{_H}.intermediate.dense",
        f"{_K}/mlp/dense_1",
    ),
    *_layer(
        f"{_B}/MlpBlock_3/Dense_1",
        _DENSE,
        f"{_T}.mlp.fc2",
        f"{_H}.output.dense",
        f"{_K}/mlp/dense_2",
    ),
    *_norm(
        "Transformer/encoder_norm",
        "norm",
        "layernorm",
        "layers/vi_t_encoder/layer_norm",
    ),
    *_layer(
        "pre_logits",
        _DENSE,
        "pre_logits.fc",
        "pooler.dense",
        "intermediate_layer",
    ),
    *_layer("head", _DENSE, "head", "classifier", "output_dense"),
    Row(
        "conv_root/kernel",
        _CONVOLUTION,
        "patch_embed.backbone.stem.conv.weight",
        None,
        None,
    ),
    *_norm("gn_root", "patch_embed.backbone.stem.norm"),
    *(
        row
        for released, conv, norm in (
            ("1", "conv1", "norm1"),
            ("2", "conv2", "norm2"),
            ("3", "conv3", "norm3"),
            ("_proj", "downsample.conv", "downsample.norm"),
        )
        for row in (
            Row(
                f"{_U}/conv{released}/kernel",
                _CONVOLUTION,
                f"{_S}.{conv}.weight",
                None,
                None,
            ),
            *_norm(f"{_U}/gn{released}", f"{_S}.{norm}"),
        )
    ),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Rearranged:
    """An array with its axes divided, transposed and joined once it is asked for.

    Args:
        source: array, or `zoo.files.archive.StoredArray`.
        divided: tuple of int, the shape before the transposition.
        order: tuple of int, where its axes come from.
        shape: tuple of int, the shape after it.

    Example:
        >>> import numpy as np
        >>> from zoo.files import names
        >>> np.asarray(names.Rearranged(np.eye(2, 3), (2, 3), (1, 0), (3, 2))).shape
        (3, 2)
    """

    source: object
    divided: tuple[int, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """The source's."""
        return self.source.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __array__(self, dtype=None, copy=None):
        array = np.asarray(self.source).reshape(self.divided)
        array = np.ascontiguousarray(array.transpose(self.order)).reshape(self.shape)
        return array if dtype is None else array.astype(dtype)


def to_released(column: str, arrays: dict, num_heads: int) -> tuple[dict, list[str]]:
    """Gives arrays their released names and axes.

    Args:
        column: `"timm"`, `"transformers"` or `"keras_hub"`.
        arrays: dict of that library's name to array or `zoo.files.archive.StoredArray`.
        num_heads: int.

    Returns:
        A dict of released name to array, each read once it is asked for, and a list of
        what is wrong: unknown names and shapes that cannot be divided.

    Example:
        >>> import numpy as np
        >>> from zoo.files import names
        >>> names.to_released("timm", {"head.bias": np.zeros(10)}, 3)[0].keys()
        dict_keys(['head/bias'])
    """
    found, problems = {}, []
    for name, array in arrays.items():
        rows = list(_rows(column, name))
        if not rows:
            problems.append(f"unknown {name}")
        for row, numbers in rows:
            number = _PART.search(getattr(row, column))
            axes = row.axes if column != "keras_hub" else _SAME
            try:
                part = _third(array, int(number[1])) if number else array
                if axes:
                    part = _rearrange(part, *axes.split(" -> "), num_heads)
            except ValueError as error:
                problems.append(f"{name} has shape {tuple(array.shape)}: {error}")
                continue
            found[row.released.format(**_shifted(numbers, 1))] = part
    return found, problems


def from_released(column: str, arrays, num_heads: int) -> dict[str, np.ndarray]:
    """Gives released arrays the names and axes of another library.

    Args:
        column: `"timm"` or `"transformers"`.
        arrays: mapping of released name to array.
        num_heads: int.

    Returns:
        A dict of that library's name to array.

    Raises:
        ValueError: the library has no such array.

    Example:
        >>> import numpy as np
        >>> from zoo.files import names
        >>> names.from_released("timm", {"head/bias": np.zeros(10)}, 3).keys()
        dict_keys(['head.bias'])
    """
    found: dict[str, object] = {}
    for released, array in arrays.items():
        name = foreign_name(column, released)
        if name is None:
            raise ValueError(f"{column} has no array for {released}")
        ((row, _),) = _rows("released", released)
        part = _PART.search(getattr(row, column))
        if row.axes:
            theirs, ours = row.axes.split(" -> ")
            array = np.asarray(_rearrange(array, ours, theirs, num_heads))
        if part is None:
            found[name] = array
        else:
            found.setdefault(name, [None] * _PARTS)[int(part[1])] = array
    return {
        name: np.concatenate(array) if isinstance(array, list) else array
        for name, array in found.items()
    }


def foreign_name(column: str, released: str) -> str | None:
    """Returns the array in another library that holds a released one, None if none.

    Example:
        >>> from zoo.files import names
        >>> names.foreign_name("timm", "Transformer/encoderblock_3/LayerNorm_0/scale")
        'blocks.3.norm1.weight'
    """
    for row, numbers in _rows("released", released):
        name = getattr(row, column)
        return name and _PART.sub("", name).format(**_shifted(numbers, -1))
    return None


def _rows(column, name):
    """Yields the rows of a name and the numbers in it."""
    for row, pattern in _PATTERNS[column]:
        match = pattern.fullmatch(name)
        if match:
            yield row, {key: int(value) for key, value in match.groupdict().items()}


def _pattern(template):
    template = re.escape(_PART.sub("", template))
    # Without leading zeros, so that no array has two names.
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>0|[1-9][0-9]*)", template))


_PATTERNS = {
    column: [
        (row, _pattern(getattr(row, column)))
        for row in TABLE
        if getattr(row, column) is not None
    ]
    for column in Row._fields
    if column != "axes"
}


def _shifted(numbers, direction):
    return {
        name: number + direction * _RELEASED_START[name]
        for name, number in numbers.items()
    }


def _third(array, number):
    """One of the three arrays that timm stacks."""
    if array.shape[0] % _PARTS:
        raise ValueError(f"its first axis holds {_PARTS} arrays")
    thirds = array.reshape((_PARTS, array.shape[0] // _PARTS, *array.shape[1:]))
    return list(thirds)[number]


def _rearrange(array, before, after, num_heads):
    """Divides, transposes and joins axes, as in einops; "(a b)" are axes in one."""
    before, after = _axes(before), _axes(after)
    if len(array.shape) != len(before):
        raise ValueError(f"expected {len(before)} axes")
    sizes = {"head": num_heads}
    for size, names in zip(array.shape, before, strict=True):
        known = math.prod(sizes[name] for name in names if name in sizes)
        (unknown,) = [name for name in names if name not in sizes] or [None]
        if unknown is None and known != size:
            raise ValueError(f"{size} is not {known} heads")
        if unknown is not None:
            if size % known:
                raise ValueError(f"{size} is no multiple of {known} heads")
            sizes[unknown] = size // known
    divided = [name for names in before for name in names]
    return Rearranged(
        array,
        tuple(sizes[name] for name in divided),
        tuple(divided.index(name) for names in after for name in names),
        tuple(math.prod(sizes[name] for name in names) for names in after),
    )


def _axes(text):
    """Splits "(head size) in" into [("head", "size"), ("in",)]."""
    return [
        tuple(group.strip("()").split()) for group in re.findall(r"\(.*?\)|\w+", text)
    ]
