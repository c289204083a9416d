import numpy as np
import pytest

from train.data.digits_source import load_digits
from train.data.subset import limited


@pytest.fixture(scope="module")
def train():
    return load_digits(0.1).train


def examples(split):
    return [
        (record.tobytes(), int(label))
        for record, label in split.records().as_numpy_iterator()
    ]


def test_a_part_is_random_always_alike_and_within_a_larger_one(train):
    whole, small, large = (examples(limited(train, count)) for count in (None, 50, 200))
    assert (len(small), len(large)) == (50, 200)
    assert examples(limited(train, 50)) == small
    assert set(small) <= set(large) <= set(whole)
    places = [whole.index(example) for example in small]
    assert places == sorted(places), "in their order"
    # Not the first ones: spread over the whole split and over all classes.
    assert np.mean(places) == pytest.approx(len(whole) / 2, rel=0.25)
    assert {label for _, label in small} == set(range(10))


def test_a_part_knows_its_size_labels_and_names(train):
    part = limited(train, 50)
    assert part.num_examples == 50 and part.name.endswith("(50 of 1,293)")
    np.testing.assert_array_equal(part.labels(), [label for _, label in examples(part)])
    assert part.class_counts(10).sum() == 50
    record, _ = next(part.records().as_numpy_iterator())
    place = examples(train).index(examples(part)[0])
    assert part.locate(0, record) == train.locate(place, record)


def test_more_than_all_is_all(train):
    assert limited(train, 10_000) is train
