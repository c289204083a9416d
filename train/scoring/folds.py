"""Folds of photos for cross-validation, of every class alike."""

import numpy as np
from numpy.typing import ArrayLike


def folds_of(
    labels: ArrayLike, groups: ArrayLike | None = None, folds: int = 5, seed: int = 0
) -> np.ndarray:
    """Returns the number of the fold of each photo, integers (photos,) from 0.

    The groups of a class are shuffled and dealt out in turn, so that folds differ by
    one group of a class at most; photos of a group, such as copies of one photo, stay
    together. Fewer groups than folds make as many folds. A function of the seed.

    Args:
        labels: integers (photos,).
        groups: the group of each photo, numbers or texts (photos,); by default each
            photo is one.
        folds: int, how many, at least 2.
        seed: int.

    Raises:
        ValueError: there are no two groups to take apart.

    Example:
        >>> folds_of([0, 0, 1, 1], folds=2).tolist()
        [0, 1, 0, 1]
    """
    labels = np.asarray(labels)
    groups = np.arange(len(labels)) if groups is None else np.asarray(groups)
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    folds = min(folds, len(first))
    if folds < 2:
        raise ValueError(
            f"{len(labels)} photos of {len(first)} group cannot be divided into folds: "
            "pass photos of two groups at least."
        )
    shuffled = np.random.default_rng(seed).permutation(len(first))
    dealt = shuffled[np.argsort(labels[first[shuffled]], kind="stable")]
    fold = np.empty(len(first), np.int64)
    fold[dealt] = np.arange(len(first)) % folds
    return fold[group]
