"""Features of a backbone in time, and which photos judge."""

import types

import numpy as np
import pytest

from train.data.sources.splits import Source, in_memory
from train.scoring.features import Features
from train.search import time_plan
from train.search.timed_features import TimedFeatures


def split_of(name, count, first=0):
    numbers = np.arange(first, first + count)
    return in_memory(name, numbers, numbers % 5, None, str)


def test_each_backbone_knows_the_photos_that_judge_it(monkeypatch):
    now, facts = [0.0], {}
    source = Source(
        "photos/",
        tuple("abcde"),
        split_of("train", 200),
        split_of("validation", 600, 1_000),
        split_of("test", 100, 2_000),
    )

    class Clock:
        seconds, facts = 100.0, {}
        left = property(lambda self: 100.0 - now[0])

        def clock(self):
            return now[0]

        def keep(self, **found):
            facts.update(found)

    search = types.SimpleNamespace(
        budget=Clock(), slowdown=1.0, source=source, test=source.test
    )
    monkeypatch.setattr(time_plan, "for_features", lambda *_: 1e9)

    def timed(seconds, number):
        def extract(split):
            now[0] += seconds * split.num_examples
            rows = split.arrays[0][:, None].astype("float32")
            return Features(split.labels(), rows, rows)

        return TimedFeatures(search, extract, number, 2)

    quick, slow = timed(0.001, 0), timed(0.05, 1)
    for one, count in ((quick, 600), (slow, pytest.approx(125, abs=30))):
        numbers = one.judges.arrays[0]
        assert len(numbers) == count
        np.testing.assert_array_equal(one.of_judges.pooled[:, 0], numbers)
    # A slower backbone does not change them for the others.
    assert search.source.validation is quick.judges
