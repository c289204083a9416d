"""What every data set looks like to the trainer: splits of undecoded examples."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from train.data.decoding import ChooseWindow, decode_image
from train.errors import RunError

HOLD_OUT_SEED = 0


class DataError(RunError):
    """The data cannot be used; the message says what, where and what to do."""


@dataclass(frozen=True)
class Split:
    """One split of a data set, undecoded and in a fixed order.

    Attributes:
        name: The split as a person writes it, "cifar100 train[:49000]".
        num_examples: How many examples `records` yields.
        records: Returns a `tf.data.Dataset` of `(record, label)` in the same order
            every time; `label` is an integer scalar.
        read: Turns one record tensor into an encoded image, a scalar string, or into
            uint8 pixels, `(height, width, 1)` or `(height, width, 3)`; works inside
            `tf.data` maps.
        locate: Names a record for a person, from its index and its NumPy value.
    """

    name: str
    num_examples: int
    records: Callable[[], tf.data.Dataset]
    read: Callable[[tf.Tensor], tf.Tensor]
    locate: Callable[[int, Any], str]

    def decode(
        self, record: tf.Tensor, choose_window: ChooseWindow | None = None
    ) -> tf.Tensor:
        """Turns one record tensor into a uint8 `(height, width, 3)` image.

        Args:
            record: Of `records`.
            choose_window: None for the whole image; see `decode_image`.
        """
        return decode_image(self.read(record), choose_window)


@dataclass(frozen=True)
class Source:
    """A data set ready to train on.

    Attributes:
        name: What the user asked for.
        class_names: The name of each label, in label order.
        train: The examples to learn from.
        validation: The part of the training set held out, or None.
        test: The examples to report on.
    """

    name: str
    class_names: tuple[str, ...]
    train: Split
    validation: Split | None
    test: Split


def hold_out(labels: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides examples in two parts with the same mix of classes, always alike.

    The examples are shuffled with a fixed seed and sorted by class, then evenly
    spaced ones are held out, so every class gives its share to within one example.

    Args:
        labels: One integer label an example.
        count: How many examples to hold out, at most `len(labels)`.

    Returns:
        The indices kept and the indices held out, both ascending.
    """
    labels = np.asarray(labels)
    # RandomState because NumPy keeps its stream the same in every version.
    shuffled = np.random.RandomState(HOLD_OUT_SEED).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    spaced = (2 * np.arange(count) + 1) * len(labels) // (2 * max(count, 1))
    held = np.sort(by_class[spaced])
    return np.setdiff1d(np.arange(len(labels)), held), held


def validation_size(name: str, num_examples: int, fraction: float) -> int:
    """Counts the examples that a fraction of a training set holds out.

    Args:
        name: The training split, for the error message.
        num_examples: How many examples it has.
        fraction: The part to hold out, 0 for none.

    Returns:
        The number of examples, 0 exactly when `fraction` is 0.

    Raises:
        DataError: when the fraction is out of range or leaves a part empty.
    """
    count = round(num_examples * fraction) if 0 <= fraction < 1 else -1
    if count < 0 or count >= num_examples or (count == 0) != (fraction == 0):
        raise DataError(
            f"validation_fraction={fraction} of the {num_examples} examples of {name} "
            "must leave at least one for validation and one for training: pass a "
            "number in [0, 1), such as 0.02, or 0 for no validation split"
        )
    return count


def pick(split: Split, indices: Sequence[int]) -> Split:
    """Picks a few examples of a split, without decoding the others.

    Args:
        split: The split.
        indices: Which examples, distinct and ascending.

    Returns:
        A split of these examples.
    """
    indices = np.asarray(indices)

    def records():
        return (
            split.records()
            .enumerate()
            .filter(lambda index, _: tf.reduce_any(index == indices))
            .map(lambda _, example: example)
        )

    return replace(
        split,
        num_examples=len(indices),
        records=records,
        locate=lambda index, record: split.locate(int(indices[index]), record),
    )


def find_corrupt(split: Split) -> list[str]:
    """Names every record that cannot be read and decoded, by decoding them all.

    Args:
        split: The split to go through.

    Returns:
        One description a bad record: a file path, or the example's number.
    """

    def decodes(record):
        try:
            split.decode(record)
        except tf.errors.OpError:
            return False
        return True

    corrupt = []
    index = 0
    with ThreadPoolExecutor() as pool:
        for records, _ in split.records().batch(256):
            for record, good in zip(records, pool.map(decodes, records), strict=True):
                if not good:
                    corrupt.append(split.locate(index, record.numpy()))
                index += 1
    return corrupt
