"""What sort of data set a name means; looks at names and folders only."""

import os
import re
from pathlib import Path

PARTS = ("train", "validation", "test")
_RECORDS = re.compile(
    r"(train|validation|test)(-.*)?(\.tfrecords?(-\d+-of-\d+)?|-\d+-of-\d+)(\.gz)?"
)
_VTAB = re.compile(r"vtab(-full)?/.*")
# A TFDS name may have one slash, before its configuration.
_PATH = re.compile(r"[.~/].*|.*/|.*/.*/.*")


def kind_of(dataset: str) -> str:
    """Tells what sort of data set a name means, without opening it.

    In this order: "digits"; the tasks of VTAB, "vtab/..." and "vtab-full/..."; folders
    that exist, of TFRecord files where they hold such files and no `train` folder; CSV
    files, by their ending; TFRecord files, by `*`, `?` or `[`; other paths, which must
    be folders; and what is left is a name of TensorFlow Datasets.

    Args:
        dataset: What the user asked for.

    Returns:
        "digits", "vtab", "folder", "csv", "tfrecord" or "tfds".

    Example:

    >>> [kind_of(name) for name in ("photos.csv", "records/*", "photos/", "cifar100")]
    ['csv', 'tfrecord', 'folder', 'tfds']
    """
    if dataset == "digits":
        return "digits"
    if _VTAB.fullmatch(dataset):
        return "vtab"
    folder = Path(dataset).expanduser()
    if folder.is_dir():
        has_records = not (folder / "train").is_dir() and record_files(folder)
        return "tfrecord" if has_records else "folder"
    if dataset.lower().endswith(".csv"):
        return "csv"
    if re.search(r"[*?[]", dataset) and not re.search(r":[\d.*]+$", dataset):
        return "tfrecord"
    return "folder" if _PATH.fullmatch(dataset) else "tfds"


def is_same(one: str, other: str) -> bool:
    """Tells whether two names mean one data set, however its path is written.

    Example:

    >>> is_same("photos.csv", "./photos.csv"), is_same("cifar10", "cifar100")
    (True, False)
    """
    return one == other or _place(one) == _place(other)


def short_name(dataset: str) -> str:
    """Returns the name of a data set without its folder and version.

    Example:

    >>> [short_name(name) for name in ("/me/photos/", "cifar100:3.*.*", "vtab/dtd")]
    ['photos', 'cifar100', 'vtab-dtd']
    """
    if kind_of(dataset) == "vtab":
        return dataset.replace("/", "-")
    name = Path(dataset.partition(":")[0]).name
    return re.sub(r"[^\w.+-]+", "_", name.removesuffix(".csv"))


def _place(dataset):
    kind = kind_of(dataset)
    if kind not in ("folder", "csv", "tfrecord"):
        return dataset
    path = os.path.abspath(os.path.expanduser(dataset))
    if os.path.isdir(path):
        return os.path.realpath(path)
    # The paths in a CSV file start at its folder, where a link may be to it.
    folder, name = os.path.split(path)
    return os.path.join(os.path.realpath(folder), name)


def record_files(folder: Path, pattern: str = "*") -> dict[str, list[Path]]:
    """Finds the TFRecord files of each part of a data set, by their names.

    They are `train.tfrecord`, `train-0.tfrecord`, `train-00000-of-00004` and what is
    between these, `.tfrecord` or `.tfrecords`, with or without `.gz`; likewise
    `validation` and `test`.

    Args:
        folder: Where they are.
        pattern: Of names, with `*`, `?` and `[`.

    Returns:
        The sorted files of each part that has any.
    """
    found = {}
    for path in sorted(folder.glob(pattern)):
        match = _RECORDS.fullmatch(path.name)
        if match and path.is_file():
            found.setdefault(match[1], []).append(path)
    return found
