"""Folds of photos."""

import numpy as np
import pytest

from train.scoring.folds import folds_of


def test_folds_are_alike():
    labels = np.random.default_rng(0).integers(0, 7, 103)
    fold = folds_of(labels, folds=4, seed=1)
    counts = np.array([np.bincount(labels[fold == one]) for one in range(4)])
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1
    np.testing.assert_array_equal(fold, folds_of(labels, folds=4, seed=1))
    assert (fold != folds_of(labels, folds=4, seed=2)).any()


def test_groups_stay_together():
    labels = np.arange(90) % 3
    groups = np.random.default_rng(0).integers(0, 40, 90).astype(str)
    fold = folds_of(labels, groups)
    for group in set(groups):
        assert len(set(fold[groups == group])) == 1
    assert set(fold) == {0, 1, 2, 3, 4}


def test_fewer_groups_than_folds():
    assert sorted(folds_of([0, 1, 2])) == [0, 1, 2]
    with pytest.raises(ValueError, match="two groups at least"):
        folds_of([0, 1, 0], groups=["a", "a", "a"])
