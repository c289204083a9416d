"""Checks of data and of files about them, before TensorFlow is loaded."""

import csv

from train.data import checking, correction_files
from train.data.checking import DataError
from train.data.columns import LAYOUT, USUAL, Columns, header_of, required_of, rows
from train.data.options import DataOptions
from train.data.registry import kind_of
from train.tasks import CLASSES, MASKS, kind_of_task, seen
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
        check_task(dataset, options)
        check_one_class(dataset, options)
        if kind_of(dataset).has_columns:
            _check_header(dataset, options)
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


def check_task(dataset: str, options: DataOptions) -> None:
    """Refuses data without the labels that a task is for."""
    task, kind = kind_of_task(options.task), kind_of(dataset)
    has_masks = kind.name == MASKS
    if has_masks and options.task != MASKS:
        raise DataError(
            f"{dataset} has masks, a class for every pixel, which finetune "
            "--task=masks learns and evaluate judges: pass it to these, or a folder "
            "with one folder per class"
        )
    if task.needs_table and not kind.has_columns:
        raise DataError(
            f"--task={options.task} reads labels from a table, and {dataset} is none: "
            "pass a CSV file of paths and labels"
        )
    if options.task == MASKS and not has_masks:
        raise DataError(
            f"--task={MASKS} is for folders of photos and masks, and {dataset} is "
            "none: expected images/train/1.jpg with masks/train/1.png, and test (or "
            "val) like train"
        )
    if options.relabel and task is not kind_of_task(None):
        raise DataError(
            f"--relabel gives photos a class each, and --task={options.task} has none: "
            "correct the data themselves"
        )


def check_one_class(dataset: str, options: DataOptions) -> None:
    """Refuses data that show another task, where options say none."""
    task = options.task is None and seen(dataset, options.columns)
    if task and task != CLASSES:
        raise DataError(
            f"{dataset} has labels of --task={task}, and this takes one class per "
            "photo: use keras-vit finetune, or name a column of classes with "
            "--label_column"
        )


def _check_header(dataset, options):
    """Refuses columns that a table does not have."""
    path = expand_home(dataset)
    try:
        with open_regular(path, most=TABLE_BYTES) as file:
            header = header_of(rows(file.readline().decode("utf-8-sig")))
    except (OSError, ValueError, csv.Error):
        # The loader, which reads all of it, says what is wrong and where.
        return
    required = required_of(kind_of_task(options.task).may_have_indicators)
    options.columns.find(header, f"{path} line 1", LAYOUT, required)
