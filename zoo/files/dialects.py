"""Other spellings of the released names, translated to those of the `.npz` files.

Three layers, undone from the outside in: a prefix around the model (a training
state, a two-tower model), other module names (Flax Linen), and other arrangements of
the same numbers (stacked blocks, the position embedding at top level).
"""

import re

import numpy as np

from zoo import released_names

# A prefix and what may stand beside it: optimizer state, the text tower of a
# two-tower model with its temperature and bias.
_PREFIXES = (
    ("opt/target/", re.compile(r"opt/")),
    ("params/img/", re.compile(r"opt/|params/txt/|params/[tb]$")),
    ("params/", re.compile(r"opt/")),
    ("", None),
)
_LINEN_MODULES = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
# More would be no model, but a part of memory for each.
_MOST_BLOCKS = 1000
# It has no row for the class token: its writers added that to the token itself.
TOP_LEVEL_POSITION_EMBEDDING = "pos_embedding"
# How timm and FlexiViT resize the positions of such files.
TOP_LEVEL_RESIZING = "bilinear_no_antialias"


def select(keys) -> tuple[dict[str, str], list[str]]:
    """Returns {key: name} of the model's arrays in a file, and a list of unknown keys.

    Names have no prefix and the released module names. Keys that are known to be
    something else (optimizer state, a text tower) are in neither.
    """
    keys = list(keys)
    # The last row, the empty prefix, fits every file.
    prefix, beside = next(
        (prefix, beside)
        for prefix, beside in _PREFIXES
        if any(key.startswith(prefix) for key in keys) or not prefix
    )
    inside = [key for key in keys if key.startswith(prefix)]
    chosen = {key: _released_module(key[len(prefix) :]) for key in inside}
    unknown = [key for key in keys if key not in chosen and not beside.match(key)]
    return chosen, unknown


def arrange(name, array) -> dict:
    """Returns {released name: array} of one array, several of stacked blocks."""
    stack = f"{released_names.BLOCK}/"
    if name.startswith(stack) and array.ndim and array.shape[0] <= _MOST_BLOCKS:
        rest = name[len(stack) :]
        return {
            f"{released_names.BLOCK}_{block}/{rest}": part
            for block, part in enumerate(array)
        }
    if name == TOP_LEVEL_POSITION_EMBEDDING:
        return {released_names.POSITION_EMBEDDING: array}
    if released_names.is_group_norm(name) and array.shape[:-1] == (1, 1, 1):
        return {name: array.reshape(array.shape[-1:])}
    return {name: array}


def add_prefix_positions(arrays: dict) -> None:
    """Gives the tokens before the patches positions of zeros, in place."""
    table = arrays[released_names.POSITION_EMBEDDING]
    shapes = {name: array.shape for name, array in arrays.items()}
    rows = released_names.num_prefix_tokens(shapes)
    if rows and table.ndim == 3:
        arrays[released_names.POSITION_EMBEDDING] = np.pad(
            np.asarray(table), ((0, 0), (rows, 0), (0, 0))
        )


def to_float32(array: np.ndarray) -> np.ndarray:
    """Returns a float32, float16 or bfloat16 array as float32; others are a TypeError.

    NumPy reads bfloat16 as void of two bytes.
    """
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        # bfloat16 is the upper half of a float32.
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
        bits <<= 16  # in place, for less memory
        return bits.view(np.float32).reshape(array.shape)
    if array.dtype.kind == "f" and array.dtype.itemsize <= 4:
        return array.astype(np.float32, copy=False)
    raise TypeError(f"dtype {array.dtype}, not float32, float16 or bfloat16")


def wrong_dtypes(arrays: dict) -> list[str]:
    """Returns a problem for each array that `to_float32` refuses."""
    problems = []
    for name, array in arrays.items():
        try:
            to_float32(np.empty(0, array.dtype))
        except TypeError as error:
            problems.append(f"{name} has {error}")
    return problems


def _released_module(name):
    """Replaces Linen's module names inside the encoder blocks."""
    if not name.startswith(released_names.BLOCK):
        return name
    return "/".join(_LINEN_MODULES.get(part, part) for part in name.split("/"))
