"""Which fields of settings are read, and why others change nothing.

Tables beside this file have each field that a library writes: what is read, or compared
with the arrays, what must have the one value that is computed, and why others change
nothing. A field of no table may change numbers, and is refused. The values that a field
may have are in the column `type`, a name of `_TYPES`; with ! null is none of them.
"""

import csv
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from zoo.common import limits
from zoo.common.safe_text import brief, named
from zoo.containers.arrays import CheckpointError
from zoo.containers.opening import read_json


class Field(NamedTuple):
    """What a field is for, and the value that is implied where nothing is said.

    It is the only one that is computed where `use` is `"implied"`.
    """

    use: str
    implied: object = None
    type: str = ""
    may_be_null: bool = True


def rows(name: str) -> list[dict[str, str]]:
    """Returns the rows of a table beside this file."""
    file = pathlib.Path(__file__).with_name(name)
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def table(name: str, part: str | None = None) -> dict[str, Field]:
    """Returns the fields of a table beside this file, or of one part of it."""
    fields = {}
    for row in rows(name):
        if part in (None, row.get("table")):
            kind, needed, _ = row["type"].partition("!")
            implied = json.loads(row["implied"] or "null")
            fields[row["field"]] = Field(row["use"], implied, kind, not needed)
    return fields


def read(file: pathlib.Path, fields: dict[str, Field]) -> dict:
    """Returns the settings in a file, {} without one, after `check_types`."""
    settings = read_json(file)
    check_types(file, settings, fields)
    return settings


class _Type(NamedTuple):
    """Which values a field may have, and what a message calls them."""

    has: Callable[[object], bool]
    called: str


def _is_count(value):
    return type(value) is int and 0 < value <= limits.SIZE


def _in(least, most):
    return lambda value: type(value) in (int, float) and least <= value <= most


def _all(has, *lengths):
    """Returns whether values are lists of these lengths, of any without lengths."""
    return lambda values: (
        isinstance(values, (list, tuple))
        and (not lengths or len(values) in lengths)
        and all(map(has, values))
    )


def _any(*alternatives):
    return lambda value: any(has(value) for has in alternatives)


def _is(kind):
    return lambda value: isinstance(value, kind)


def _is_size(*names):
    """Returns whether values are tables of sides by one of several sets of names."""
    return lambda value: (
        isinstance(value, dict)
        and {name for name in value if value[name] is not None} in names
        and all(side is None or _is_count(side) for side in value.values())
    )


_SIDES = {"height", "width"}
_CHANNELS = range(1, 1025)
_PER_CHANNEL = "one for all channels or a list of one per channel"
_TYPES = {
    "flag": _Type(_is(bool), "true or false"),
    "text": _Type(_is(str), "a text"),
    "texts": _Type(_all(_is(str)), "a list of texts"),
    "notes": _Type(_any(_is(str), _all(_is(str))), "a text or a list of texts"),
    "names": _Type(
        _any(_is(list), _is(dict)), "a list of names, or a table of them by number"
    ),
    "table": _Type(_is(dict), "a table"),
    "count": _Type(_is_count, "a whole number above 0"),
    "number or none": _Type(
        _any(_is_count, lambda value: value == 0 and type(value) is int),
        "a whole number from 0",
    ),
    "sides": _Type(
        _any(_is_count, _all(_is_count, 1, 2)),
        "a whole number above 0, or a list of height and width",
    ),
    "axes": _Type(_all(_is_count, 3), "a list of channels, height and width"),
    "shape": _Type(
        _all(_any(_is_count, lambda value: value is None), 3),
        "a list of height, width and channels",
    ),
    "size": _Type(
        _any(
            _is_count,
            _all(_is_count, 2),
            _is_size(
                _SIDES,
                {"shortest_edge"},
                {"longest_edge"},
                {"shortest_edge", "longest_edge"},
                {"max_height", "max_width"},
                {"min_pixels", "max_pixels"},
            ),
        ),
        "a whole number above 0, a list of height and width, or a table of these or "
        "of shortest_edge",
    ),
    "crop": _Type(
        _any(_is_count, _all(_is_count, 2), _is_size(_SIDES)),
        "a whole number above 0, or a list or a table of height and width",
    ),
    "resample": _Type(
        lambda value: type(value) is int and 0 <= value <= 5,
        "a whole number from 0 to 5",
    ),
    "share": _Type(_in(0.1, 1), "a number from 0.1 to 1"),
    "positive": _Type(_in(1e-30, 1e30), "a number above 0"),
    "number": _Type(_in(-1e30, 1e30), "a number"),
    "factor": _Type(_in(1e-6, 1e6), "a number from 1e-06 to 1e+06"),
    "means": _Type(
        _any(_in(-1e6, 1e6), _all(_in(-1e6, 1e6), *_CHANNELS)),
        f"a number from -1e+06 to 1e+06, {_PER_CHANNEL}",
    ),
    "deviations": _Type(
        _any(_in(1e-6, 1e6), _all(_in(1e-6, 1e6), *_CHANNELS)),
        f"a number from 1e-06 to 1e+06, {_PER_CHANNEL}",
    ),
}
# Fields that transformers writes for models of every type.
OF_EVERY_TYPE = table("configuration_fields.csv")


def name_of_network(
    file: object, settings: dict, fields: dict[str, Field], name: str
) -> str | None:
    """Returns what the field `name` says, which nothing that is computed is without."""
    name_read = settings.get(name)
    of_network = computed(settings, fields)
    if name_read is None and of_network:
        raise CheckpointError(
            f"{file} has {named([*of_network])} and no {name}, which says what they "
            f"mean: write {name} into it, or take the file out."
        )
    return name_read


def computed(settings: dict, fields: dict[str, Field]) -> dict[str, Any]:
    """Returns what settings say of fields whose other values mean other numbers."""
    names = {
        name
        for name, field in fields.items()
        if field.use in ("read", "compared", "implied")
    }
    return {
        name: value
        for name, value in settings.items()
        if value is not None and name in names
    }


def complete(settings: dict, fields: dict[str, Field]) -> dict[str, Any]:
    """Returns settings with the value that is implied where they say nothing."""
    implied = {
        name: field.implied for name, field in fields.items() if field.use == "read"
    }
    said = {name: value for name, value in settings.items() if value is not None}
    return implied | said


def check(file: object, settings: dict, fields: dict[str, Field]) -> None:
    """Refuses what `check_unused` does, and null where a library computes with it."""
    check_unused(file, settings, fields)
    if nulls := [
        name
        for name, field in fields.items()
        if not field.may_be_null and settings.get(name, 0) is None
    ]:
        raise CheckpointError(
            f"{file} has null for {', '.join(nulls)}: write the value that the model "
            "was trained with, or take the line out for its library's default."
        )


def check_unused(file: object, settings: dict, fields: dict[str, Field]) -> None:
    """Refuses fields that are not known, or have another value than what is computed.

    In a table beside the one that is used, null is a field that is not there.
    """
    check_types(file, settings, fields)
    said = {name: value for name, value in settings.items() if value is not None}
    if unknown := [
        f"{name}={brief(said[name])}" for name in said if name not in fields
    ]:
        raise CheckpointError(
            f"{file} has fields that are not known: {', '.join(unknown)}. Take out "
            "those that change nothing; a network that they change is not read."
        )
    refuse(
        file,
        [
            f"{name}={brief(value)} (only {json.dumps(fields[name].implied)})"
            for name, value in said.items()
            if fields[name].use == "implied" and not _is_implied(value, fields[name])
        ],
    )


def refuse(file: object, wrong: list[str]) -> None:
    """Refuses settings that are `wrong`, which are not computed, if there are any."""
    if wrong:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(wrong)}."
        )


def refuse_differences(
    file: object, said: dict[str, Any], beside: str, other: dict[str, Any]
) -> None:
    """Refuses settings that say something else than others, called `beside`, say."""
    if wrong := [
        f"{name} {brief(value)} and {brief(other[name])}"
        for name, value in said.items()
        if name in other and value != other[name]
    ]:
        raise CheckpointError(
            f"{file} and {beside} say different things, {', '.join(wrong)}: take the "
            "one out that the model was not trained with."
        )


def check_types(file: object, settings: dict, fields: dict[str, Field]) -> None:
    """Refuses values that a field never has; null is a field that is not there."""
    for name, value in settings.items():
        type_ = _TYPES.get(fields[name].type) if name in fields else None
        if type_ is not None and value is not None and not type_.has(value):
            raise CheckpointError(
                f"{file} has {'an' if name[0] in 'aeiou' else 'a'} {name} of "
                f"{brief(value)}: write {type_.called}, as the model was trained, or "
                "take it out for its library's default."
            )


def _is_implied(value, field):
    implied = field.implied
    return value == implied and isinstance(value, bool) == isinstance(implied, bool)
