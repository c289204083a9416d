"""Other spellings of the released names, translated to those of the `.npz` files.

Three layers, undone from the outside in: a prefix around the model (a training
state, a two-tower model), other module names (Flax Linen), and other arrangements of
the same numbers (stacked blocks, the position embedding at top level).
"""

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from zoo.common.safe_text import brief
from zoo.containers.arrays import OpenFile
from zoo.containers.opening import Collected
from zoo.libraries import description
from zoo.libraries.description import Description
from zoo.libraries.reading import refuse
from zoo.network import ViTConfig, released_names

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


def read(file: OpenFile | Collected) -> tuple[dict, Description]:
    """Undoes the dialect; returns arrays and a description."""
    parts, grid = {}, None
    chosen, unknown = select(file.keys)
    problems = [f"unknown {key}" for key in unknown]
    with ThreadPoolExecutor() as threads:
        checked = list(threads.map(file.check, chosen))
    for (key, name), array in zip(chosen.items(), checked, strict=True):
        if name == released_names.GRID_SIZE and array.dtype.kind == "i":
            if array.shape != (2,):
                problems.append(f"{key} has shape {brief(array.shape)}, not (2,)")
                continue
            rows, columns = map(int, np.asarray(array))
            grid = rows, columns
            continue
        for place, part in arrange(name, array).items():
            if place in parts:
                problems.append(f"two arrays for {place}, one is {key}")
            parts[place] = part
    by_default = Description(grid_size=grid)
    if TOP_LEVEL_POSITION_EMBEDDING in chosen.values():
        add_prefix_positions(parts)
        resizing = TOP_LEVEL_RESIZING
        by_default = Description(ViTConfig(position_resizing=resizing), grid)
    if common := os.path.commonprefix(file.keys).rpartition(".")[0]:
        common = f"every key begins with {brief(common + '.')}: save without it"
        problems.insert(0, common)
    refuse(file.path, problems)
    return parts, description.from_metadata(file.metadata, file.path) or by_default


def select(keys: Iterable[str]) -> tuple[dict[str, str], list[str]]:
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


def arrange(name: str, array: Any) -> dict:
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


def _released_module(name):
    """Replaces Linen's module names inside the encoder blocks."""
    if not name.startswith(released_names.BLOCK):
        return name
    return "/".join(_LINEN_MODULES.get(part, part) for part in name.split("/"))
