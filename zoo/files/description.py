"""What settings and headers say of a checkpoint besides its arrays."""

import json
import os
import pathlib
from typing import NamedTuple

from zoo.files.archive import CheckpointError
from zoo.network import Semantics, ViTConfig, pair
from zoo.text import brief

# The entry of ours in the header of a .safetensors file.
METADATA_KEY = "keras_vit"
_MAX_JSON_BYTES = 10_000_000
# What reading JSON of other kinds than expected raises.
MALFORMED = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip


class Description(NamedTuple):
    """What the arrays of a file do not say; `config` may have the number of heads."""

    config: ViTConfig = ViTConfig()
    grid_size: tuple[int, int] | None = None
    class_token_position: bool = True


def to_metadata(description: Description) -> dict[str, str]:
    """Returns the header entries for a description, and what transformers needs."""
    entry = {
        "semantics": description.config.semantics.computed,
        "num_heads": description.config.num_heads,
        "grid_size": description.grid_size,
    }
    return {"format": "pt", METADATA_KEY: json.dumps(entry)}


def from_metadata(metadata, path) -> Description | None:
    """Returns the description in a header, None where it has no entry of ours."""
    if METADATA_KEY not in metadata:
        return None
    try:
        entry = json.loads(metadata[METADATA_KEY])
        computed = entry.pop("semantics")
        heads, grid = entry.pop("num_heads"), entry.pop("grid_size")
        if entry:
            raise ValueError(f"unknown {', '.join(entry)}")
        grid = None if grid is None else pair(tuple(grid), "grid_size")
        return Description(Semantics(num_heads=heads, **computed), grid)
    except MALFORMED as error:
        raise CheckpointError(
            f"{path} has a header entry {METADATA_KEY!r} that cannot be read "
            f"({brief(error)}): write the file again with zoo.write."
        ) from error


def read_json(file: os.PathLike) -> dict:
    """Reads a file of settings beside a checkpoint; {} where there is none."""
    file = pathlib.Path(file)
    if not file.is_file():
        return {}
    try:
        if file.stat().st_size > _MAX_JSON_BYTES:
            raise ValueError(f"more than {_MAX_JSON_BYTES} bytes")
        table = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(table, dict):
            raise ValueError("no table")
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read ({error}).") from error
    return table


def check_sizes(file, settings: dict, **sizes) -> None:
    """Refuses settings that have other sizes than the arrays; a size may be missing."""
    differences = [
        f"{name} {brief(settings[name])} (the arrays have {size})"
        for name, size in sizes.items()
        if settings.get(name) is not None and settings[name] != size
    ]
    if differences:
        raise CheckpointError(
            f"{file} describes another model than the file beside it: "
            f"{', '.join(differences)}. Keep each model in a folder of its own."
        )


def grid_of(image_size, patch_size) -> tuple[int, int] | None:
    """Returns the (height, width) in patches, None without one of the sizes."""
    if image_size is None or patch_size is None:
        return None
    (height, width), (rows, columns) = (
        size if isinstance(size, (list, tuple)) else (size, size)
        for size in (image_size, patch_size)
    )
    return pair((height // rows, width // columns), "grid_size")
