"""Reading what other libraries wrote, and writing what they read."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

from zoo import released_names
from zoo.files import description, keras_hub, names, timm, transformers
from zoo.files.archive import CheckpointError
from zoo.files.description import Description
from zoo.released_names import CLASS_TOKEN, POSITION_EMBEDDING
from zoo.text import brief

LIBRARIES = {library.COLUMN: library for library in (timm, transformers, keras_hub)}
WRITTEN = ("timm", "transformers")
# The files that are read beside the one with the arrays.
BESIDE = tuple(
    dict.fromkeys(name for library in LIBRARIES.values() for name in library.BESIDE)
)


def recognise(keys) -> str | None:
    """Returns the library that names arrays so, None for the released dialects.

    Example:
        >>> from zoo.files import foreign
        >>> foreign.recognise(["blocks.0.mlp.fc1.bias", "head.bias"])
        'timm'
    """
    found = (name for name, library in LIBRARIES.items() if library.matches(keys))
    return next(found, None)


def read(file, library: str, num_heads: int | None = None):
    """Reads an open file of another library.

    Args:
        file: `zoo.files.archive.OpenFile` of a kind.
        library: str, as `recognise` gives it.
        num_heads: int, where nothing else tells it.

    Returns:
        A dict of released name to array, read once it is asked for; what is known
        besides as a `Description`; and a list of what is wrong with the arrays.

    Raises:
        CheckpointError: the settings beside the file, or what they ask for, cannot be
            read; nothing tells the number of heads.
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
        "class_token": CLASS_TOKEN in shapes,
        "hybrid": released_names.count_units(shapes) is not None,
    }
    said = _description(file, module, sizes)
    heads = said.num_heads or num_heads
    if heads is None and library == keras_hub.COLUMN:
        heads = keras_hub.num_heads(arrays)
    heads = heads or description.papers_heads(
        sizes["hidden_size"], sizes["num_layers"], sizes["mlp_dim"]
    )
    if heads is None:
        raise CheckpointError(
            f"{file.path} does not tell its number of attention heads: pass it as "
            "zoo.read(path, num_heads=...), or keep the config.json beside the file."
        )
    parts, problems = names.to_released(library, arrays, heads)
    if not problems:
        problems = _add_position(file.path, parts, said)
    return parts, dataclasses.replace(said, num_heads=heads), problems


def _description(file, module, sizes):
    said = description.from_metadata(file.metadata, file.path)
    if said is not None:
        return said
    folder = pathlib.Path(file.path).parent
    try:
        said = module.describe(folder, sizes)
        description.check_counts(said)
        return said
    except CheckpointError:
        raise
    except description.MALFORMED as error:
        raise CheckpointError(
            f"The settings beside {file.path} in {folder} cannot be read "
            f"({brief(error)})."
        ) from error


def _in_their_names(library, problem):
    """Spells a problem with released names in those of the file."""
    first, _, rest = problem.partition(" ")
    if first == "missing":
        return f"missing {names.foreign_name(library, rest) or rest}"
    theirs = names.foreign_name(library, first)
    return f"{problem}, from {theirs}" if theirs else problem


def _add_position(path, parts, said):
    """Gives the class token a position of zeros where it has none."""
    if CLASS_TOKEN not in parts:
        return []
    table = parts[POSITION_EMBEDDING]
    rows = table.shape[1]
    if not said.class_token_position:
        parts[POSITION_EMBEDDING] = np.pad(np.asarray(table), ((0, 0), (1, 0), (0, 0)))
    elif said.grid_size is None and int(rows**0.5) ** 2 == rows:
        return [
            f"{rows} positions are a square grid without one of the class token, or "
            "another grid with it, which only settings beside the file can tell"
        ]
    return []


def settings(library: str, checkpoint) -> dict[str, str]:
    """Returns the files of settings that a library needs, {name: text}.

    Args:
        library: str, one of `WRITTEN`.
        checkpoint: `zoo.Checkpoint`.

    Raises:
        ValueError: the library has no such model.
    """
    return LIBRARIES[library].settings(checkpoint)


def arrays(library: str, checkpoint) -> dict[str, np.ndarray]:
    """Returns a checkpoint's arrays under the keys of a library's file.

    Args:
        library: str, one of `WRITTEN`.
        checkpoint: `zoo.Checkpoint`.
    """
    found = names.from_released(library, checkpoint.arrays, checkpoint.num_heads)
    return LIBRARIES[library].file_names(found)
