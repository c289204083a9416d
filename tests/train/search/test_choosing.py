"""What answers: choices by held-out photos."""

import numpy as np
import pytest

from train.search.choosing import chosen, even_share, in_turns, share_of


def losses_around(*means, photos=100, spread=0.5):
    rng = np.random.default_rng(0)
    shared = rng.normal(0, spread, photos)
    return [mean + shared + rng.normal(0, 0.1, photos) for mean in means]


def test_few_photos_leave_out_only_what_lies_far_behind():
    losses = losses_around(0.50, 0.505, 0.51, 0.50, 2.0)
    assert chosen(losses, photos_per_class=20) == [0, 1, 2, 3]
    # Many pick the three best.
    assert chosen(losses, photos_per_class=21) == [0, 1, 3]
    assert chosen(losses[:1], photos_per_class=5) == [0]
    assert chosen(losses[:2], photos_per_class=500) == [0, 1]


def test_a_network_joins_only_where_held_out_photos_say_so():
    labels = np.random.default_rng(0).integers(0, 4, 400)
    truth = np.eye(4)[labels]
    noise = np.random.default_rng(1).normal(0, 1.5, (3, 400, 4))
    good, other, bad = 2 * truth + noise[0], 2 * truth + noise[1], noise[2]
    # Two as good as each other make other mistakes.
    assert share_of(other, good, labels) == 0.5
    assert share_of(bad, good, labels) == 0.0
    assert share_of(8 * truth, bad, labels) == 1.0
    # Nine photos say nothing, and what is the same brings nothing.
    assert share_of(8 * truth[:9], bad[:9], labels[:9]) == 0.0
    assert share_of(good, good, labels) == 0.0


def test_a_usual_share_stays_unless_photos_say_otherwise():
    labels = np.random.default_rng(0).integers(0, 4, 400)
    truth = np.eye(4)[labels]
    noise = np.random.default_rng(1).normal(0, 1.5, (3, 400, 4))
    good, other, bad = 2 * truth + noise[0], 2 * truth + noise[1], noise[2]
    few = np.arange(12)
    assert share_of(other, good, labels, usual=0.75) == 0.5
    assert share_of(good, good, labels, usual=0.5) == 0.5
    assert share_of(other[few], good[few], labels[few], usual=0.5) == 0.5
    assert share_of(bad, good, labels, usual=0.5) == 0.0
    assert share_of(8 * truth, bad, labels, usual=0.5) == 1.0
    assert share_of(good[:9], good[:9], labels[:9], usual=0.5) == 0.0


def test_another_size_gets_half_unless_it_lies_behind():
    good, equal, bad = losses_around(0.5, 0.51, 2.0)
    assert even_share(equal, good) == even_share(good, good) == 0.5
    assert even_share(bad, good) == 0.0


def test_more_standard_errors_let_fewer_networks_join():
    labels = np.random.default_rng(0).integers(0, 4, 60)
    noise = np.random.default_rng(1).normal(0, 1.5, (2, 60, 4))
    good, other = 2 * np.eye(4)[labels] + noise
    assert share_of(other, good, labels) > 0
    assert share_of(other, good, labels, errors=9.0) == 0.0


@pytest.mark.parametrize("count", [3, 10, 29])
def test_the_first_photos_have_their_share_of_each_class(count):
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [60, 30, 10]))
    turns = in_turns(labels)
    assert sorted(turns.tolist()) == list(range(100))
    counts = np.bincount(labels[turns[:count]], minlength=3)
    assert np.abs(counts - count * np.array([0.6, 0.3, 0.1])).max() <= 1.5
