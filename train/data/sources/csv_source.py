"""A user's own images as a CSV file of paths and labels."""

import itertools
import os
from typing import NamedTuple

import numpy as np

from train.data.checking import PART_OF, DataError
from train.data.columns import (
    LAYOUT,
    NO_COLUMN,
    SEPARATORS,
    filled,
    header_of,
    opened,
    required_of,
)
from train.data.labels import INDICATED, SEPARATOR, indicators_in
from train.data.options import DataOptions
from train.data.registry import PARTS
from train.data.sources.folder_source import file_split
from train.data.sources.splits import Source, check_name
from train.data.sources.subset import divide, with_test_part
from train.tasks import kind_of_task
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import counted, named


class _Row(NamedTuple):
    place: str
    path: str
    # None where the row has none.
    label: str | None
    split: str | None


class _Table(NamedTuple):
    rows: list
    # The places and files of rows that have no label.
    unlabelled: list
    has_split: bool
    # The names of the columns that have 0 and 1.
    indicators: tuple[str, ...]


def load_csv(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads a CSV file in UTF-8 with columns of files, labels and perhaps splits.

    Its separator is a comma, a semicolon or a tab. docs/data.md has the rules. Images
    may be missing with `skip_corrupt` only.
    """
    path = expand_home(dataset)
    kind = kind_of_task(options.task)
    tables = _tables(path, options.columns, kind.may_have_indicators)
    parts = _parts(tables, is_whole=fraction is None)
    rows = list(itertools.chain.from_iterable(parts.values()))
    unlabelled = [row for table in tables.values() for row in table.unlabelled]
    if not rows:
        what = "no row with a label" if unlabelled else "nothing for train"
        raise DataError(
            f"{path} has {what}: {LAYOUT}; --label_column names another column"
        )
    _check_duplicates(rows)
    names, labels, unused = kind.of("labels")(parts)
    if fraction is not None:
        _check_indicators(path, tables, names)
    missing = [row.path for row in rows if not os.path.isfile(row.path)]
    if options.skip_corrupt:
        # A FIFO exists but is not a file: reading it would wait forever.
        missing = [image for image in missing if os.path.exists(image)]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(rows)} images of {path} are not there: "
            f"{named(missing)}; relative paths start at {path.parent.resolve()}; or "
            "leave them out with --skip_corrupt"
        )
    is_divided = fraction is None or "all" not in parts
    splits = {}
    for part, own in parts.items():
        paths = np.array([row.path for row in own], object)
        if not is_divided:
            # In the order of folders, so that the parts are those of a folder.
            classes = labels[part] if labels[part].ndim == 1 else np.zeros(len(own))
            order = np.lexsort((paths.astype(str), classes))
            paths, labels[part] = paths[order], labels[part][order]
        title = str(path) if part == "all" else f"{path} {part}"
        splits[part] = file_split(title, [*paths], labels[part], options.bits)
    if not is_divided:
        splits = with_test_part(splits["all"], names)
    ignored = (*unlabelled, *unused)
    return divide(str(path), names, splits, fraction, LAYOUT, ignored)


def _tables(path, columns, may_have_indicators):
    """Returns the table "all", or those of the parts where they are files."""
    table = _read(path, columns, may_have_indicators)
    beside = {part: path.with_name(f"{part}.csv") for part in PARTS[1:]}
    if table.has_split or path.name != "train.csv" or not beside["test"].exists():
        return {"all": table}
    others = {part: file for part, file in beside.items() if file.exists()}
    others = {
        part: _read(file, columns, may_have_indicators) for part, file in others.items()
    }
    return {"train": table} | others


def _parts(tables, is_whole):
    """Returns the rows of each part, or "all" where nothing says which is for what."""
    rows = {part: table.rows for part, table in tables.items()}
    if is_whole:
        return {"all": list(itertools.chain.from_iterable(rows.values()))}
    if "all" not in tables or not tables["all"].has_split:
        return rows
    parts = {}
    for row in rows["all"]:
        part = PART_OF.get(row.split.lower())
        if part is None:
            raise DataError(
                f'{row.place}: the split "{row.split}" is not one of '
                f"{', '.join(PARTS)}: correct it, name the column with --split_column, "
                f"or pass --split_column={NO_COLUMN} to have a fifth held out"
            )
        parts.setdefault(part, []).append(row)
    return parts


def _read(path, columns, may_have_indicators):
    """Returns the `_Table` in a file."""
    rows, unlabelled = [], []
    required = required_of(may_have_indicators)
    with opened(path, TABLE_BYTES, LAYOUT, rows) as reader:
        header = header_of(reader)
        places = columns.find(header, f"{path} line 1", LAYOUT, required)
        indicators = indicators_in(header, places)
        _check_names(path, header, indicators)
        for values in filled(reader):
            place = f"{path} line {reader.line_num}"
            _check_length(place, values, header, reader.dialect.delimiter)
            row = _row(place, header, places, values, path.parent)
            if indicators:
                row = row._replace(label=_indicated(place, indicators, values))
            if row.label is not None:
                rows.append(row)
            else:
                unlabelled.append(f"{row.path} (line {reader.line_num})")
    return _Table(rows, unlabelled, "split" in places, tuple(indicators))


def _check_length(place, values, header, separator):
    if len(values) != len(header):
        raise DataError(
            f"{place} has {len(values)} values for {len(header)} columns: put what "
            f"has {SEPARATORS[separator]} in quotes"
        )


def _row(place, header, places, values, folder):
    row = {role: values[number].strip() for role, number in places.items()}
    image, label = row["image"], row.get("label") or None
    if not image:
        raise DataError(f"{place} has no {header[places['image']]}: fill it in")
    for role in {"image", "label"} & places.keys():
        column = header[places[role]]
        check_name(row[role], f"{place}: the {column} {row[role]!r}")
    path = os.path.normpath(os.path.join(folder, image))
    return _Row(place, path, label, row.get("split"))


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


def _indicated(place, indicators, values):
    """Returns the labels whose columns have 1, with `SEPARATOR` between them."""
    given = []
    for name, number in indicators.items():
        value = values[number].strip()
        if value not in INDICATED:
            raise DataError(
                f"{place} has {value!r} in the column {name!r}: a label is there (1) "
                "or not (0); or name the one column of labels by --label_column"
            )
        if INDICATED[value]:
            given.append(name)
    return SEPARATOR.join(given)


def _check_names(path, header, indicators):
    """Refuses columns of labels that have one name, or that of several labels."""
    for name in indicators:
        if header.count(name) > 1:
            raise DataError(
                f"{path} line 1 has {header.count(name)} columns {name!r}: keep one of "
                "them, or rename the others"
            )
        if SEPARATOR in name:
            raise DataError(
                f"{path} line 1 has the column {name!r}: a label must not have the "
                f"{SEPARATOR} that stands between labels; rename it"
            )


def _check_indicators(path, tables, names):
    """Refuses columns that no photo for training has 1 in."""
    indicators = {name for table in tables.values() for name in table.indicators}
    if never := sorted(indicators - set(names)):
        raise DataError(
            f"no photo for training in {path} has 1 in {named(never)}: remove these "
            "columns, or add photos"
        )
