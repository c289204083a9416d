"""Metrics of masks, compared with scikit-learn's, drawn photos and all distances."""

import itertools

import numpy as np
import pytest
from scipy.ndimage import uniform_filter
from sklearn import metrics as sklearn_metrics

from train.data.registry import IGNORED
from train.masks import boundaries
from train.masks.metrics import MaskCounts

RANDOM = np.random.default_rng(0)
CLASSES = 6
# 1.2 pixels of 20 x 24.
TOLERANCE = 0.04


def blobs(height=20, width=24, ignored=0.1):
    """Returns a map of the first four classes in blobs, and a similar one."""
    scores = uniform_filter(RANDOM.normal(size=(4, height, width)), (0, 5, 5))
    answer = scores + uniform_filter(RANDOM.normal(size=scores.shape), (0, 5, 5)) / 2
    truth, answer = scores.argmax(axis=0), answer.argmax(axis=0)
    truth[RANDOM.random(truth.shape) < ignored] = IGNORED
    return truth.astype("uint8"), answer.astype("uint8")


# The last photos have one class alone, a fifth, and no pixel that counts. No photo has
# the sixth.
PHOTOS = [blobs() for _ in range(30)] + [blobs(11, 40)]
PHOTOS.append((np.full((20, 24), 2, "uint8"), PHOTOS[1][1]))
PHOTOS.append((PHOTOS[0][0], np.full((20, 24), 4, "uint8")))
PHOTOS.append((np.full((20, 24), IGNORED, "uint8"), PHOTOS[0][1]))


def metrics_of(photos):
    counts = MaskCounts(CLASSES, TOLERANCE)
    for truth, answer in photos:
        counts.add(truth, answer)
    return counts.metrics()


FOUND = metrics_of(PHOTOS)


def counted(photos):
    """Returns truth and answers (pixels,) of the pixels that count."""
    pairs = [
        (truth[truth != IGNORED], answer[truth != IGNORED]) for truth, answer in photos
    ]
    return (np.concatenate(one) for one in zip(*pairs, strict=True))


def mean_iou(photos):
    """Returns the mean over the classes that occur, by scikit-learn."""
    truth, answers = counted(photos)
    labels = np.union1d(truth, answers)
    return sklearn_metrics.jaccard_score(truth, answers, labels=labels, average="macro")


def edges_by_hand(numbers):
    """Returns the places at boundaries and their classes, pixel by pixel."""
    places, classes = [], []
    for row, column in np.ndindex(numbers.shape):
        own = numbers[row, column]
        beside = [(row - 1, column), (row + 1, column), (row, column - 1)]
        beside = [*beside, (row, column + 1)]
        inside = [
            numbers[place]
            for place in beside
            if 0 <= place[0] < numbers.shape[0] and 0 <= place[1] < numbers.shape[1]
        ]
        if own != IGNORED and any(one not in (own, IGNORED) for one in inside):
            places.append((row, column))
            classes.append(own)
    return np.array(places, float).reshape(-1, 2), np.array(classes)


def boundary_f1_by_hand(truth, answer):
    """Returns the F1 of each class of all distances between boundaries."""
    answer = np.where(truth == IGNORED, IGNORED, answer)
    far = TOLERANCE * np.sqrt(truth.shape[0] ** 2 + truth.shape[1] ** 2)
    (places, classes), (others, answered) = map(edges_by_hand, (truth, answer))
    near = np.sqrt(((places[:, None] - others) ** 2).sum(axis=-1)) <= far
    found = {}
    for number in np.union1d(classes, answered):
        pairs = near[classes == number][:, answered == number]
        recall, precision = (
            pairs.any(axis=axis).mean() if pairs.size else 0.0 for axis in (1, 0)
        )
        total = recall + precision
        found[number] = 2 * recall * precision / total if total else 0.0
    return found


BOUNDARY = [boundary_f1_by_hand(*photo) for photo in PHOTOS]


def test_confusion_and_iou_are_those_of_scikit_learn():
    truth, answers = counted(PHOTOS)
    labels = np.arange(CLASSES)
    table = sklearn_metrics.confusion_matrix(truth, answers, labels=labels)
    np.testing.assert_array_equal(FOUND.confusion, table)
    each = sklearn_metrics.jaccard_score(
        truth, answers, labels=labels[:5], average=None
    )
    np.testing.assert_allclose(FOUND.iou[:5], each, rtol=1e-12)
    assert np.isnan(FOUND.iou[5])
    assert FOUND.mean_iou.value == pytest.approx(mean_iou(PHOTOS), rel=1e-12)
    accuracy = sklearn_metrics.accuracy_score(truth, answers)
    assert FOUND.pixel_accuracy.value == pytest.approx(accuracy, rel=1e-12)
    assert FOUND.photos == len(PHOTOS)


def test_photos_are_in_order_of_their_own_iou():
    own = [mean_iou([photo]) for photo in PHOTOS[:-1]]
    np.testing.assert_allclose(FOUND.photo_iou[:-1], own, rtol=1e-12)
    assert np.isnan(FOUND.photo_iou[-1])
    assert FOUND.worst.tolist() == [*np.argsort(own, kind="stable"), len(PHOTOS) - 1]


def test_boundaries_meet_as_all_distances_say():
    photos = [np.mean([*found.values()]) for found in BOUNDARY if found]
    assert FOUND.boundary_f1.value == pytest.approx(np.mean(photos), rel=1e-9)
    assert 0.1 < FOUND.boundary_f1.value < 0.9
    for number in range(5):
        own = [found[number] for found in BOUNDARY if number in found]
        expected = np.mean(own) if own else np.nan
        assert FOUND.boundary_f1_of[number] == pytest.approx(expected, nan_ok=True)
    assert np.isnan(FOUND.boundary_f1_of[5])


def test_intervals_are_those_of_drawn_photos():
    drawn = []
    for own in RANDOM.integers(len(PHOTOS), size=(200, len(PHOTOS))):
        photos = [PHOTOS[place] for place in own]
        truth, answers = counted(photos)
        found = [BOUNDARY[place] for place in own if BOUNDARY[place]]
        boundary = np.mean([np.mean([*one.values()]) for one in found])
        drawn.append((mean_iou(photos), (truth == answers).mean(), boundary))
    ends = np.quantile(drawn, (0.025, 0.975), axis=0)
    estimates = (FOUND.mean_iou, FOUND.pixel_accuracy, FOUND.boundary_f1)
    for (low, high), one in zip(ends.T, estimates, strict=True):
        # The ends of 200 resamples are uncertain by about a tenth of the width.
        assert abs(one.low - low) < 0.25 * (high - low)
        assert abs(one.high - high) < 0.25 * (high - low)


def test_confusions_near_boundaries_are_of_all_distances():
    expected = np.zeros((CLASSES, CLASSES), int)
    for truth, answer in PHOTOS:
        edges, _ = edges_by_hand(truth)
        far = TOLERANCE * np.hypot(*truth.shape)
        for place in map(tuple, np.argwhere(truth != IGNORED)):
            if (((edges - place) ** 2).sum(axis=1) <= far**2).any():
                expected[truth[place], answer[place]] += 1
    np.testing.assert_array_equal(FOUND.boundary_confusion, expected)
    assert expected.sum() < FOUND.confusion.sum()
    pairs = FOUND.confused_at_boundaries()
    assert pairs[0][2] == max(np.where(np.eye(CLASSES), 0, expected).ravel())
    assert [count for *_, count in pairs] == sorted((p[2] for p in pairs), reverse=True)
    assert all(expected[true, answer] == count for true, answer, count in pairs)


@pytest.mark.parametrize(
    ("shift", "f1"), [(0, 1.0), (2, 1.0), (3, None)], ids=["same", "near", "far"]
)
def test_a_square_meets_another_within_the_tolerance(shift, f1):
    # The tolerance of the paper is 2.12 pixels of 200 x 200.
    truth = np.zeros((200, 200), "uint16")
    truth[60:100, 60:100] = 1
    counts = MaskCounts(classes=2)
    counts.add(truth, np.roll(truth, shift, axis=1))
    found = counts.metrics().boundary_f1.value
    assert found == 1.0 if f1 else 0.5 < found < 0.99


def test_nothing_lies_between_ignored_pixels_and_classes():
    numbers = np.array([[0, 0, IGNORED, 1], [IGNORED, 0, IGNORED, 1]])
    assert not boundaries.edges(numbers, IGNORED).any()
    counts = MaskCounts(classes=2)
    counts.add(numbers, np.where(numbers == IGNORED, 0, numbers))
    found = counts.metrics()
    assert np.isnan((found.boundary_f1.value, found.boundary_f1.low)).all()
    assert found.mean_iou.value == 1 and not found.boundary_confusion.any()


def test_photos_take_little_memory():
    counts = MaskCounts(classes=1000)
    for truth, answer in itertools.islice(PHOTOS, 10):
        counts.add(truth, answer)
    held = [rows.nbytes for rows in counts._photo_classes]
    assert max(held) <= 24 * 4


@pytest.mark.parametrize(
    ("truth", "answer", "message"),
    [
        (PHOTOS[0][0], PHOTOS[0][1].T, r"\(20, 24\) and \(24, 20\): resize the answer"),
        (PHOTOS[0][1], PHOTOS[0][0], "The answer has a pixel of 255, .* 6 classes"),
        (PHOTOS[0][1] + 3, PHOTOS[0][1], "The truth has a pixel of 6, .* 6 classes"),
        (PHOTOS[0][1], -PHOTOS[0][1].astype(int), "The answer has a pixel of -3"),
    ],
)
def test_maps_that_do_not_fit_are_named(truth, answer, message):
    with pytest.raises(ValueError, match=message):
        MaskCounts(CLASSES).add(truth, answer)


def test_no_pixels_have_no_metrics():
    counts = MaskCounts(CLASSES)
    counts.add(*PHOTOS[-1])
    with pytest.raises(ValueError, match="No pixel of 1 masks counts: add"):
        counts.metrics()
