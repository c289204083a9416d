import dataclasses

import numpy as np
import pytest

from train.data.sources import load
from train.data.sources.splits import in_memory
from train.data.sources.subset import limited, shares


@pytest.fixture(scope="module")
def train():
    return load("digits", validation_fraction=0.1).train


def examples(split):
    return [(record.numpy().tobytes(), int(label)) for record, label in split.records()]


def test_a_part_is_random_always_alike_and_within_a_larger_one(train):
    part = limited(train, 50)
    whole, small, again, large = map(
        examples, (train, part, limited(train, 50), limited(train, 200))
    )
    assert small == again and {*small} <= {*large} <= {*whole}
    places = [whole.index(example) for example in small]
    assert places == sorted(places), "in their order"
    # Not the first ones: spread over the whole split.
    assert np.mean(places) == pytest.approx(len(whole) / 2, rel=0.25)
    assert part.num_examples == 50 and part.name.endswith("(50 of 1,293)")
    assert part.labels().tolist() == [label for _, label in small]
    assert part.locate(0) == train.locate(places[0])


def test_labels_are_read_once_and_not_for_all(train):
    reads = []

    def records():
        reads.append(1)
        return train.records()

    # As that of a TFDS data set, which does not know its labels.
    split = dataclasses.replace(train, records=records, known_labels=None, arrays=None)
    assert limited(split, None) is limited(split, split.num_examples) is split
    assert not reads
    parts = [limited(split, count) for count in (50, 200)]
    assert [part.class_counts(10).sum() for part in parts] == [50, 200]
    assert len(reads) == 1
    np.testing.assert_array_equal(split.labels(), train.labels())


def of_sizes(sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    # No image is read.
    return in_memory("sorted", np.arange(len(labels)), labels, lambda _: 1 / 0, str)


SIZES = [[50] * 100, [7, 11, 13, 400], [3, 3, 3], [300, 200, 100, 60, 20, 10, 5]]


@pytest.mark.parametrize("sizes", map(np.array, SIZES))
def test_every_class_has_its_share_of_a_part(sizes):
    split, total, earlier = of_sizes(sizes), sizes.sum(), np.zeros(len(sizes))
    for count in range(1, total, max(1, total // 40)):
        part = limited(split, count)
        counts = part.class_counts(len(sizes))
        assert part.num_examples == counts.sum() == count
        fair = sizes * count / total
        if (fair >= 1).all() or len(set(sizes)) == 1:
            assert (np.abs(counts - fair) < 1).all(), (count, counts, fair)
        assert (counts <= np.ceil(np.maximum(fair, 1))).all()
        assert count < len(sizes) or counts.min() >= 1
        assert (counts >= earlier).all()
        earlier = counts


def test_rare_classes_have_one_example_each_and_equal_ones_are_not_the_first():
    assert shares([600] + [4] * 100, 101, range(101)).tolist() == [1] * 101
    assert shares([600] + [4] * 100, 161, range(101)).tolist() == [61] + [1] * 100
    sizes = np.random.RandomState(0).randint(1, 500, 300)
    for count in (20, 300, 2_000, int(sizes.sum())):
        assert shares(sizes, count, range(300)).sum() == count
    [chosen] = np.nonzero(limited(of_sizes([50] * 100), 10).class_counts(100))
    assert len(chosen) == 10 and chosen.max() > 50
