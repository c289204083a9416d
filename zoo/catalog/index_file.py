"""Reader of `index.csv`, the index of the AugReg files: one row per fine-tuning."""

import csv
import functools
import io
import math
import os
from typing import NamedTuple, get_type_hints

from zoo import store
from zoo.catalog import cards
from zoo.common.regular_files import read_text
from zoo.common.safe_text import brief, is_safe

INDEX_URL = cards.file_url("augreg", "index.csv")
# Several times the size of the index.
_MOST_BYTES = 10**8


class Row(NamedTuple):
    """One row of the index, the columns that are used here.

    Args:
        name: str, the model as the paper writes it, e.g. ``"R26+S/32"``.
        ds: str, the pre-training: ``"i1k"`` or ``"i21k"`` (300 epochs), or
            ``"i21k_30"`` (30 epochs).
        epochs: float, of pre-training.
        final_val: float or None, accuracy on the pre-training's validation split.
        final_test: float or None, on its test split; ImageNet's validation split.
        adapt_ds: str, what it was fine-tuned on.
        adapt_lr: float, learning rate of the fine-tuning.
        adapt_steps: float, steps of the fine-tuning, 512 images each.
        adapt_resolution: float, side of the images in the fine-tuning.
        adapt_final_val: float or None, validation accuracy after it.
        adapt_final_test: float or None, test accuracy after it.
        filename: str, the pre-trained file, without ``.npz``.
        adapt_filename: str, the fine-tuned file, without ``.npz``.

    Source: `get_augreg_df` of the released code, which documents the columns.

    Example:
        >>> zoo.augreg.rows("Ti_16", finetune="cifar100")[0].name  # doctest: +SKIP
        'Ti/16'
    """

    name: str
    ds: str
    epochs: float
    final_val: float | None
    final_test: float | None
    adapt_ds: str
    adapt_lr: float
    adapt_steps: float
    adapt_resolution: float
    adapt_final_val: float | None
    adapt_final_test: float | None
    filename: str
    adapt_filename: str


_TYPES = get_type_hints(Row)


def read() -> tuple[tuple[Row, ...], dict[str, Row]]:
    """Returns the rows of the index, downloaded once, and one of each file's name."""
    path = store.fetch(INDEX_URL, most_bytes=_MOST_BYTES)
    return _parse(path, os.stat(path).st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _parse(path, _modified):
    try:
        text = read_text(path, _MOST_BYTES)
        rows = tuple(_rows(csv.reader(io.StringIO(text))))
    except (ValueError, csv.Error) as error:
        raise store.StoreError(
            f"{path} should be the index of the AugReg files ({INDEX_URL}) but is not: "
            f"{error}. Delete it and try again."
        ) from error
    files = {row.filename: row for row in reversed(rows)}
    files |= {row.adapt_filename: row for row in rows}
    return rows, files


def _rows(table):
    header = next(table, [])
    missing = [name for name in Row._fields if name not in header]
    if missing:
        raise ValueError(f"it has no column {', '.join(missing)}")
    places = [(name, header.index(name)) for name in Row._fields]
    for cells in table:
        try:
            yield Row(*(_value(name, cells[place]) for name, place in places))
        except (ValueError, IndexError) as error:
            raise ValueError(f"line {table.line_num}: {error}") from error


def _value(column, cell):
    if _TYPES[column] is str:
        if not is_safe(cell):
            raise ValueError(f"{brief(cell)} has control characters")
        return cell
    if _TYPES[column] is not float and cell.lower() in ("", "nan"):
        return None
    number = float(cell)
    if not math.isfinite(number):
        raise ValueError(f"{column} is {cell}")
    return number
