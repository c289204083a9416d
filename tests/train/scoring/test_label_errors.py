"""Label errors among all images, by probes that were fitted on others."""

import numpy as np
import pytest

from train.scoring.label_errors import by_cross_validation, label_errors
from train.scoring.probes import out_of_fold
from train.scoring.ranked import ranked


def clusters(photos, classes=6, size=16, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(photos) % classes
    centres = 1.5 * rng.normal(size=(classes, size))
    return labels, centres[labels] + rng.normal(size=(photos, size))


def test_planted_errors_are_found_and_named():
    truth, features = clusters(600)
    rng = np.random.default_rng(1)
    wrong = rng.choice(600, 60, replace=False)
    labels = truth.copy()
    labels[wrong] = (truth[wrong] + rng.integers(1, 6, 60)) % 6
    found = by_cross_validation(features, labels, 6)
    hits = np.isin(found.places, wrong)
    assert hits.sum() / 60 > 0.8 and hits.mean() > 0.7
    # The most certain come first.
    assert hits[:30].mean() >= hits[30:].mean()
    is_named = found.suggested[hits] == truth[found.places[hits]]
    assert is_named.mean() > 0.9


def test_clean_data_have_few_doubtful_labels():
    labels, features = clusters(600)
    assert len(by_cross_validation(features, labels, 6).places) < 0.1 * 600


def test_copies_of_a_photo_do_not_defend_its_label():
    truth, features = clusters(300)
    copied = np.concatenate([features, features[:1].repeat(20, axis=0)])
    labels = np.concatenate([truth, [truth[0]] * 20])
    labels[0] = labels[300:] = (truth[0] + 1) % 6
    groups = np.concatenate([np.arange(300), [0] * 20])
    alone = by_cross_validation(copied, labels, 6)
    together = by_cross_validation(copied, labels, 6, groups)
    is_copy = groups == 0
    assert is_copy[together.places].sum() == 21 > is_copy[alone.places].sum()


def test_groups_without_copies_change_nothing():
    labels, features = clusters(300)
    alone = by_cross_validation(features, labels, 6)
    together = by_cross_validation(features, labels, 6, np.arange(300))
    assert (alone.places == together.places).all()
    np.testing.assert_array_equal(alone.probabilities, together.probabilities)


def test_one_class_cannot_be_judged():
    _, features = clusters(12)
    assert by_cross_validation(features, np.zeros(12, int), 2) is None
    labels = np.array([0] * 8 + [1] * 4)
    assert by_cross_validation(features, labels, 2) is None


@pytest.mark.peers
def test_cleanlab_doubts_the_same_labels():
    filters = pytest.importorskip("cleanlab.filter")
    truth, features = clusters(600)
    rng = np.random.default_rng(1)
    labels = np.where(rng.random(600) < 0.1, rng.integers(0, 6, 600), truth)
    probabilities = out_of_fold("lda", features, labels, 6)
    found = label_errors(ranked(labels, probabilities), 6, np.ones(600, bool))
    issues = filters.find_label_issues(
        labels, probabilities, filter_by="confident_learning"
    )
    assert sorted(found.places) == np.flatnonzero(issues).tolist()
