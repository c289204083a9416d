"""How the accuracy grows with the number of training photos."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from train.scoring import probes
from train.scoring.paired import interval_of_gain

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)


@dataclass(frozen=True)
class Point:
    """What a method reaches with some of the training photos.

    Attributes:
        examples: how many it learned from.
        hits: floats (test images,), how often each was answered correctly, as a share
            of the draws of training photos.
    """

    examples: int
    hits: np.ndarray

    @property
    def accuracy(self) -> float:
        """The mean accuracy of the draws."""
        return float(self.hits.mean())


@dataclass(frozen=True)
class Gain:
    """What the last step of a learning curve brought, with its 95% interval.

    `fewer` and `examples` are the numbers of photos before and after.
    """

    fewer: int
    examples: int
    gain: float
    low: float
    high: float


def learning_curve(
    answered: Callable[[np.ndarray], np.ndarray],
    labels: np.ndarray,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 5,
    seed: int = 0,
) -> list[Point]:
    """Measures a method on growing shares of its training photos.

    `answered` takes the places of some training photos, integers (n,), ascending, and
    returns bools (test images,): which of them the method answers correctly once it has
    learned from these. `labels` are those of all training photos. Each class gives its
    share, and one photo at least; a larger share contains the smaller ones of its draw.
    All photos are drawn once.

    Example:
        >>> import numpy as np
        >>> labels = np.repeat([0, 1], 8)
        >>> curve = learning_curve(lambda places: np.arange(16) < len(places), labels)
        >>> [(point.examples, point.accuracy) for point in curve]
        [(2, 0.125), (4, 0.25), (8, 0.5), (16, 1.0)]
    """
    points = []
    for share in sorted(shares):
        count = 1 if share == 1 else draws
        places = [_draw(labels, share, seed + number) for number in range(count)]
        hits = np.mean([answered(drawn) for drawn in places], axis=0)
        points.append(Point(len(places[0]), hits))
    return points


def of_probe(
    kind: str,
    features: np.ndarray,
    labels: np.ndarray,
    tested: tuple[np.ndarray, np.ndarray],
    classes: int,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = 5,
    seed: int = 0,
) -> list[Point]:
    """Returns the `learning_curve` of a probe on features.

    `kind` is one of `train.scoring.probe_kinds.KINDS`, `tested` are the features and
    the labels of the test photos.
    """
    test_features, test_labels = tested

    def answered(places: np.ndarray) -> np.ndarray:
        probe = probes.fit(kind, features[places], labels[places], classes)
        return probe.logits(test_features).argmax(axis=1) == test_labels

    return learning_curve(answered, labels, shares=shares, draws=draws, seed=seed)


def _draw(labels, share, seed):
    generator = np.random.default_rng(seed)
    drawn = []
    for label in np.unique(labels):
        places = generator.permutation(np.flatnonzero(labels == label))
        drawn.append(places[: max(1, round(share * len(places)))])
    return np.sort(np.concatenate(drawn))


def last_gain(curve: Sequence[Point]) -> Gain:
    """Returns what the last point of a learning curve gained over the one before.

    The interval is that of the mean of the differences at each test image, of
    `train.scoring.paired.interval_of_gain`.
    """
    before, last = curve[-2:]
    gains = last.hits - before.hits
    interval = interval_of_gain(gains.sum(), np.square(gains).sum(), len(gains))
    return Gain(before.examples, last.examples, float(gains.mean()), *interval)
