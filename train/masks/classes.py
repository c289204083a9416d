"""The classes of masks: which values, or colours, mean which class, or do not count."""

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.data.checking import DataError
from train.data.columns import filled, header_of, opened
from train.data.registry import IGNORED, MASK_TABLES
from zoo.common.limits import TEXT_BYTES
from zoo.common.safe_text import named, of_plain_cell

LAYOUT = (
    "expected the columns value,name, such as 1,road, and for colours r,g,b as well"
)
# Classes of these names do not count where nobody says which do not.
_IGNORED_NAMES = ("ignore", "ignored", "void", "unlabeled", "unlabelled")
NOTHING = "none"
# The values of a PNG file of 16 bits.
_VALUES = 2**16
_COLUMNS = {
    "value": ("value", "id", "index"),
    "name": ("name", "class", "class_name", "label"),
    "r": ("r", "red"),
    "g": ("g", "green"),
    "b": ("b", "blue"),
}
Colour = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class MaskClasses:
    """What the values of masks mean.

    Attributes:
        names: the classes by their numbers, from 0.
        number_of: the number of the class of each value, `IGNORED` where it does not
            count.
        colours: the value of each colour (red, green, blue); empty where the masks have
            no colours.
        place: the file of the table for messages, empty without one.
    """

    names: tuple[str, ...]
    number_of: dict[int, int]
    colours: dict[Colour, int] = dataclasses.field(default_factory=dict)
    place: str = ""

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """Returns the class numbers of the values of a mask.

        `values` are integers from 0 to 65,535 of any shape. The numbers are int32 of
        that shape, `IGNORED` where a pixel does not count, -1 where nothing says what a
        value means.

        Example:
            >>> of_values([7, 9, 255]).numbers(np.array([[9, 7], [255, 8]])).tolist()
            [[1, 0], [255, -1]]
        """
        return self._numbers[values]

    @functools.cached_property
    def _numbers(self):
        table = np.full(_VALUES, -1, np.int32)
        table[[*self.number_of]] = [*self.number_of.values()]
        return table


class _Row(NamedTuple):
    place: str
    value: int
    name: str
    colour: Colour | None


def of_values(
    values: Iterable[int], ignore: str | None = None, place: str = ""
) -> MaskClasses:
    """Returns the classes of masks without a table: the values that occur in them.

    Their names are the values. `ignore` is as in `of_table`, `place` the folder in
    messages.
    """
    found = [
        _Row(f"{place}, value {one}", one, str(one), None) for one in sorted(values)
    ]
    ignored = _ignored(found, ignore, place, has_table=False)
    return _classes(found, ignored, place, "")


def of_table(path: Path, ignore: str | None = None) -> MaskClasses:
    """Reads a table of classes, a CSV file with the columns value and name.

    It may have the columns r, g and b of masks in colour; values may then be missing,
    and are the numbers of the rows. Rows of one name are one class. Classes are in the
    order of the table.

    Args:
        path: the file.
        ignore: the names and values of what does not count, with commas between, or
            "none"; if not given, classes that are called ignore, void, unlabeled or
            the like. 255 does not count either, unless the table has it.

    Raises:
        DataError: the table cannot be read; the message says where.
    """
    found = _rows(path)
    for key, what in (("value", "value"), ("colour", "colour")):
        seen: dict = {}
        for row in found:
            one = getattr(row, key)
            if one is not None and one in seen:
                raise DataError(
                    f"{row.place} has the {what} {one} of {seen[one]} again: give each "
                    "row its own"
                )
            seen[one] = row.place
    ignored = _ignored(found, ignore, str(path), has_table=True)
    return _classes(found, ignored, str(path), str(path))


def _rows(path):
    found = []
    with opened(path, TEXT_BYTES, LAYOUT, found) as reader:
        places = _places(header_of(reader), path)
        for values in filled(reader):
            place = f"{path} line {reader.line_num}"
            found.append(_row(place, places, values, len(found)))
    return found


def _places(header, path):
    plain = [name.casefold().replace(" ", "_") for name in header]
    places = {
        role: plain.index(name)
        for role, names in _COLUMNS.items()
        for name in reversed(names)
        if name in plain
    }
    colours = sum(role in places for role in "rgb")
    if "name" not in places or colours in (1, 2) or not ("value" in places or colours):
        raise DataError(
            f"{path} line 1 has the columns {','.join(header) or 'none'}: {LAYOUT}"
        )
    return places


def _row(place, places, values, number):
    if len(values) <= max(places.values()):
        raise DataError(f"{place} has {len(values)} values, too few: {LAYOUT}")
    row = {role: values[number].strip() for role, number in places.items()}
    if not row["name"]:
        raise DataError(f"{place} has no name: fill it in")
    value = _integer(place, row["value"], _VALUES) if "value" in row else number
    colour = None
    if "r" in row and any(row[role] for role in "rgb"):
        red, green, blue = (_integer(place, row[role], 256) for role in "rgb")
        colour = (red, green, blue)
    return _Row(place, value, of_plain_cell(row["name"]), colour)


def _integer(place, text, end):
    if not text.isascii() or not text.isdecimal() or int(text[:9]) >= end:
        raise DataError(
            f"{place} has {text!r} where a whole number from 0 to {end - 1:,} is "
            "expected: correct it"
        )
    return int(text)


def _ignored(found, ignore, place, has_table):
    """Returns the values that do not count."""
    by_name: dict[str, list[int]] = {}
    for row in found:
        by_name.setdefault(row.name, []).append(row.value)
    ignored = set()
    if ignore is None:
        for name, values in by_name.items():
            ignored.update(values * (name.casefold() in _IGNORED_NAMES))
    else:
        for one in filter(None, map(str.strip, ignore.split(","))):
            if one in by_name:
                ignored.update(by_name[one])
            elif one.isascii() and one.isdecimal():
                ignored.add(int(one[:9]))
            elif one != NOTHING:
                raise DataError(
                    f'ignore="{one}" is neither a value nor a class of {place}: choose '
                    f"of {named([*by_name])}"
                )
    if ignore != NOTHING and not (has_table and IGNORED in (r.value for r in found)):
        ignored.add(IGNORED)
    return {value for value in ignored if value < _VALUES}


def _classes(found, ignored, place, table):
    names = dict.fromkeys(row.name for row in found if row.value not in ignored)
    if len(names) < 2:
        raise DataError(
            f"{place} has less than two classes ({named([*names]) or 'none'}), beside "
            f"values that do not count ({named([*map(str, sorted(ignored))])}): where "
            "these are classes, as in masks of 0 and 255, name them in "
            f"{MASK_TABLES[0]}"
        )
    if len(names) > IGNORED:
        raise DataError(
            f"{place} has {len(names):,} classes, where {IGNORED} are the most: masks "
            "of instances or of depth are no masks of classes; or give several values "
            f"one name in {MASK_TABLES[0]}"
        )
    numbers = {name: number for number, name in enumerate(names)}
    number_of = dict.fromkeys(ignored, IGNORED)
    for row in found:
        if row.value not in ignored:
            number_of[row.value] = numbers[row.name]
    colours = {row.colour: row.value for row in found if row.colour is not None}
    return MaskClasses(tuple(names), number_of, colours, table)
