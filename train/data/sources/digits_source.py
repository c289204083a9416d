"""The handwritten digits that come with scikit-learn: a data set without download."""

import numpy as np
import tensorflow as tf

from train.data.options import DataOptions
from train.data.sources.splits import Source, Split, in_memory
from train.data.sources.subset import divide, hold_out

_TEST_EXAMPLES = 360


def load_digits(dataset: str, fraction: float | None, options: DataOptions) -> Source:
    """Loads 1,797 digits of 8x8 pixels, 360 of them to test on; 0..16 become 0..255."""
    from sklearn import datasets

    digits = datasets.load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int32)

    def split(part: str, indices: np.ndarray) -> "Split":
        name = f"{dataset} {part}"

        def locate(index: int) -> str:
            return f"example {index} of {name}"

        return in_memory(name, images[indices], labels[indices], tf.identity, locate)

    if fraction is None:
        parts = {"all": split("all", np.arange(len(labels)))}
    else:
        train, test = hold_out(labels, _TEST_EXAMPLES)
        parts = {"train": split("train", train), "test": split("test", test)}
    names = map(str, digits.target_names)
    return divide(dataset, names, parts, fraction)
