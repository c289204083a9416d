"""A user's own images in folders: `{train,test}/class/*.jpg`."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from train.data.splits import (
    DataError,
    Source,
    Split,
    hold_out,
    validation_size,
)

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
LAYOUT = (
    "expected one folder a class in each part, {train,test}/class/*"
    f"{{{','.join(IMAGE_ENDINGS)}}}, such as train/daisy/1.jpg and test/daisy/2.jpg"
)


def load_folder(folder: str | Path, validation_fraction: float) -> Source:
    """Loads `{train,test}/class/*.jpg`; labels follow the sorted class names.

    Files are taken in sorted order; hidden files and other file types are ignored.
    The validation split is a fixed stratified part of `train`.

    Args:
        folder: The folder that holds `train` and `test`.
        validation_fraction: The part of `train` to hold out, 0 for none.

    Returns:
        The source, with file paths as records.

    Raises:
        DataError: when the folder is not laid out like this, when `train` and `test`
            differ in classes, when a class has no image, or when the fraction is
            unusable.
    """
    folder = Path(folder)
    train_files = _list_images(folder / "train")
    test_files = _list_images(folder / "test")
    for part, other, missing in (
        ("train", "test", train_files.keys() - test_files.keys()),
        ("test", "train", test_files.keys() - train_files.keys()),
    ):
        if missing:
            raise DataError(
                f"{folder / part} has the class folders {sorted(missing)} that "
                f"{folder / other} lacks: add them there or remove them here; {LAYOUT}"
            )

    train_paths, train_labels = _flatten(train_files)
    train_name = str(folder / "train")
    count = validation_size(train_name, len(train_paths), validation_fraction)
    kept, held = hold_out(train_labels, count)
    validation = None
    if count:
        validation = file_split(
            f"the validation part of {train_name}",
            train_paths[held],
            train_labels[held],
        )
    return Source(
        name=str(folder),
        class_names=tuple(sorted(train_files)),
        train=file_split(train_name, train_paths[kept], train_labels[kept]),
        validation=validation,
        test=file_split(str(folder / "test"), *_flatten(test_files)),
    )


def _list_images(folder):
    """Returns `{class name: sorted image paths}` of one part."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}: {LAYOUT}")
    files = {
        entry.name: sorted(
            str(path)
            for path in entry.iterdir()
            if path.suffix.lower() in IMAGE_ENDINGS
            and not path.name.startswith(".")
            and path.is_file()
        )
        for entry in folder.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    }
    if not files:
        raise DataError(f"{folder} has no class folders: {LAYOUT}")
    for name, paths in files.items():
        if not paths:
            raise DataError(f"{folder / name} has no images: {LAYOUT}")
    return files


def _flatten(files):
    """Returns the paths of all classes in label order, and their labels."""
    names = sorted(files)
    labels = np.repeat(np.arange(len(names)), [len(files[name]) for name in names])
    paths = np.array([path for name in names for path in files[name]], dtype=object)
    return paths, labels.astype(np.int32)


def file_split(name: str, paths: np.ndarray, labels: np.ndarray) -> Split:
    """Makes a split of image files.

    Args:
        name: As in `Split`.
        paths: Of the files.
        labels: Their integer labels.

    Returns:
        The split, with the paths as records.
    """
    return Split(
        name=name,
        num_examples=len(paths),
        records=lambda: tf.data.Dataset.from_tensor_slices((paths, labels)),
        read=tf.io.read_file,
        locate=lambda index, path: path.decode(),
        known_labels=labels,
    )
