"""The handwritten digits that come with scikit-learn: a data set without download."""

import numpy as np
import tensorflow as tf

from train.data.sources.splits import (
    DataError,
    Source,
    hold_out,
    in_memory,
    validation_size,
)

TEST_EXAMPLES = 360


def load_digits(validation_fraction: float) -> Source:
    """Loads 1,797 digits of 8x8 pixels, 1,437 to train on and 360 to test on.

    Gray levels 0..16 become 0..255; both hold-outs are stratified and fixed.

    Args:
        validation_fraction: The part of the 1,437 to hold out, 0 for none.

    Returns:
        The source, with in-memory uint8 `(8, 8, 1)` records.

    Raises:
        DataError: when scikit-learn is missing or the fraction is unusable.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise DataError(
            'the data set "digits" comes with scikit-learn, which is not installed: '
            "pip install scikit-learn"
        ) from error
    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int32)

    def split(part, indices):
        name = f"digits {part}"
        return in_memory(
            name,
            images[indices],
            labels[indices],
            tf.identity,
            lambda index, record: f"example {index} of {name}",
        )

    train, test = hold_out(labels, TEST_EXAMPLES)
    count = validation_size("digits train", len(train), validation_fraction)
    kept, held = hold_out(labels[train], count)
    return Source(
        name="digits",
        class_names=tuple(str(name) for name in digits.target_names),
        train=split("train", train[kept]),
        validation=split("validation", train[held]) if count else None,
        test=split("test", test),
    )
