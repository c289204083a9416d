"""The photos to be labelled: uncertain ones, of which no two are alike."""

import numpy as np
import pytest

from train.predict import asking
from train.predict.answers import Answer
from train.predict.asking import Asking


def asked(probabilities, features, count, batch=4):
    asking = Asking(count)
    for start in range(0, len(features), batch):
        places = range(start, min(start + batch, len(features)))
        answers = [Answer(str(place), ()) for place in places]
        part = slice(start, start + batch)
        asking.add(answers, probabilities[part], features[part])
    return [int(answer.file) for answer in asking.chosen()]


def test_uncertain_photos_of_every_kind_are_asked_for():
    # Three kinds of uncertain photos, many of the first, and certain ones.
    kinds = np.repeat(np.eye(4), (20, 2, 2, 40), axis=0)
    chances = np.where(kinds[:, 3:] > 0, [[0.999, 0.001]], [[0.55, 0.45]])
    places = asked(chances, kinds, 3)
    assert sorted(kinds[places].argmax(axis=1)) == [0, 1, 2]
    assert asked(chances, kinds, 3) == places


def test_the_most_uncertain_photo_comes_first_and_no_photo_twice():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(3), 30)
    features = rng.normal(size=(30, 5))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    places = asked(chances, features, 30)
    assert sorted(places) == [*range(30)]
    errors = chances - np.eye(3)[chances.argmax(axis=1)]
    assert places[0] == np.linalg.norm(errors, axis=1).argmax()
    assert len(asked(chances, features, 100)) == 30
    assert Asking(3).chosen() == []


def test_photos_that_are_all_alike_are_asked_for_all_the_same():
    assert sorted(asked(np.full((6, 2), 0.5), np.ones((6, 3)), 4)) != []
    assert len({*asked(np.full((6, 2), 0.5), np.ones((6, 3)), 4)}) == 4


@pytest.mark.parametrize("pool", [8, 1000])
def test_memory_is_bounded_and_the_uncertain_are_kept(monkeypatch, pool):
    monkeypatch.setattr(asking, "_POOL", pool)
    rng = np.random.default_rng(0)
    certainty = rng.permutation(np.linspace(0.5, 1, 200))
    chances = np.stack([certainty, 1 - certainty], axis=1)
    places = asked(chances, rng.normal(size=(200, 4)), 4)
    if pool == 8:
        # They are in the first half of the certainties: one batch may join the pool.
        assert max(certainty[places]) < 0.75
