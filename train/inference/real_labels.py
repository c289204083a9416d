"""ImageNet's reassessed labels (ReaL): several right answers an image, or none."""

import json
import pathlib
import re

import numpy as np

from train.common.errors import RunError
from train.reports.classification import interval

CLASSES = 1000
_FILE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.\w+$")


def read(path):
    """Reads `real.json`.

    Args:
        path: str or path of the file, a list of the right labels of each image, those
            of ILSVRC2012_val_00000001.JPEG first.

    Returns:
        List of sets of int.

    Raises:
        RunError: it is not there, or holds something else.

    Source:
        https://github.com/google-research/reassessed-imagenet

    Example:

    >>> _ = pathlib.Path("real.json").write_text("[[], [970, 795]]")
    >>> sorted(read("real.json")[1])
    [795, 970]
    """
    try:
        text = pathlib.Path(path).expanduser().read_text(encoding="utf-8")
        lists = json.loads(text)
        labels = [set(right) for right in lists]
        whole = all(
            type(label) is int and 0 <= label < CLASSES
            for right in labels
            for label in right
        )
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"The labels {path} cannot be read: {error}") from error
    if not whole or not labels:
        raise RunError(
            f"{path} does not hold a list of labels from 0 to {CLASSES - 1} an image: "
            "pass real.json of https://github.com/google-research/reassessed-imagenet."
        )
    return labels


def file_names(split, dataset, data_dir=None):
    """Returns the names of the files behind a split, in its order.

    Args:
        split: `train.data.sources.splits.Split`.
        dataset: str, the data set that it is of: a folder, or a TFDS name.
        data_dir: path of the TFDS data, None for the usual one.

    Returns:
        List of str.

    Raises:
        RunError: the data set does not tell.
    """
    if pathlib.Path(dataset).expanduser().is_dir():
        records = (record.numpy() for record, _ in split.records())
        return [split.locate(index, record) for index, record in enumerate(records)]
    import tensorflow_datasets as tfds

    builder = tfds.builder(dataset, data_dir=data_dir)
    if "file_name" not in builder.info.features:
        raise RunError(
            f"{dataset} does not tell the names of its files, so nobody knows which of "
            "the reassessed labels is whose: pass imagenet2012, or a folder with the "
            "files."
        )
    # As train.data.sources.tfds_source reads it, so in the same order.
    records = builder.as_dataset(
        split=split.name.removeprefix(f"{dataset} "),
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding({"file_name": True}),
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    return [record["file_name"].numpy().decode() for record in records]


def of_files(labels, names):
    """Returns the right labels of images, which their file names number.

    Args:
        labels: what `read` returned.
        names: sequence of str, such as `.../ILSVRC2012_val_00000001.JPEG`.

    Returns:
        List of sets of int, one an image.

    Raises:
        RunError: a name has no such number, or one beyond the labels.

    Example:

    >>> of_files([{1}, {2, 3}], ["val/ILSVRC2012_val_00000002.JPEG"])
    [{2, 3}]
    """
    found = []
    for name in names:
        match = _FILE_NAME.search(name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= len(labels):
            raise RunError(
                f"{name} is none of the {len(labels):,} images that have reassessed "
                "labels: they are called ILSVRC2012_val_00000001.JPEG and so on."
            )
        found.append(labels[number - 1])
    return found


def accuracy(labels, predicted):
    """Returns the share of the images whose predicted label is one of the right ones.

    Args:
        labels: sequence of sets of int; images whose set is empty are left out.
        predicted: ints (images,).

    Returns:
        Dict of `accuracy`, its 95% interval `accuracy_low` and `accuracy_high`, and
        `examples`.

    Raises:
        RunError: no image has a right label.

    Source:
        Beyer et al., Are we done with ImageNet? (2020), section 3.

    Example:

    >>> accuracy([{1, 2}, set(), {0}], np.array([2, 5, 1]))["accuracy"]
    0.5
    """
    hits = [
        int(guess) in right
        for right, guess in zip(labels, predicted, strict=True)
        if right
    ]
    if not hits:
        raise RunError("None of the images has a reassessed label: evaluate others.")
    low, high = interval(sum(hits), len(hits))
    return {
        "accuracy": float(np.mean(hits)),
        "accuracy_low": low,
        "accuracy_high": high,
        "examples": len(hits),
    }
