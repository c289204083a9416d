"""What is known of a checkpoint besides its arrays, and where it is written down."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib

from zoo.files.archive import CheckpointError
from zoo.network import ARCHITECTURES
from zoo.semantics import Semantics
from zoo.text import brief

# The entry of ours in the header of a .safetensors file.
METADATA_KEY = "keras_vit"
_MAX_JSON_BYTES = 10_000_000
# What reading JSON of other kinds than expected raises.
MALFORMED = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


@dataclasses.dataclass(frozen=True)
class Description:
    """What arrays do not tell.

    Args:
        semantics: `zoo.semantics.Semantics`.
        num_heads: int, or None where nothing tells it.
        grid_size: (height, width) in patches, or None.
        class_token_position: bool, whether the class token has a position of its own.

    Example:
        >>> from zoo.files import description
        >>> said = description.Description(num_heads=3, grid_size=(4, 7))
        >>> description.from_metadata(description.to_metadata(said), "a") == said
        True
    """

    semantics: Semantics = Semantics()
    num_heads: int | None = None
    grid_size: tuple[int, int] | None = None
    class_token_position: bool = True


def to_metadata(description: Description) -> dict[str, str]:
    """Returns the header entries that say it, and what transformers asks for."""
    said = {
        "semantics": dataclasses.asdict(description.semantics),
        "num_heads": description.num_heads,
        "grid_size": description.grid_size,
    }
    return {"format": "pt", METADATA_KEY: json.dumps(said)}


def from_metadata(metadata, path) -> Description | None:
    """Returns what a header says, None where it has no entry of ours.

    Raises:
        CheckpointError: the entry is not as `to_metadata` writes it.
    """
    if METADATA_KEY not in metadata:
        return None
    try:
        said = json.loads(metadata[METADATA_KEY])
        semantics = Semantics(**said.pop("semantics"))
        heads, grid = said.pop("num_heads"), said.pop("grid_size")
        if said:
            raise ValueError(f"unknown {', '.join(said)}")
        grid = None if grid is None else tuple(grid)
        found = Description(semantics, heads, grid)
        check_counts(found)
    except MALFORMED as error:
        raise CheckpointError(
            f"{path} has a header entry {METADATA_KEY!r} that cannot be read "
            f"({brief(error)}): write the file again with zoo.write."
        ) from error
    return found


def check_counts(description: Description) -> None:
    """Makes sure that what should be counts are.

    Raises:
        ValueError: one is no positive int, or a grid has not two sides.
    """
    grid = () if description.grid_size is None else description.grid_size
    if len(grid) not in (0, 2):
        raise ValueError(f"{brief(grid)} is no (height, width)")
    heads = () if description.num_heads is None else (description.num_heads,)
    for number in (*heads, *grid):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ValueError(f"{brief(number)} is no positive int")


def papers_heads(hidden_size, num_layers, mlp_dim) -> int | None:
    """Returns the heads of the released models of these sizes, None for other sizes.

    Example:
        >>> from zoo.files import description
        >>> description.papers_heads(768, 12, 3072)
        12
    """
    sizes = (hidden_size, num_layers, mlp_dim)
    for known in ARCHITECTURES.values():
        if (known.hidden_size, known.num_layers, known.mlp_dim) == sizes:
            return known.num_heads
    return None


def read_json(file: os.PathLike) -> dict:
    """Reads a file of settings that lies beside a checkpoint; {} where there is none.

    Raises:
        CheckpointError: it is no JSON table.
    """
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


def check_sizes(file, stated: dict, found: dict) -> None:
    """Makes sure that settings are those of the arrays beside them.

    Args:
        file: path of the settings.
        stated: dict of name to size there, None where it is not stated.
        found: dict of the same names to the arrays' size.

    Raises:
        CheckpointError: a size differs.
    """
    differences = [
        f"{name} {brief(stated[name])} (the arrays have {found[name]})"
        for name in stated
        if stated[name] is not None and stated[name] != found[name]
    ]
    if differences:
        raise CheckpointError(
            f"{file} describes another model than the file beside it: "
            f"{', '.join(differences)}. Keep each model in a folder of its own."
        )


def explain(keys, reasons) -> list[str]:
    """Returns why a checkpoint with these keys computes something else.

    Args:
        keys: iterable of str.
        reasons: pairs of a compiled pattern found in a key and the reason.

    Example:
        >>> import re
        >>> from zoo.files import description
        >>> description.explain(["ls1.gamma"], [(re.compile("ls1"), "LayerScale")])
        ['LayerScale (ls1.gamma)']
    """
    found = ((reason, next(filter(p.search, keys), None)) for p, reason in reasons)
    return [f"{reason} ({key})" for reason, key in found if key is not None]
