"""What an answer hands to its report."""

import numpy as np

from train.search.answers import Answer, Member


def member(value, size=(32, 32), features=None):
    def logits(split, through):
        return np.full((split, 2), value + through[0] - size[0])

    return Member(None, logits, size, features)


def test_the_head_of_several_networks_reads_their_logits():
    answer = Answer([member(1.0), member(2.0)], np.zeros((0, 2)))
    assert answer.features(3).tolist() == 3 * [[1.0, 1.0, 2.0, 2.0]]
    # Photos come to a smaller network through the size of the larger one.
    other = Answer([member(1.0), member(2.0, size=(48, 48))], np.zeros((0, 2)))
    assert other.features(3).tolist() == 3 * [[17.0, 17.0, 2.0, 2.0]]
    assert other.logits(3).tolist() == 3 * [[19.0, 19.0]]
    alone = Answer([member(1.0, features=len)], np.zeros((0, 2)))
    assert alone.features is len
