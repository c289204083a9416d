"""What settings and headers say of a checkpoint besides its arrays."""

import dataclasses
import json
import warnings
from collections.abc import Sequence
from typing import NamedTuple

from zoo.common.safe_text import brief
from zoo.containers.arrays import CheckpointError
from zoo.containers.safetensors import METADATA_KEY
from zoo.libraries import comparison
from zoo.network import FAMILIES, ViTConfig, pair, positive_int
from zoo.network.head import PROBLEM_TYPES, Head, check_problem_type, checked_names
from zoo.network.preparation import check_bits, check_preparation

# Errors that JSON of other kinds than expected raises.
MALFORMED = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip


# Messages say so of settings of which only some values are computed.
NEAREST = "write the nearest one"
NOT_READ = "a network of another one is not read"


class Description(NamedTuple):
    """What the arrays of a file do not say; `config` may have the number of heads.

    `warning` is for those who leave the activation to the file.
    """

    config: ViTConfig = ViTConfig()
    grid_size: tuple[int, int] | None = None
    pooling: str | None = None
    pooling_heads: int | None = None
    warning: str | None = None
    head: Head = Head()


def to_metadata(description: Description) -> dict[str, str]:
    """Returns the header entries for a description, and what transformers needs."""
    config, heads = description.config, description.pooling_heads
    entry = {
        "semantics": config.semantics.computed,
        "num_heads": config.num_heads,
        "grid_size": description.grid_size,
    }
    # Headers of plain networks leave these out.
    families = {name: getattr(config, name) for name in FAMILIES}
    said = {
        "families": {
            name: value
            for name, value in families.items()
            if value is not None and value != FAMILIES[name]
        },
        "pooling": description.pooling,
        "pooling_heads": None if heads == config.num_heads else heads,
        "head": {
            name: value
            for name, value in vars(description.head).items()
            if value is not None
        },
    }
    entry |= {name: value for name, value in said.items() if value}
    return {"format": "pt", METADATA_KEY: json.dumps(entry)}


def from_metadata(metadata: dict, path: object) -> Description | None:
    """Returns the description in a header, None where it has no entry of ours."""
    if METADATA_KEY not in metadata:
        return None
    try:
        entry = json.loads(metadata[METADATA_KEY])
        computed, heads = entry.pop("semantics"), entry.pop("num_heads")
        grid, pooling = entry.pop("grid_size"), entry.pop("pooling", None)
        families = entry.pop("families", {})
        pooling_heads = entry.pop("pooling_heads", None)
        if pooling_heads is not None:
            positive_int(pooling_heads, "pooling_heads")
        head = _head(**entry.pop("head", {}))
        if entry:
            raise ValueError(f"unknown {', '.join(entry)}")
        grid = None if grid is None else pair(tuple(grid), "grid_size")
        config = ViTConfig.released(num_heads=heads, **computed)
        config = dataclasses.replace(config, **families)
        return Description(config, grid, pooling, pooling_heads, head=head)
    except MALFORMED as error:
        raise CheckpointError(
            f"{path} has a header entry {METADATA_KEY!r} that cannot be read "
            f"({brief(error)}): write the file again with zoo.write."
        ) from error


def _head(class_names=None, problem_type=None, preparation=None, bits=None):
    if class_names is not None:
        class_names = checked_names(class_names)
    if problem_type is not None:
        check_problem_type(problem_type)
    if preparation is not None:
        check_preparation(preparation)
    return Head(class_names, problem_type, preparation, check_bits(bits))


def check_choices(file: object, settings: dict, known: dict, remedy: str) -> None:
    """Refuses values of settings that are none of those known, by field."""
    for name, choices in known.items():
        if settings[name] not in choices:
            raise CheckpointError(
                f"{file} has {name}={brief(settings[name])}: only "
                f"{', '.join(choices)} can be computed; {remedy}."
            )


def warn_of_fit(file: object) -> None:
    """Warns of settings that fit photos as no preparation does."""
    warnings.warn(
        f"{file} fits photos to the size in a way that is not computed here, so "
        "they are squashed to it: hand in photos that were fitted as it says.",
        stacklevel=3,
    )


def channels(
    file: object, names: Sequence[str], settings: dict
) -> tuple[tuple[float, ...], ...]:
    """Returns mean and deviation per channel, of which a number is for all channels."""
    values = [settings[name] for name in names]
    counts = {len(value) for value in values if isinstance(value, (list, tuple))}
    if len(counts) > 1:
        shown = " and ".join(f"{name}={brief(settings[name])}" for name in names)
        raise CheckpointError(
            f"{file} has {shown}: write one number per channel into each."
        )
    count = max(counts, default=3)
    return tuple(
        tuple(value) if isinstance(value, (list, tuple)) else (value,) * count
        for value in values
    )


def grid_of(
    image_size: int | Sequence[int] | None, patch_size: int | Sequence[int] | None
) -> tuple[int, int] | None:
    """Returns the (height, width) in patches, None without one of the sizes."""
    if image_size is None or patch_size is None:
        return None
    (height, width), (rows, columns) = (
        size if isinstance(size, (list, tuple)) else (size, size)
        for size in (image_size, patch_size)
    )
    return pair((height // rows, width // columns), "grid_size")


def names_of_outputs(
    file: object,
    field: str,
    said: Sequence[str] | dict[str, str] | None,
    classes: int | None,
) -> tuple[str, ...] | str | None:
    """Returns the names of a head's outputs that a field says, None without names."""
    if classes is None or not said:
        return None
    remedy = f"give each of the {classes:,} outputs one name, or take {field} out."
    if isinstance(said, dict):
        said = _in_order(file, field, said.items(), remedy)
    if len(said) != classes:
        raise CheckpointError(
            f"{file} has a {field} of {len(said):,} names for {classes:,} outputs: "
            f"{remedy}"
        )
    if list(said) == placeholders(classes):
        return None
    try:
        return checked_names(said)
    except ValueError as error:
        place = str(error).replace("class_names", field, 1)
        raise CheckpointError(f"{file}: {place}") from error


def head_of_labels(file: object, config: dict, classes: int | None) -> Head:
    """Returns what `id2label`, `label2id` and `problem_type` of transformers say."""
    names, numbers = config.get("id2label"), config.get("label2id")
    field = "id2label" if names else "label2id"
    if names and numbers:
        _check_label_numbers(file, names, numbers)
    elif numbers and classes is not None:
        pairs = [(number, name) for name, number in numbers.items()]
        names = _in_order(file, field, pairs, "number the outputs in their order.")
    problem = config.get("problem_type")
    if problem is not None:
        remedy = "a head of another one is not read"
        check_choices(file, config, {"problem_type": PROBLEM_TYPES}, remedy)
    if classes is not None:
        sizes = dict.fromkeys(("num_labels", "_num_labels"), classes)
        stated = {name: config.get(name) for name in sizes}
        comparison.check(file, comparison.ANOTHER, stated, sizes)
    names = names_of_outputs(file, field, names, classes)
    return Head(names, problem if classes else None)


def _in_order(file, field, pairs, remedy):
    """Returns the names of (number, name) pairs in the order of their numbers."""
    names = {_number(number): name for number, name in pairs}
    if names.keys() != set(range(len(pairs))):
        raise CheckpointError(
            f"{file} has a {field} with numbers that are not 0 to {len(pairs) - 1:,}, "
            f"each once: {remedy}"
        )
    return [names[number] for number in range(len(names))]


def _check_label_numbers(file, names, numbers):
    """Refuses a label2id of other names, or of the same in another order."""
    pairs = names.items() if isinstance(names, dict) else enumerate(names)
    by_number = {_number(number): name for number, name in pairs}
    for name, value in numbers.items():
        number = _number(value)
        if number < 0:
            raise CheckpointError(
                f"{file} has a label2id with {brief(value)} as the number of "
                f"{brief(name)}: write whole numbers from 0, or take label2id out."
            )
        other = by_number.get(number)
        if other not in (None, name) and name != f"LABEL_{number}":
            raise CheckpointError(
                f"{file} calls output {number} {brief(other)} in id2label, and "
                f"{brief(name)} in label2id: take the wrong one out."
            )


def placeholders(classes: int) -> list[str]:
    """Returns what transformers calls classes without names."""
    return [f"LABEL_{number}" for number in range(classes)]


def _number(key):
    text = str(key)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else -1
