"""Images that cannot be read: found by decoding, named, left out."""

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.data.checking import DataError
from train.data.sources.splits import CORES, Source, Split, pick, tf_options
from zoo.common.safe_text import named
from zoo.network.preparation import MOST_BITS, ModelBits
from zoo.store.progress import progress_bar

# Fewer images are checked without a progress bar.
_SHOWN_IMAGES = 5_000


def find_corrupt(split: Split) -> list[str]:
    """Names every record that cannot be read and decoded, by decoding them all.

    Raises a `DataError` when the files that hold the records are damaged.
    """
    return [name for _, name in _corrupt(split)]


def without_corrupt(source: Source) -> Source:
    """Leaves out what cannot be decoded, which `skipped` names; decodes all images."""
    parts: dict[str, Any] = {}
    skipped = []
    for part, split in source.splits().items():
        corrupt = _corrupt(split)
        if not corrupt:
            continue
        indices, names = zip(*corrupt, strict=True)
        if len(corrupt) == split.num_examples:
            how, remedy = _on_bits(split.bits)
            raise DataError(
                f"none of the {split.num_examples} images of {split.name} can be "
                f"decoded{how}: {named(names)}; {remedy}save them again as RGB JPEG or "
                "PNG"
            )
        parts[part] = pick(split, np.delete(np.arange(split.num_examples), indices))
        skipped += names
    return replace(source, **parts, skipped=tuple(skipped))


def check_readable(*splits: Split | None) -> None:
    """Raises a `DataError` that names all images of splits that cannot be decoded."""
    splits = [split for split in splits if split is not None]
    if corrupt := [name for split in splits for name in find_corrupt(split)]:
        total = sum(split.num_examples for split in splits)
        how, remedy = _on_bits(splits[0].bits)
        raise DataError(
            f"{len(corrupt)} of the {total} images of "
            f"{' and '.join(split.name for split in splits)} cannot be decoded"
            f"{how}: {named(corrupt)}; {remedy}"
            "save them again as RGB JPEG or PNG, remove them, or "
            "give the command again with --skip_corrupt, which decodes all images first"
        )


def _on_bits(bits):
    """Returns how images were decoded, and what to do if they have more bits."""
    if bits is None:
        return "", ""
    how, remedy = f" with bits={bits}", f"leave out bits={bits}"
    if isinstance(bits, ModelBits):
        how, remedy = f" with the model's {bits} bits", f"pass bits={MOST_BITS}"
    return how, f"{remedy} if their values have more, "


def _corrupt(split):
    """Returns `(index, name)` of every record that cannot be decoded."""
    decoded = split.records().enumerate()
    decoded = decoded.map(
        lambda index, example: (index, tf.size(split.decode(example[0]))),
        num_parallel_calls=2 * CORES,
        deterministic=True,
    )
    good = decoded.ignore_errors().batch(64).with_options(tf_options())
    is_good = np.zeros(split.num_examples, bool)
    with progress_bar(
        total=split.num_examples,
        unit="image",
        desc=f"checking {split.name}",
        disable=split.num_examples < _SHOWN_IMAGES,
    ) as bar:
        for indices, _ in good.as_numpy_iterator():
            is_good[indices] = True
            bar.update(len(indices))
    corrupt = np.flatnonzero(~is_good)
    if not corrupt.size:
        return []
    try:
        # In a damaged record file no single image can be left out.
        for _ in pick(split, corrupt).records():
            pass
    except tf.errors.DataLossError as error:
        raise DataError(
            f"the files of {split.name} are damaged ({error.message}): prepare or copy "
            "them again"
        ) from error
    return [(int(index), split.locate(int(index))) for index in corrupt]
