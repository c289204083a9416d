"""Finds a data set: scikit-learn's digits, a folder of images, or a TFDS name."""

import re
from pathlib import Path

from train.data.digits_source import load_digits
from train.data.folder_source import load_folder
from train.data.splits import DataError, Source, Split, find_corrupt
from train.data.tfds_source import load_tfds

__all__ = ["DataError", "Source", "Split", "find_corrupt", "load"]


def load(
    dataset: str,
    data_dir: str | Path | None = None,
    *,
    validation_fraction: float = 0.0,
) -> Source:
    """Loads a data set for fine-tuning, undecoded and in a fixed order.

    Args:
        dataset: "digits" (scikit-learn's 1,797 digits); an existing folder laid out
            `{train,test}/class/*.jpg`; or a TensorFlow Datasets name, "cifar100",
            "oxford_iiit_pet:4.*.*". An existing folder goes before a TFDS name.
        data_dir: Where TFDS keeps its data; None for its default.
        validation_fraction: The part of the training set to hold out; the papers take
            0.1 of Pets and Flowers, 0.02 of CIFAR, 0.01 of ImageNet.

    Returns:
        The source; its `validation` is None exactly when the fraction is 0.

    Raises:
        DataError: when the data set is unknown, unusable or not available.

    Source: An Image is Worth 16x16 Words, appendix B.1.1; vision_transformer,
    configs/common.py.
    """
    if dataset == "digits":
        return load_digits(validation_fraction)
    folder = Path(dataset).expanduser()
    if folder.is_dir():
        return load_folder(folder, validation_fraction)
    # A TFDS name may have one slash, before its configuration.
    if re.match(r"[.~/]|.*/$|.*/.*/", dataset):
        raise DataError(
            f'there is no folder "{dataset}": pass one laid out '
            "{train,test}/class/*.jpg"
        )
    return load_tfds(dataset, data_dir, validation_fraction)
