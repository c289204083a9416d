"""Reads the number of each photo from texts in a table."""

import math

import numpy as np

from train.data.checking import DataError
from train.data.labels import Labels, Parts

# float32 has no larger numbers, and squares of larger ones are none.
_LARGEST = 1e15
NAMES = ("value",)


def of_texts(parts: Parts) -> Labels:
    """Returns the name of the number, and the numbers of the rows of each part.

    `parts` are those of `train.data.labels.of_classes`. The numbers are float32
    (rows, 1). Raises a `DataError` for what is no finite number.

    Example:
        >>> from train.data.labels import Cell
        >>> labels = of_texts({"all": [Cell("1", "2.5"), Cell("2", "-1e1")]})
        >>> labels.values["all"].tolist()
        [[2.5], [-10.0]]
    """
    numbers = {
        part: np.array([_number(row) for row in rows], np.float32).reshape(-1, 1)
        for part, rows in parts.items()
    }
    return Labels(NAMES, numbers)


def _number(row):
    try:
        number = float(row.label)
    except ValueError:
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise DataError(
            f"{row.place} has {row.label!r}, where a number with a point is expected, "
            f"such as 3.5: correct it, or name another column with --label_column"
        )
    return number
