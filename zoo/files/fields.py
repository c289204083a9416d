"""Which fields of settings are read, and why others change nothing.

Tables beside this file have each field that a library writes: what is read, or compared
with the arrays, what must have the one value that is computed, and why others change
nothing. A field of no table may change numbers, and is refused.
"""

import csv
import json
import pathlib
from typing import NamedTuple

from zoo.files.archive import CheckpointError
from zoo.text import brief, named


class Field(NamedTuple):
    """What a field is for, and its only value where `use` is `"implied"`."""

    use: str
    implied: object = None

    @property
    def is_computed(self) -> bool:
        """Whether other values mean other numbers."""
        return self.use in ("read", "compared", "implied")


def table(name: str, part: str | None = None) -> dict[str, Field]:
    """Returns the fields of a table beside this file, or of one part of it."""
    file = pathlib.Path(__file__).with_name(name)
    with file.open(encoding="utf-8", newline="") as lines:
        return {
            row["field"]: Field(row["use"], json.loads(row["implied"] or "null"))
            for row in csv.DictReader(lines)
            if part in (None, row.get("table"))
        }


# What transformers writes for a model of whatever type.
OF_EVERY_TYPE = table("configuration_fields.csv")


def name_of_network(file, settings: dict, fields: dict[str, Field], name: str):
    """Returns the field that names a network, None where nothing describes one.

    Args:
        file: the settings, for messages.
        settings: what they say.
        fields: those of a library.
        name: the field's name.

    Raises:
        CheckpointError: settings describe a network without its name.
    """
    found = settings.get(name)
    of_network = [
        key
        for key, value in settings.items()
        if value is not None and key in fields and fields[key].is_computed
    ]
    if found is None and of_network:
        raise CheckpointError(
            f"{file} has {named(of_network)} and no {name}, which says what they mean: "
            f"write {name} into it, or take the file out."
        )
    return found


def check(file, settings: dict, fields: dict[str, Field]) -> None:
    """Refuses fields that are not known, or have another value than what is computed.

    Args:
        file: the settings, for messages.
        settings: what they say, or one table of it. Null is a field that is not there.
        fields: those that are known.

    Raises:
        CheckpointError: it names the file and the fields.
    """
    said = {name: value for name, value in settings.items() if value is not None}
    if unknown := [
        f"{name}={brief(said[name])}" for name in said if name not in fields
    ]:
        raise CheckpointError(
            f"{file} has fields that are not known: {', '.join(unknown)}. Take out "
            "those that change nothing; a network that they change is not read."
        )
    if wrong := [
        f"{name}={brief(value)} (only {json.dumps(fields[name].implied)})"
        for name, value in said.items()
        if fields[name].use == "implied" and not _is_implied(value, fields[name])
    ]:
        raise CheckpointError(
            f"{file} has settings that are not supported: {', '.join(wrong)}."
        )


def _is_implied(value, field):
    implied = field.implied
    if isinstance(implied, dict):
        return isinstance(value, dict) and value.items() <= implied.items()
    return value == implied and isinstance(value, bool) == isinstance(implied, bool)
