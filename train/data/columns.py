"""The columns of a table of photos: which one has the files, the labels, the split."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from train.data.checking import DataError
from zoo.common.regular_files import TooLargeError, open_regular
from zoo.common.safe_text import named

# The word for a table whose split column is not used.
NO_COLUMN = "no"
# The first name of each is taken even where others are there.
_KNOWN = {
    "image": "path image images file files filename filepath image_path image_file "
    "image_name file_name file_path img photo picture",
    "label": "label labels class classes class_name label_name category target",
    "split": "split subset partition",
}
# The separators of values in a row, and their names in messages. Spreadsheets write
# semicolons where a comma is the decimal sign.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a table by their names; None for those with usual names.

    The split may be `NO_COLUMN`.
    """

    image: str | None = None
    label: str | None = None
    split: str | None = None

    def find(
        self,
        header: Sequence[str],
        place: str,
        layout: str,
        required: Sequence[str] = ("image", "label"),
    ) -> dict[str, int]:
        """Returns the numbers of the columns image, label and, if it is there, split.

        `header` are the names in the line `place`, `layout` says in messages what they
        should be. Columns that are not `required` may be missing.

        >>> Columns(label="breed").find(["file", "breed", "class"], "line 1", "")
        {'image': 0, 'label': 1}
        """
        places = {}
        for role, requested in dataclasses.asdict(self).items():
            if requested is None:
                numbers = _usual(role, header)
            elif role == "split" and requested == NO_COLUMN:
                continue
            else:
                numbers = _of_name(requested, header)
                if not numbers:
                    raise DataError(
                        f"{place} has no column {requested!r}, which --{role}_column "
                        f"names: pass one of {named(header) or 'the columns'}"
                    )
            if len(numbers) > 1:
                names = " and ".join(repr(header[number]) for number in numbers)
                raise DataError(
                    f"{place} has the columns {names}, each of which may be the "
                    f"{role}: pass the one that is with --{role}_column, or rename one"
                )
            if numbers:
                places[role] = numbers[0]
        if missing := [role for role in required if role not in places]:
            flags = " and ".join(f"--{role}_column" for role in missing)
            raise DataError(
                f"{place} has the columns {','.join(header) or 'none'}, of which none "
                f"is the {' or the '.join(missing)} by its name: pass {flags}; {layout}"
            )
        return places


# Columns are found by their usual names.
USUAL = Columns()
# Messages say so what a table should look like.
LAYOUT = (
    "expected the columns path,label, such as images/1.jpg,daisy, and perhaps split "
    "with train, test or validation; or train.csv and test.csv in one folder"
)


def required_of(may_have_indicators: bool) -> tuple[str, ...]:
    """Returns the columns that a table must have, which may have one for each label."""
    return ("image",) if may_have_indicators else ("image", "label")


def separator(header: str) -> str:
    """Returns what separates the values of a table, by its first line.

    It is the one of `SEPARATORS` that divides the line into most columns.

    >>> separator('"kind, species";path')
    ';'
    """

    def columns(separator: str) -> int:
        return len(next(csv.reader([header], delimiter=separator), []))

    return max(SEPARATORS, key=columns)


def rows(first: str, others: Iterable[str] = ()) -> Any:
    """Returns a `csv.reader` of the lines of a table; a `csv.Error` says what is wrong.

    >>> [*rows("path; label", ["1.jpg; daisy"])]
    [['path', 'label'], ['1.jpg', 'daisy']]
    """
    return csv.reader(
        itertools.chain([first], others),
        delimiter=separator(first),
        strict=True,
        skipinitialspace=True,
    )


def header_of(reader: Any) -> list[str]:
    """Returns the names in the first row of a reader, which `rows` returns."""
    return [name.strip() for name in next(reader, [])]


def filled(reader: Any) -> Iterator[list[str]]:
    """Yields the further rows of a reader that are not blank."""
    for values in reader:
        if any(map(str.strip, values)):
            yield values


@contextlib.contextmanager
def opened(path: Path, most: int, layout: str, read: Sequence) -> Iterator[Any]:
    """Yields the `rows` of a CSV file in UTF-8 of at most so many bytes.

    `read` are the rows so far, and `layout` says what the file should have: a
    `DataError` names both where it cannot be read.
    """
    try:
        # Excel writes a byte order mark.
        with io.TextIOWrapper(
            open_regular(path, most=most), encoding="utf-8-sig", newline=""
        ) as file:
            reader = rows(file.readline(), file)
            yield reader
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot read {path}: {reason}; {layout}") from error
    except TooLargeError as error:
        raise DataError(str(error)) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not in UTF-8 after its first {len(read)} rows: save it again "
            "as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error


def of_settings(settings: Mapping[str, Any]) -> Columns:
    """Returns the `Columns` of flags, or of the settings of a run."""
    fields = dataclasses.fields(Columns)
    return Columns(*(settings.get(f"{field.name}_column") for field in fields))


def _usual(role, header):
    names = _KNOWN[role].split()
    first = _of_name(names[0], header)
    return first or [n for n, one in enumerate(header) if _plain(one) in names]


def _of_name(name, header):
    return [n for n, one in enumerate(header) if _plain(one) == _plain(name)]


def _plain(name):
    return name.strip().casefold().replace(" ", "_").replace("-", "_")
