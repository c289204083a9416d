"""ImageNet's reassessed labels (ReaL): several correct labels per image, or none."""

import json
import os
import re
from collections.abc import Iterable, Sequence

import numpy as np

from train.common.errors import RunError
from train.data.sources.splits import Split
from train.scoring.metrics import share
from zoo.common.limits import TEXT_BYTES
from zoo.common.regular_files import expand_home, read_text

CLASSES = 1000
_FILE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.\w+$")


def read(path: str | os.PathLike) -> list[set[int]]:
    """Returns the correct labels of each image, a list of sets of int, of `real.json`.

    The labels of ILSVRC2012_val_00000001.JPEG come first.
    """
    try:
        text = read_text(expand_home(path), TEXT_BYTES)
        labels = [set(correct) for correct in json.loads(text)]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"The labels {path} cannot be read: {error}") from error
    flat = [label for correct in labels for label in correct]
    is_whole = all(type(label) is int and 0 <= label < CLASSES for label in flat)
    if not labels or not is_whole:
        raise RunError(
            f"{path} does not hold a list of labels from 0 to {CLASSES - 1} per image: "
            "pass real.json of https://github.com/google-research/reassessed-imagenet."
        )
    return labels


def of_split(
    file: str | os.PathLike,
    split: Split,
    dataset: str,
    data_dir: str | os.PathLike | None = None,
    *,
    classes: int,
) -> list[set[int]]:
    """Returns the correct labels of a split's images; `classes` are the model's."""
    if classes != CLASSES:
        raise RunError(
            f"--real_labels are those of {CLASSES} classes, but the model has "
            f"{classes}: leave them out."
        )
    names = file_names(split, dataset, data_dir)
    return of_files(read(file), names)


def file_names(
    split: Split, dataset: str, data_dir: str | os.PathLike | None = None
) -> list[str]:
    """Returns the file names of a split's images, in its order.

    The data set must be a folder, or of TFDS with file names.
    """
    if expand_home(dataset).is_dir():
        return split.names()
    import tensorflow_datasets as tfds

    builder = tfds.builder(dataset, data_dir=data_dir)
    if "file_name" not in builder.info.features:
        raise RunError(
            f"{dataset} does not have the names of its files, which the reassessed "
            "labels are matched by: pass imagenet2012, or a folder with the files."
        )
    # Read as train.data.sources.tfds_source does, so in the same order.
    records = builder.as_dataset(
        split=split.name.removeprefix(f"{dataset} "),
        shuffle_files=False,
        decoders=tfds.decode.PartialDecoding({"file_name": True}),
        read_config=tfds.ReadConfig(try_autocache=False),
    )
    return [record["file_name"].numpy().decode() for record in records]


def of_files(labels: Sequence[set[int]], names: Iterable[str]) -> list[set[int]]:
    """Returns the correct labels of images, by the number in their file names."""
    correct = []
    for name in names:
        match = _FILE_NAME.search(name)
        number = int(match[1]) if match else 0
        if not 1 <= number <= len(labels):
            raise RunError(
                f"{name} is not one of the {len(labels):,} images that have reassessed "
                "labels: they are called ILSVRC2012_val_00000001.JPEG and so on."
            )
        correct.append(labels[number - 1])
    return correct


def accuracy(labels: Iterable[set[int]], predicted: np.ndarray) -> dict[str, float]:
    """Returns the share of the images whose predicted label is a correct one.

    Images without correct labels are left out: Beyer et al., Are we done with ImageNet?
    (2020), section 3. The dict has the share's 95% interval and `examples`.
    """
    hits = [
        int(guess) in correct
        for correct, guess in zip(labels, predicted, strict=True)
        if correct
    ]
    if not hits:
        raise RunError("None of the images has a reassessed label: evaluate others.")
    return share("accuracy", np.array(hits)) | {"examples": len(hits)}
