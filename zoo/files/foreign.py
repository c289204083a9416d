"""Checkpoints of timm, transformers and keras-hub, read and written."""

import json
import pathlib
import re

import numpy as np

from zoo import released_names
from zoo.files import description, dialects, keras_hub, names, timm, transformers
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.network import ARCHITECTURES
from zoo.released_names import POSITION_EMBEDDING
from zoo.text import brief

LIBRARIES = {library.COLUMN: library for library in (timm, transformers, keras_hub)}
WRITTEN = ("timm", "transformers")
_PAPERS_HEADS = {
    (row.hidden_size, row.num_layers, row.mlp_dim): row.num_heads
    for row in ARCHITECTURES.values()
}
# The files that are read beside the one with the arrays.
BESIDE = tuple(
    dict.fromkeys(name for library in LIBRARIES.values() for name in library.BESIDE)
)


def recognise(keys) -> str | None:
    """Returns the library that names arrays so, None for the released dialects."""
    for name, library in LIBRARIES.items():
        if any(map(library.KEYS.search, keys)):
            return name
    return None


def read(file, library: str, num_heads: int | None = None):
    """Reads an open file of another library; `num_heads` if the file does not state it.

    Returns {released name: array, read when it is used}, a `Description` of the rest,
    and a list of problems with the arrays.
    """
    module = LIBRARIES[library]
    holders = dict.fromkeys(file.keys, file)
    if module is keras_hub and (beside := keras_hub.companion(file)) is not None:
        holders |= dict.fromkeys(beside.keys, beside)
    problems = []
    for pattern, reason in module.REASONS.items():
        key = next(filter(re.compile(pattern).search, holders), None)
        if key is not None:
            problems.append(f"{reason} ({key})")
    if problems:
        return {}, Description(), problems  # reason enough for whatever else is odd
    arrays: dict[str, object] = {}
    for key, name in module.select(holders).items():
        if name in arrays:
            problems.append(f"two arrays for {name}, one is {key}")
        arrays[name] = holders[key].check(key)
    # The sizes but the heads, which settings are then compared with.
    parts, wrong = names.to_released(library, arrays, num_heads=1)
    shapes = {name: part.shape for name, part in parts.items()}
    sizes, missing = released_names.measure(shapes)
    problems += wrong + [_in_their_names(library, problem) for problem in missing]
    if problems:
        return {}, Description(), list(dict.fromkeys(problems))
    sizes |= {
        "num_layers": released_names.count_blocks(shapes),
        "class_token": "class_token" in released_names.features(shapes),
        "hybrid": released_names.count_units(shapes) is not None,
    }
    stated = _description(file, module, sizes)
    hidden_size = sizes["hidden_size"]
    key = (hidden_size, sizes["num_layers"], sizes["mlp_dim"])
    # keras-hub's arrays have an axis of heads.
    known = sizes["num_heads"] if module is keras_hub else _PAPERS_HEADS.get(key)
    heads = stated.config.num_heads or num_heads or known
    if heads is None:
        raise CheckpointError(
            f"{file.path} does not state its number of attention heads: pass it as "
            "zoo.read(path, num_heads=...), or keep the config.json beside the file."
        )
    if heads < 1 or hidden_size % heads:
        by_file = stated.config.num_heads is not None
        source = "its header or settings say" if by_file else "num_heads says"
        raise CheckpointError(
            f"{file.path} has arrays of hidden size {hidden_size}, which is not a "
            f"multiple of the {heads} attention heads that {source}: correct that."
        )
    parts, problems = names.to_released(library, arrays, heads)
    if not problems and sizes["class_token"]:
        problems = _add_position(parts, stated)
    return parts, stated, problems


def _description(file, module, sizes):
    folder = pathlib.Path(file.path).parent
    try:
        stated = description.from_metadata(file.metadata, file.path)
        return stated or module.describe(folder, sizes)
    except CheckpointError:
        raise
    except description.MALFORMED as error:
        raise CheckpointError(
            f"The settings beside {file.path} in {folder} cannot be read "
            f"({brief(error)})."
        ) from error


def _in_their_names(library, problem):
    """Returns a problem with the released name replaced by the file's."""
    first, _, rest = problem.partition(" ")
    if first == "missing":
        return f"missing {names.foreign_name(library, rest) or rest}"
    theirs = names.foreign_name(library, first)
    return f"{problem}, from {theirs}" if theirs else problem


def _add_position(parts, stated):
    """Gives the class token a position of zeros where it has none."""
    rows = parts[POSITION_EMBEDDING].shape[1]
    if not stated.class_token_position:
        dialects.add_prefix_positions(parts)
    elif stated.grid_size is None and int(rows**0.5) ** 2 == rows:
        return [
            f"{rows} positions are a square grid without one of the class token, or "
            "another grid with it: keep the settings that state it beside the file"
        ]
    return []


def written(library: str, checkpoint) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Returns a checkpoint's arrays by their keys, and the files of settings."""
    module = LIBRARIES[library]
    settings = module.settings(checkpoint).items()
    files = {name: json.dumps(table, indent=2) for name, table in settings}
    arrays = names.from_released(library, checkpoint.arrays, checkpoint.num_heads)
    return module.file_names(arrays), files
