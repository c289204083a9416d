"""Loads a data set by its name, as splits of undecoded images."""

from collections.abc import Callable
from pathlib import Path

from train.data.registry import kind_of
from train.data.sources.corrupt import find_corrupt, without_corrupt
from train.data.sources.folder_source import heic_remedy
from train.data.sources.splits import DataError, Source, Split, check_name, named

__all__ = ["DataError", "Source", "Split", "find_corrupt", "load"]


def load(
    dataset: str,
    data_dir: str | Path | None = None,
    *,
    validation_fraction: float = 0.0,
    skip_corrupt: bool = False,
    log: Callable[[str], None] = print,
) -> Source:
    """Loads a data set for fine-tuning, undecoded and in a fixed order.

    `train.data.registry.kind_of` decides which kind of data a name means.

    Args:
        dataset: "digits" (scikit-learn's 1,797 digits); a task of VTAB, "vtab/dtd" or
            "vtab-full/dtd", see `train.data.sources.vtab`; an existing folder, laid out
            `class/*.jpg` (a fifth of each class is the test) or
            `{train,validation,test}/class/*.jpg`, or of TFRecord files
            `train-*.tfrecord`, `test-*.tfrecord`; such files as a pattern,
            "records/*.tfrecord"; a CSV file with the columns path, label and split;
            or a TensorFlow Datasets name, "cifar100", "oxford_iiit_pet:4.*.*". An
            existing folder takes precedence over a TFDS name.
        data_dir: Where TFDS keeps its data; None for its default.
        validation_fraction: The part of the training set to hold out; the papers take
            0.1 of Pets and Flowers, 0.02 of CIFAR, 0.01 of ImageNet. Data with a
            validation part of their own (CSV, TFRecord, VTAB) use that one for any
            fraction but 0.
        skip_corrupt: Decode every image of all splits first, leave out those that are
            missing or cannot be decoded, and print them; otherwise they end the run
            once they are needed.
        log: Called with a line that counts and names the files of a folder that are
            not used, and one for images left out, if there are any.

    Returns:
        The source; its `validation` is None exactly when the fraction is 0.

    Raises:
        DataError: when the data set is unknown, unusable or not available.

    Source: An Image is Worth 16x16 Words, appendix B.1.1; vision_transformer,
    configs/common.py.

    Example:

    >>> source = load("digits", validation_fraction=0.1)
    >>> source.train.num_examples, source.validation.num_examples
    (1293, 144)
    """
    kind = kind_of(dataset)
    source = kind.load(dataset, data_dir, validation_fraction, skip_corrupt)
    for name in source.class_names:
        check_name(name, f"{source.name}: the class {name!r}")
    if source.ignored:
        count = len(source.ignored)
        log(
            f"{source.name}: {count} {'entry is' if count == 1 else 'entries are'} "
            f"ignored, no {kind.used_files}: {named(source.ignored)}"
            f"{heic_remedy(source.ignored)}"
        )
    if not skip_corrupt:
        return source
    source = without_corrupt(source)
    if source.skipped:
        log(
            f"{source.name}: left out {len(source.skipped)} images that cannot be "
            f"read: {named(source.skipped)}"
        )
    return source
