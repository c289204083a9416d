"""A user's own images as a CSV file of paths and labels."""

import csv
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.data.registry import PARTS
from train.data.sources.folder_source import file_split
from train.data.sources.splits import DataError, Source, check_name, named
from train.data.sources.subset import divide

LAYOUT = (
    "expected the columns path,label,split, such as images/1.jpg,daisy,train; or "
    "train.csv and test.csv in one folder with the columns path,label"
)


class _Row(NamedTuple):
    place: str
    path: str
    label: str


def load_csv(dataset, data_dir, validation_fraction, skip_corrupt) -> Source:
    """Loads a CSV file in UTF-8 with the columns `path`, `label` and `split`.

    `split` is train, test or validation; other columns are ignored. A file `train.csv`
    without that column has `test.csv` beside it, and may have `validation.csv`. Paths
    are relative to the CSV's folder unless they are absolute. Examples keep the order
    of the rows. Classes are sorted by their labels: as numbers where all are whole
    numbers, otherwise as text. Images may be missing with `skip_corrupt` only.

    Raises:
        DataError: when the file is not like this, an image is listed twice or missing,
            a class is not in train, a path or label has line breaks, or the fraction
            is unusable.
    """
    del data_dir
    path = Path(dataset).expanduser()
    parts = _parts(path)
    _check_duplicates(parts)
    names = _class_names(parts)
    if not skip_corrupt:
        _check_files(path, parts)
    numbers = {name: number for number, name in enumerate(names)}
    splits = {
        part: file_split(
            f"{path} {part}",
            np.array([row.path for row in rows], dtype=object),
            np.array([numbers[row.label] for row in rows], np.int32),
        )
        for part, rows in parts.items()
    }
    return divide(str(path), names, splits, validation_fraction, LAYOUT)


def _parts(path):
    """Returns the rows of each part that has any."""
    columns, rows = _read(path)
    if "split" not in columns:
        beside = {part: path.with_name(f"{part}.csv") for part in PARTS}
        if path.name != "train.csv" or not beside["test"].exists():
            raise DataError(
                f"{path} does not say which images are for training and which for "
                f"testing: {LAYOUT}"
            )
        parts = {"train": _rows(path, rows)}
        for part in PARTS[1:]:
            if beside[part].exists():
                parts[part] = _rows(beside[part], _read(beside[part])[1])
        return parts

    parts = {}
    for line, values in rows:
        part = values["split"].lower()
        if part not in PARTS:
            raise DataError(
                f'{path} line {line}: the split "{values["split"]}" is not one of '
                f"{', '.join(PARTS)}"
            )
        parts.setdefault(part, []).append((line, values))
    return {part: _rows(path, rows) for part, rows in parts.items()}


def _read(path):
    """Returns the columns, and `(line, {column: value})` of every row."""
    rows = []
    try:
        # Excel writes a byte order mark.
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, skipinitialspace=True)
            columns = [name.strip().lower() for name in next(reader, [])]
            if columns.count("path") != 1 or columns.count("label") != 1:
                raise DataError(
                    f"{path} line 1 has the columns {','.join(columns) or 'none'}: "
                    f"{LAYOUT}"
                )
            for values in reader:
                if not values:
                    continue
                if len(values) != len(columns):
                    raise DataError(
                        f"{path} line {reader.line_num} has {len(values)} values for "
                        f"{len(columns)} columns: put what has commas in quotes"
                    )
                stripped = (value.strip() for value in values)
                row = dict(zip(columns, stripped, strict=True))
                rows.append((reader.line_num, row))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {LAYOUT}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not in UTF-8 after its first {len(rows)} rows: save it again "
            "as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error
    return columns, rows


def _rows(path, rows):
    found = []
    for line, values in rows:
        place = f"{path} line {line}"
        for column in ("path", "label"):
            if not values[column]:
                raise DataError(f"{place} has no {column}: fill it in")
            check_name(values[column], f"{place}: the {column} {values[column]!r}")
        found.append(
            _Row(
                place,
                os.path.normpath(os.path.join(path.parent, values["path"])),
                values["label"],
            )
        )
    return found


def _check_duplicates(parts):
    first = {}
    again = []
    for row in (row for rows in parts.values() for row in rows):
        earlier = first.setdefault(row.path, row)
        if earlier is not row:
            again.append(f"{row.path} ({row.place}, first {earlier.place})")
    if again:
        raise DataError(
            f"{len(again)} images are listed more than once, where every image counts "
            f"once: {named(again)}; remove these rows"
        )


def _class_names(parts):
    learnt = parts.get("train") or [row for rows in parts.values() for row in rows]
    labels = {row.label for row in learnt}
    for part in PARTS[1:]:
        for row in parts.get(part, []):
            if row.label not in labels:
                raise DataError(
                    f'{row.place}: no image for training has the label "{row.label}"; '
                    "add some, or remove this row"
                )
    # Otherwise 10 comes before 2.
    is_number = all(re.fullmatch(r"0|[1-9][0-9]*", label) for label in labels)
    return tuple(sorted(labels, key=int if is_number else str))


def _check_files(path, parts):
    paths = [row.path for rows in parts.values() for row in rows]
    missing = [image for image in paths if not os.path.isfile(image)]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(paths)} images of {path} are not there: "
            f"{named(missing)}; relative paths start at {path.parent.resolve()}; or "
            "leave them out with --skip_corrupt"
        )
