"""Checkpoints of timm, transformers and keras-hub, read and written."""

from __future__ import annotations

import pathlib

import numpy as np

from zoo import released_names
from zoo.files import description, dialects, keras_hub, names, timm, transformers
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.released_names import POSITION_EMBEDDING
from zoo.text import brief

LIBRARIES = {library.COLUMN: library for library in (timm, transformers, keras_hub)}
WRITTEN = ("timm", "transformers")
# The files that are read beside the one with the arrays.
BESIDE = tuple(
    dict.fromkeys(name for library in LIBRARIES.values() for name in library.BESIDE)
)


def recognise(keys) -> str | None:
    """Returns the library that names arrays so, None for the released dialects."""
    found = (name for name, library in LIBRARIES.items() if library.matches(keys))
    return next(found, None)


def read(file, library: str, num_heads: int | None = None):
    """Reads an open file of another library.

    Args:
        file: `zoo.files.archive.OpenFile`.
        library: str, as `recognise` returns it.
        num_heads: int, for files that do not state it.

    Returns:
        A dict of released name to array, read when it is used; a `Description` of the
        rest; and a list of problems with the arrays.

    Raises:
        CheckpointError: the settings beside the file cannot be read or computed, or
            the number of heads is not known.
    """
    module = LIBRARIES[library]
    holders = dict.fromkeys(file.keys, file)
    beside = keras_hub.companion(file) if library == keras_hub.COLUMN else None
    if beside is not None:
        holders |= dict.fromkeys(beside.keys, beside)
    chosen, problems = module.select(holders)
    if problems:
        return {}, Description(), problems  # reason enough for whatever else is odd
    arrays: dict[str, object] = {}
    for key, name in chosen.items():
        if name in arrays:
            problems.append(f"two arrays for {name}, one is {key}")
        arrays[name] = holders[key].check(key)
    if library == keras_hub.COLUMN:
        arrays = keras_hub.arrange(arrays)

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
    said = _description(file, module, sizes)
    heads = said.config.num_heads or num_heads
    if heads is None and library == keras_hub.COLUMN:
        heads = keras_hub.num_heads(arrays)
    heads = heads or description.papers_heads(
        sizes["hidden_size"], sizes["num_layers"], sizes["mlp_dim"]
    )
    if heads is None:
        raise CheckpointError(
            f"{file.path} does not state its number of attention heads: pass it as "
            "zoo.read(path, num_heads=...), or keep the config.json beside the file."
        )
    parts, problems = names.to_released(library, arrays, heads)
    if not problems and sizes["class_token"]:
        problems = _add_position(parts, said)
    return parts, said, problems


def _description(file, module, sizes):
    said = description.from_metadata(file.metadata, file.path)
    if said is not None:
        return said
    folder = pathlib.Path(file.path).parent
    try:
        said = module.describe(folder, sizes)
        description.check_grid(said.grid_size)
        return said
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


def _add_position(parts, said):
    """Gives the class token a position of zeros where it has none."""
    rows = parts[POSITION_EMBEDDING].shape[1]
    if not said.class_token_position:
        dialects.add_prefix_positions(parts)
    elif said.grid_size is None and int(rows**0.5) ** 2 == rows:
        return [
            f"{rows} positions are a square grid without one of the class token, or "
            "another grid with it: keep the settings that state it beside the file"
        ]
    return []


def settings(library: str, checkpoint) -> dict[str, str]:
    """Returns the files of settings that a library of `WRITTEN` needs, {name: text}.

    Raises:
        ValueError: the library has no such model.
    """
    return LIBRARIES[library].settings(checkpoint)


def arrays(library: str, checkpoint) -> dict[str, np.ndarray]:
    """Returns a checkpoint's arrays under the keys of a library of `WRITTEN`."""
    found = names.from_released(library, checkpoint.arrays, checkpoint.num_heads)
    return LIBRARIES[library].file_names(found)
