"""Reads several labels of each photo from texts in a table."""

import csv
import itertools

import numpy as np

from train.data.checking import DataError
from train.data.columns import LAYOUT, Columns, filled, header_of, rows
from train.data.labels import (
    INDICATED,
    SEPARATOR,
    Labels,
    Parts,
    held_out,
    indicators_in,
    sorted_names,
    trained_on,
)
from train.data.registry import kind_of
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import expand_home, open_regular

# So many rows at the beginning of a table show what it is.
_LOOKED_AT = 200


def of_texts(parts: Parts) -> Labels:
    """Returns the sorted names of labels, and which of them the rows of each part have.

    `parts` are those of `train.data.labels.of_classes`; a text has labels with
    `SEPARATOR` between them, none if it is empty. The result is int8 (rows, labels),
    of 0 and 1. Labels that no row to train on has are left out. Raises a `DataError`
    for one that is twice in a row or empty, and where there are none at all.

    Example:
        >>> from train.data.labels import Cell
        >>> labels = of_texts({"all": [Cell("1", "b|a"), Cell("2", "b")]})
        >>> labels.names, labels.values["all"].tolist()
        (('a', 'b'), [[1, 1], [0, 1]])
    """
    given = {id(row): _split(row) for rows in parts.values() for row in rows}
    names = sorted_names({one for row in trained_on(parts) for one in given[id(row)]})
    if not names:
        raise DataError("no photo for training has a label: add some")
    numbers = {name: number for number, name in enumerate(names)}
    labels = {}
    for part, own in parts.items():
        labels[part] = np.zeros((len(own), len(names)), np.int8)
        for place, row in enumerate(own):
            known = [numbers[one] for one in given[id(row)] if one in numbers]
            labels[part][place, known] = 1
    unused: dict[str, str] = {}
    for row in held_out(parts):
        for label in given[id(row)]:
            if label not in numbers:
                unused.setdefault(label, row.place)
    told = (f"{label} (first {place}, not in train)" for label, place in unused.items())
    return Labels(names, labels, tuple(told))


def _split(row):
    """Returns the labels of a row."""
    labels = [one.strip() for one in row.label.split(SEPARATOR)] if row.label else []
    if "" in labels or len({*labels}) < len(labels):
        raise DataError(
            f"{row.place} has the labels {row.label!r}, of which one is empty or there "
            f"twice: write each once, with {SEPARATOR} between them"
        )
    return labels


def is_seen(dataset: str, columns: Columns) -> bool:
    """Returns whether a table shows by itself that photos have several labels.

    One of its first labels has a `SEPARATOR`, or it has no column of labels, but
    several of 0 and 1 alone.
    """
    if not kind_of(dataset).has_columns:
        return False
    path = expand_home(dataset)
    try:
        with open_regular(path, most=TABLE_BYTES) as file:
            lines = (line.decode("utf-8-sig") for line in file)
            reader = rows(next(lines, ""), lines)
            header = header_of(reader)
            places = columns.find(header, f"{path} line 1", LAYOUT, ("image",))
            first = [*itertools.islice(filled(reader), _LOOKED_AT)]
            indicators = indicators_in(header, places)
            if "label" not in places and not indicators:
                return False
            if not indicators:
                return any(SEPARATOR in row[places["label"]] for row in first)
            values = {row[at].strip() for row in first for at in indicators.values()}
            return len(indicators) > 1 and values <= {*INDICATED}
    except (OSError, ValueError, IndexError, csv.Error, DataError):
        # The loader, which reads all of it, says what is wrong and where.
        return False
