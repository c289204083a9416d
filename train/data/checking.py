"""Checks that data exist, before TensorFlow is loaded."""

import csv
import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from train.common import packages
from train.common.errors import RunError, first_line
from train.data.registry import PART_OF, DataDir, kind_of
from zoo import photos
from zoo.common.regular_files import expand_home, missing_remedy, similar_path
from zoo.common.safe_text import named, printable

LAYOUT = (
    "expected one folder per class, such as daisy/1.jpg, or such folders in each part, "
    "train/daisy/1.jpg and test/daisy/2.jpg"
)
# A run directory has these files.
RUN_SETTINGS, RUN_DATA = "config.json", "data.json"
# Operating systems leave these files, which need no mention.
_SYSTEM_FILES = ("thumbs.db", "desktop.ini")


class DataError(RunError):
    """The data cannot be used; the message says what, where and what to do."""


def check(dataset: str, data_dir: DataDir = None) -> None:
    """Refuses the name of data that do not exist, or need a package that is missing."""
    kind = kind_of(dataset)
    packages.need(f'The data set "{dataset}"', kind.packages)
    if kind.name in _CHECKS:
        _CHECKS[kind.name](dataset, data_dir)


def check_paths(paths: Iterable[str | os.PathLike]) -> None:
    """Refuses files or folders of images that are not there, with a `DataError`."""
    if missing := [path for path in paths if not path or not _exists(path)]:
        remedy = missing_remedy(expand_home(missing[0]))
        raise DataError(f"There is no image {named([*map(str, missing)])}: {remedy}")


def _exists(path):
    try:
        return expand_home(path).exists()
    except OSError:  # such as a name that is too long
        return False


def vtab_rows() -> list[dict[str, str]]:
    """Returns the rows of the table of VTAB's tasks."""
    table = Path(__file__).with_name("sources") / "vtab.csv"
    return [*csv.DictReader(table.read_text(encoding="utf-8").splitlines())]


def _check_folder(dataset, data_dir):
    folder = expand_home(dataset)
    _refuse_file(dataset)
    if not folder.is_dir():
        near = similar_path(folder)
        hint = "" if near is None else f"did you mean {printable(str(near))}? "
        raise DataError(
            f'there is no folder "{dataset}": {hint}pass one laid out '
            "class/*.jpg or {train,test}/class/*.jpg"
        )
    parts = [folder / name for name in PART_OF if (folder / name).is_dir()]
    endings = photos.endings()
    for place in parts or [folder]:
        classes = [entry.path for entry in entries(place) if entry.is_dir()]
        if not classes and not parts:
            _refuse_run(folder)
            raise no_classes(folder)
        for path in classes:
            # Stop at the first image: there may be a million.
            if not any(is_image(entry, endings) for entry in _shown(path)):
                _refuse_run(folder)
                raise _no_images(path)


def _refuse_run(folder):
    if (folder / RUN_SETTINGS).is_file() and (folder / RUN_DATA).is_file():
        raise DataError(
            f"{folder} is a run, not a data set: pass the photos that it was trained "
            "on, or new ones; evaluate and predict take the run"
        )


def _shown(folder):
    """Yields the `os.DirEntry` of all in a folder that is not hidden."""
    # Entries know what is a file without asking the file system again.
    with os.scandir(folder) as listing:
        for entry in listing:
            name = entry.name
            if not name.startswith(".") and name.lower() not in _SYSTEM_FILES:
                yield entry


def entries(folder: str | os.PathLike) -> list:
    """Returns the `os.DirEntry` of all in a folder that is not hidden, by name."""
    return sorted(_shown(folder), key=lambda entry: entry.name)


def is_image(entry: os.DirEntry, endings: tuple[str, ...]) -> bool:
    """Returns whether an `os.DirEntry` is a file with one of the endings of images."""
    return entry.name.lower().endswith(endings) and entry.is_file()


def no_classes(folder: str | os.PathLike) -> DataError:
    """Returns the `DataError` of a folder without folders of classes."""
    remedy, endings = "", photos.endings()
    if any(is_image(entry, endings) for entry in entries(folder)):
        above = Path(folder).resolve().parent
        remedy = (
            "; images lie in it directly: where it is a class, pass the folder above "
            f"it, {above}"
        )
    return DataError(f"{folder} has no class folders: {LAYOUT}{remedy}")


def _no_images(folder):
    names = [entry.name for entry in entries(folder)]
    return DataError(
        f"{folder} has no images: {LAYOUT}; remove it, or add some "
        f"({', '.join(photos.endings())}){heic_remedy(names)}"
    )


def heic_remedy(names: Iterable[object]) -> str:
    """Returns what to install if unused files are HEIC photos, otherwise nothing."""
    is_heic = any(str(name).lower().endswith(photos.HEIC_ENDINGS) for name in names)
    if is_heic and ".heic" not in photos.endings():
        return "; HEIC photos are read where pillow-heif is: pip install pillow-heif"
    return ""


def _refuse_file(dataset):
    if expand_home(dataset).is_file():
        raise DataError(
            f'there is no folder "{dataset}", it is a file: pass the folder that holds '
            "one folder per class"
        )


def _check_file(dataset, data_dir):
    file = expand_home(dataset)
    if not file.exists():
        raise DataError(f"there is no file {dataset}: {missing_remedy(file)}")


def _check_vtab(dataset, data_dir):
    name, tasks = dataset.partition("/")[2], [row["task"] for row in vtab_rows()]
    if name not in tasks:
        raise DataError(
            f'"{name}" is not a task of VTAB: {_nearest(name, tasks, 0.4)}The tasks '
            f"are {', '.join(tasks)}"
        )


def open_builder(dataset: str, data_dir: DataDir) -> Any:
    """Returns the `tfds.core.DatasetBuilder` of a data set, perhaps not prepared."""
    import tensorflow_datasets as tfds

    if data_dir is not None:
        data_dir = str(expand_home(data_dir))
    try:
        return tfds.builder(dataset, data_dir=data_dir)
    except Exception as error:
        # A file called cifar100 must not hide the data set.
        _refuse_file(dataset)
        # TFDS raises ValueError, AssertionError or ImportError too, by what is wrong.
        if not isinstance(error, tfds.core.DatasetNotFoundError):
            raise DataError(
                f'"{dataset}" is not an existing folder, and TensorFlow Datasets '
                f"cannot open it: {first_line(error)}"
            ) from error
        known = [*tfds.list_builders(with_community_datasets=False), "digits"]
        name = re.split("[/:]", dataset)[0]
        raise DataError(
            f'"{dataset}" is neither an existing folder nor a data set of TensorFlow '
            f'Datasets: {_nearest(name, known, 0.5)}Pass "digits", a name such as '
            "cifar100, vtab/TASK, a folder laid out class/*.jpg or "
            "{train,test}/class/*.jpg, a CSV file or TFRecord files"
        ) from error


def _nearest(name, known, cutoff):
    """Returns "did you mean ...?" for a message, if known names are similar."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=cutoff)
    return f"did you mean {' or '.join(near)}? " if near else ""


# Kinds of `SOURCES` that are missing here are checked by their loaders alone.
_CHECKS = {
    "folder": _check_folder,
    "csv": _check_file,
    "archive": _check_file,
    "vtab": _check_vtab,
    "tfds": open_builder,
}
