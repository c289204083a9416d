"""What an answer hands to its report."""

import numpy as np

from train.search.answers import Answer, Member


def member(value, size=(32, 32), features=None):
    return Member(None, lambda split: np.full((split, 2), value), size, features)


def test_the_head_of_several_networks_reads_their_logits():
    answer = Answer([member(1.0), member(2.0)], np.zeros((0, 2)))
    assert answer.features(3).tolist() == 3 * [[1.0, 1.0, 2.0, 2.0]]
    # Images are resized inside of the model, and the logits become others.
    other = Answer([member(1.0), member(2.0, size=(48, 48))], np.zeros((0, 2)))
    assert other.features is None
    alone = Answer([member(1.0, features=len)], np.zeros((0, 2)))
    assert alone.features is len
