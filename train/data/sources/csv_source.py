"""A user's own images as a CSV file of paths and labels."""

import csv
import io
import itertools
import os
import re
from typing import NamedTuple

from train.data.checking import DataError
from train.data.registry import PARTS, DataDir
from train.data.sources.folder_source import file_split
from train.data.sources.splits import Source, check_name
from train.data.sources.subset import divide
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import TooLargeError, expand_home, open_regular
from zoo.common.safe_text import counted, named

LAYOUT = (
    "expected the columns path,label,split, such as images/1.jpg,daisy,train; or "
    "train.csv and test.csv in one folder with the columns path,label"
)


class _Row(NamedTuple):
    place: str
    path: str
    label: str
    split: str | None


def load_csv(
    dataset: str, data_dir: DataDir, fraction: float | None, skip_corrupt: bool
) -> Source:
    """Loads a CSV file in UTF-8 with the columns `path`, `label` and `split`.

    docs/data.md has the rules. Images may be missing with `skip_corrupt` only.
    """
    path = expand_home(dataset)
    is_whole = fraction is None
    parts = _parts(path, is_whole)
    rows = list(itertools.chain.from_iterable(parts.values()))
    if is_whole:
        parts = {"all": rows}
    _check_duplicates(rows)
    names = _class_names(parts, rows)
    missing = [row.path for row in rows if not os.path.isfile(row.path)]
    if skip_corrupt:
        # A FIFO exists but is not a file: reading it would wait forever.
        missing = [image for image in missing if os.path.exists(image)]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(rows)} images of {path} are not there: "
            f"{named(missing)}; relative paths start at {path.parent.resolve()}; or "
            "leave them out with --skip_corrupt"
        )
    numbers = {name: number for number, name in enumerate(names)}
    splits = {}
    for part, own in parts.items():
        paths, labels = [row.path for row in own], [numbers[row.label] for row in own]
        splits[part] = file_split(f"{path} {part}", paths, labels)
    return divide(str(path), names, splits, fraction, LAYOUT)


def _parts(path, is_whole):
    """Returns the rows of each part; of a whole data set, whatever its split."""
    rows, has_split = _read(path)
    if not has_split:
        beside = {part: path.with_name(f"{part}.csv") for part in PARTS[1:]}
        if path.name != "train.csv" or not beside["test"].exists():
            if is_whole:
                return {"all": rows}
            raise DataError(
                f"{path} does not say which images are for training and which for "
                f"testing: {LAYOUT}"
            )
        parts = {part: _read(file)[0] for part, file in beside.items() if file.exists()}
        return {"train": rows} | parts
    if is_whole:
        return {"all": rows}
    parts = {}
    for row in rows:
        part = row.split.lower()
        if part not in PARTS:
            raise DataError(
                f'{row.place}: the split "{row.split}" is not one of {", ".join(PARTS)}'
            )
        parts.setdefault(part, []).append(row)
    return parts


def _read(path):
    """Returns the rows, and whether there is a column `split`."""
    rows = []
    try:
        # Excel writes a byte order mark.
        with io.TextIOWrapper(
            open_regular(path, most=TABLE_BYTES), encoding="utf-8-sig", newline=""
        ) as file:
            reader = csv.reader(file, strict=True, skipinitialspace=True)
            columns = [name.strip().lower() for name in next(reader, [])]
            if columns.count("path") != 1 or columns.count("label") != 1:
                raise DataError(
                    f"{path} line 1 has the columns {','.join(columns) or 'none'}: "
                    f"{LAYOUT}"
                )
            for values in reader:
                if values:
                    place = f"{path} line {reader.line_num}"
                    rows.append(_row(place, columns, values, path.parent))
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot read {path}: {reason}; {LAYOUT}") from error
    except TooLargeError as error:
        raise DataError(str(error)) from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not in UTF-8 after its first {len(rows)} rows: save it again "
            "as CSV UTF-8"
        ) from error
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}") from error
    return rows, "split" in columns


def _row(place, columns, values, folder):
    if len(values) != len(columns):
        raise DataError(
            f"{place} has {len(values)} values for {len(columns)} columns: put what "
            "has commas in quotes"
        )
    row = {name: value.strip() for name, value in zip(columns, values, strict=True)}
    for column in ("path", "label"):
        if not row[column]:
            raise DataError(f"{place} has no {column}: fill it in")
        check_name(row[column], f"{place}: the {column} {row[column]!r}")
    path = os.path.normpath(os.path.join(folder, row["path"]))
    return _Row(place, path, row["label"], row.get("split"))


def _check_duplicates(rows):
    first = {}
    again = []
    for row in rows:
        earlier = first.setdefault(row.path, row)
        if earlier is not row:
            again.append(f"{row.path} ({row.place}, first {earlier.place})")
    if again:
        raise DataError(
            f"the table lists {counted(len(again), 'image')} more than once, where "
            f"each counts once: {named(again)}; remove these rows"
        )


def _class_names(parts, rows):
    labels = {row.label for row in parts.get("train") or rows}
    for part in PARTS[1:]:
        for row in parts.get(part, []):
            if row.label not in labels:
                raise DataError(
                    f'{row.place}: no image for training has the label "{row.label}"; '
                    "add some, or remove this row"
                )
    # Otherwise 10 comes before 2.
    is_number = all(re.fullmatch(r"0|[1-9][0-9]*", label) for label in labels)
    return tuple(sorted(labels, key=lambda one: (is_number and len(one), one)))
