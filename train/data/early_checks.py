"""Checks of data and of files about them, before TensorFlow is loaded."""

import csv

from train.data import checking, correction_files
from train.data.checking import DataError
from train.data.columns import LAYOUT, USUAL, Columns, header_of, rows
from train.data.options import DataOptions
from train.data.registry import kind_of
from zoo.common.limits import TABLE_BYTES
from zoo.common.regular_files import expand_home, open_regular


def check(dataset: str | None, options: DataOptions) -> None:
    """Refuses data, columns and corrections that cannot be used, by a `DataError`.

    Of a table the first line alone is read, the files of corrections whole. The data
    set is None where it is not known yet.
    """
    if dataset is not None:
        checking.check(dataset, options.data_dir)
        check_columns(dataset, options.columns)
        if kind_of(dataset).has_columns:
            _check_header(dataset, options.columns)
    for file in correction_files.each(options.without):
        correction_files.left_out(file)
    for file in correction_files.each(options.relabel):
        correction_files.labels(file)


def check_columns(dataset: str, columns: Columns) -> None:
    """Refuses columns of data that are no table."""
    if columns != USUAL and not kind_of(dataset).has_columns:
        raise DataError(
            f"{dataset} is no table, so it has no columns: leave out --image_column, "
            "--label_column and --split_column, or pass a CSV file"
        )


def _check_header(dataset, columns):
    """Refuses columns that a table does not have."""
    path = expand_home(dataset)
    try:
        with open_regular(path, most=TABLE_BYTES) as file:
            header = header_of(rows(file.readline().decode("utf-8-sig")))
    except (OSError, ValueError, csv.Error):
        # The loader, which reads all of it, says what is wrong and where.
        return
    columns.find(header, f"{path} line 1", LAYOUT)
