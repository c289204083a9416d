"""Files that correct a data set: photos to leave out, and labels of photos."""

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence

from train.data import columns as table
from train.data.checking import DataError
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import read_text
from zoo.common.safe_text import of_plain_cell

# `keras-vit check` writes these. Of copies all but the first photo are left out, of
# photos with several labels all: which one is right is not known.
_COPIES, _CONTRADICTIONS, _UNREAD = (
    ("leaks", "identical", "near"),
    "contradictions",
    "unread",
)
_LABEL_ERRORS = "label_errors"
# A run directory has these.
LEFT_OUT, RELABELLED = "left_out", "relabelled"

File = str | os.PathLike
# One file, or several of one kind; a later one overrides an earlier one.
Files = File | Sequence[File] | None


def each(files: Files) -> list[File]:
    """Returns files as a list.

    >>> each(None), each("a.csv"), each(["a.csv", "b.csv"])
    ([], ['a.csv'], ['a.csv', 'b.csv'])
    """
    if isinstance(files, (str, os.PathLike)):
        return [files]
    return [*(files or ())]


def left_out(file: File) -> Iterable[str]:
    """Returns the names of the photos that a file leaves out.

    It is a CSV file with a column `path`, or the JSON of `keras-vit check`, all of
    whose findings but label errors count. Raises a `DataError` for others.
    """
    content = _read(file, ("path",))
    if isinstance(content, list):
        return [row["path"] for row in content]
    return left_out_by(content)


def left_out_by(content: dict) -> Iterator[str]:
    """Yields the names of the photos that the JSON of a check leaves out.

    A photo may come more than once.

    Example:
        >>> found = {"near": [["a.jpg", "b.jpg"]], "unread": {"c.jpg": "it is cut"}}
        >>> [*left_out_by(found)]
        ['c.jpg', 'b.jpg']
    """
    yield from content.get(LEFT_OUT, [])
    yield from content.get(_UNREAD, {})
    for group in content.get(_CONTRADICTIONS, []):
        yield from group
    for kind in _COPIES:
        for group in content.get(kind, []):
            yield from group[1:]


def labels(file: File) -> dict[str, str]:
    """Returns the labels that a file has for photos, by their names.

    It is a CSV file with the columns `path` and `label`, whose rows without a label do
    not count, or the JSON of `keras-vit check`, of which the label errors count. Raises
    a `DataError` for others, where no row has a label, and where a photo has two.
    """
    content = _read(file, ("path", "label"))
    if isinstance(content, list):
        found: dict[str, str] = {}
        for row in content:
            path, label = row["path"], row["label"]
            if label and found.setdefault(path, label) != label:
                raise DataError(
                    f'{file} has the labels "{found[path]}" and "{label}" for {path}: '
                    "keep one of them"
                )
        if content and not found:
            raise DataError(f"no row of {file} has a label: fill in its column label")
        return found
    suggested = {row["path"]: row["label"] for row in content.get(_LABEL_ERRORS, [])}
    return suggested | content.get(RELABELLED, {})


def _read(file, columns):
    """Returns the rows of a CSV file, dicts; or the object of a JSON file."""
    layout = (
        "expected the JSON of keras-vit check, or a CSV file with the columns "
        f"{','.join(columns)}"
    )
    try:
        text = read_text(file, TABLE_BYTES, "utf-8-sig")
        if text.lstrip().startswith("{"):
            return _checked(json.loads(text))
        rows = _rows(io.StringIO(text, newline=""), columns)
    except (
        OSError,
        ValueError,
        csv.Error,
        LookupError,
        TypeError,
        RecursionError,
    ) as error:
        raise DataError(f"cannot read {file} ({error}): {layout}") from error
    for number, row in rows.items():
        if not row["path"]:
            raise DataError(f"{file} line {number} has no path: fill it in")
    return [*rows.values()]


def _rows(lines, columns):
    """Returns the values of some columns of a table by the numbers of its lines."""
    reader = table.rows(lines.readline(), lines)
    header = table.header_of(reader)
    if missing := {*columns}.difference(header):
        raise ValueError(f"it has no column {', '.join(sorted(missing))}")
    places = {name: header.index(name) for name in columns}
    rows = {}
    for row in table.filled(reader):
        # A row may be shorter than the header.
        values = row + [""] * len(header)
        rows[reader.line_num] = {
            name: of_plain_cell(values[place].strip()) for name, place in places.items()
        }
    return rows


def _checked(content):
    """Refuses JSON whose lists are not those of `keras-vit check`."""
    for kind in (*_COPIES, _CONTRADICTIONS):
        for group in content.get(kind, []):
            if not isinstance(group, list) or not all(
                isinstance(n, str) for n in group
            ):
                raise ValueError(f'"{kind}" is not a list of lists of paths')
    for row in content.get(_LABEL_ERRORS, []):
        if not (isinstance(row["path"], str) and isinstance(row["label"], str)):
            raise ValueError(f'"{_LABEL_ERRORS}" has other values than texts')
    return content
