"""What a run keeps of its test: thresholds, distances, and its file."""

import numpy as np
import pytest

from train.common.errors import RunError
from train.scoring import held_out
from train.scoring.held_out import HeldOut

RNG = np.random.default_rng(0)
KNOWN = held_out.unit(RNG.normal(size=(40, 8)) + 3)
NO_FEATURES = np.zeros((0, 0), "float32"), np.zeros(0, "float32")


def of_answers(confidence, is_correct):
    return HeldOut(np.array(confidence), np.array(is_correct), *NO_FEATURES)


def test_the_threshold_gives_the_accuracy_to_new_answers():
    confidence = RNG.uniform(size=20_000).astype("float32")
    is_correct = RNG.uniform(size=20_000) < confidence
    kept = of_answers(confidence[:4000], is_correct[:4000])
    for wanted in (0.6, 0.8, 0.95):
        is_sure = confidence[4000:] >= kept.threshold(wanted)
        assert abs(is_correct[4000:][is_sure].mean() - wanted) < 0.02
    assert kept.threshold(0.0) == confidence[:4000].min()


@pytest.mark.parametrize(("count", "wanted"), [(1, 0.7), (17, 0.95), (97, 0.99)])
def test_a_few_right_answers_prove_little(count, wanted):
    assert of_answers(np.ones(count), np.ones(count, bool)).threshold(wanted) is None
    more = 2 * count + 2
    assert of_answers(np.ones(more), np.ones(more, bool)).threshold(wanted) == 1


def test_photos_far_from_all_known_ones_are_unlike_them():
    tested = RNG.normal(size=(500, 8)) + 3
    distances = held_out.distances_to(KNOWN, tested)
    kept = HeldOut(np.ones(500), np.ones(500, bool), KNOWN, distances)
    alarms = kept.is_unlike(RNG.normal(size=(2000, 8)) + 3)
    assert alarms.mean() < 3 * held_out.FALSE_ALARMS
    assert kept.is_unlike(RNG.normal(size=(2000, 8)) - 3).mean() > 0.99
    # The length of features does not count.
    far = kept.is_unlike(KNOWN)
    np.testing.assert_array_equal(kept.is_unlike(100 * KNOWN), far)
    assert far.mean() < 0.1 and kept.is_unlike(np.zeros((1, 8))).all()
    assert not of_answers([0.5], [True]).is_unlike(np.ones((3, 8))).any()


@pytest.mark.parametrize("features", [NO_FEATURES, (KNOWN, KNOWN[:, 0])])
def test_the_file_has_it_all(tmp_path, features):
    kept = HeldOut(RNG.uniform(size=9), RNG.uniform(size=9) < 0.5, *features)
    kept.write(tmp_path / "held_out.npz")
    again = held_out.read(tmp_path / "held_out.npz")
    for name, array in vars(kept).items():
        if array.size:
            np.testing.assert_array_equal(getattr(again, name), array)
    assert len(again.distances) == len(features[1])


ARRAYS = {"confidence": np.ones(3), "is_correct": np.ones(3, bool)}
DAMAGED = {
    "no arrays": {"other": np.ones(3)},
    "one array": {"confidence": np.ones(3)},
    "lengths": ARRAYS | {"is_correct": np.ones(4, bool)},
    "ranks": ARRAYS | {"known": np.ones(3)},
    "kinds": ARRAYS | {"is_correct": np.array(["a", "b", "c"])},
    "pickled": ARRAYS | {"known": np.array([{}, {}])},
    "NaN": ARRAYS | {"confidence": np.full(3, np.nan)},
}


@pytest.mark.parametrize("arrays", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_refused_by_its_name(tmp_path, arrays):
    np.savez(tmp_path / "held_out.npz", **arrays)
    with pytest.raises(RunError, match="held_out.npz is damaged .*again that made the"):
        held_out.read(tmp_path / "held_out.npz")
