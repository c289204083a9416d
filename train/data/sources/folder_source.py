"""A user's own images in folders, one per class."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from train.data.checking import (
    LAYOUT,
    PART_OF,
    DataError,
    entries,
    is_image,
    no_classes,
)
from train.data.options import DataOptions
from train.data.sources.splits import Source, Split, check_name, in_memory
from train.data.sources.subset import divide, with_test_part
from zoo import photos
from zoo.common.regular_files import expand_home
from zoo.common.safe_text import printable


def load_folder(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads `{train,test}/class/*.jpg`, or `class/*.jpg`; labels follow sorted names.

    docs/data.md has the rules. Files are taken in sorted order.
    """
    folder = expand_home(dataset)
    check_name(str(folder), str(folder))
    is_whole = fraction is None
    parts = _whole_parts(folder) if is_whole else _parts(folder)
    ignored = []
    if parts:
        used = {path.name for path in parts.values()}
        ignored += [
            Path(entry.path) for entry in entries(folder) if entry.name not in used
        ]
        files = {part: _list_images(path, ignored) for part, path in parts.items()}
        if not is_whole:
            _check_classes(parts, files)
        names = {part: str(path) for part, path in parts.items()}
    else:
        files = {"all": _list_images(folder, ignored)}
        names = {"all": str(folder)}
    if is_whole:
        files, names = {"all": _joined(files.values())}, {"all": f"all of {folder}"}
    classes = sorted(files["train" if "train" in files else "all"])
    splits = {}
    for part, of_class in files.items():
        counts = [len(of_class[name]) for name in classes]
        labels = np.repeat(np.arange(len(classes)), counts)
        paths = [path for name in classes for path in of_class[name]]
        splits[part] = file_split(names[part], paths, labels, options.bits)
    if not (parts or is_whole):
        splits = with_test_part(splits["all"], classes)
    ignored = ignored_names(folder, ignored)
    return divide(str(folder), classes, splits, fraction, LAYOUT, ignored)


def ignored_names(folder: Path, paths: Iterable[Path]) -> tuple:
    """Returns printable names of the unused files of a folder, such as `daisy/old/`."""
    return tuple(
        printable(path.relative_to(folder).as_posix() + "/" * path.is_dir())
        for path in paths
    )


def _parts(folder):
    """Returns the folder of each part, none where it holds the classes themselves."""
    parts = {}
    for name, part in PART_OF.items():
        if not (folder / name).is_dir():
            continue
        if part in parts:
            raise DataError(
                f"{folder} has both {parts[part].name} and {name}: keep one of them"
            )
        parts[part] = folder / name
    if parts and "train" not in parts:
        raise DataError(f"there is no folder {folder / 'train'}: {LAYOUT}")
    if len(parts) == 1:
        raise DataError(
            f"there is no folder {folder / 'test'}: {LAYOUT}. To have a fifth of "
            f"{folder / 'train'} held out for the test, pass that folder"
        )
    return parts


def _whole_parts(folder):
    """Returns the folders of any parts that hold class folders."""
    parts = {name: folder / name for name in PART_OF if (folder / name).is_dir()}
    return {
        name: path
        for name, path in parts.items()
        # A class may be called train, too.
        if any(entry.is_dir() for entry in entries(path))
    }


def _joined(parts):
    """Returns the image paths of each class of several parts."""
    classes = {}
    for files in parts:
        for name, paths in files.items():
            classes.setdefault(name, []).extend(paths)
    return classes


def _check_classes(parts, files):
    for part in files.keys() - {"train"}:
        for own, other in (("train", part), (part, "train")):
            if missing := sorted(files[own].keys() - files[other].keys()):
                raise DataError(
                    f"{parts[own]} has the class folders {missing} that {parts[other]} "
                    f"lacks: add them there or remove them here; {LAYOUT}"
                )


def _list_images(folder, ignored):
    """Returns `{class name: sorted image paths}`; appends the rest to `ignored`."""
    endings = photos.endings()
    files = {}
    for entry in entries(folder):
        path = Path(entry.path)
        if not entry.is_dir():
            ignored.append(path)
            continue
        check_name(entry.name, str(path))
        images, others = [], []
        for file in entries(path):
            (images if is_image(file, endings) else others).append(file)
        others = [Path(file.path) for file in others]
        for file in images:
            check_name(file.name, file.path)
        # macOS has accents as characters of their own: parts from two systems match.
        name = unicodedata.normalize("NFC", entry.name)
        files.setdefault(name, []).extend(file.path for file in images)
        ignored += others
    if not files:
        raise no_classes(folder)
    return files


def file_split(
    name: str,
    paths: Sequence[str],
    labels: Sequence[int] | np.ndarray,
    bits: int | None = None,
) -> Split:
    """Makes a `Split` of image files, whose records are their paths."""
    paths, labels = np.array(paths, object), np.asarray(labels)
    if labels.ndim == 1:
        labels = labels.astype(np.int32)
    split = in_memory(name, paths, labels, tf.io.read_file, lambda index: paths[index])
    return replace(split, bits=bits)
