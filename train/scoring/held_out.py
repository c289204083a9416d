"""What a run keeps of its test, by which answers to other photos are judged.

Nothing here needs Keras: predictions by other runtimes read it, too.
"""

import dataclasses
import pathlib

import numpy as np

from train.common.errors import RunError
from train.common.files import whole_file
from zoo.containers.arrays import CheckpointError
from zoo.containers.npz import Npz

# The features of so many training and test photos at most are kept or compared: they
# take the time of a run, and 500 are no better.
KNOWN = 250
# The distance is that to so many-th nearest known photo: one may be an outlier itself.
_NEIGHBOUR = 3
# The share of test photos that are farther from those of the training than the limit.
FALSE_ALARMS = 0.02
_NONE = np.zeros((1, 0), "float32")


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The answers to the test photos of a run, and where its training photos are.

    Attributes:
        confidence: float32 (tested,), the probabilities of the answers.
        is_correct: bools (tested,).
        known: float32 (photos, size), features of training photos, each of length 1.
        distances: float32 (compared,), those of test photos, see `distances_to`.
    """

    confidence: np.ndarray
    is_correct: np.ndarray
    known: np.ndarray
    distances: np.ndarray

    def threshold(self, accuracy: float) -> float | None:
        """Returns the probability from which on answers have an accuracy, or None.

        It is the lowest one at which the test's answers of at least that probability
        have the accuracy by Laplace's rule of succession, (right + 1) / (all + 2): a
        few right answers prove little.

        Example:
            >>> probabilities = np.array([0.9, 0.8, 0.7, 0.6, 0.5])
            >>> is_correct = np.array([True, True, True, False, True])
            >>> known, distances = np.zeros((1, 0)), np.zeros(0)
            >>> HeldOut(probabilities, is_correct, known, distances).threshold(0.75)
            0.7
        """
        order = np.argsort(-self.confidence, kind="stable")
        counts = np.arange(1, len(order) + 1)
        reached = (np.cumsum(self.is_correct[order]) + 1) / (counts + 2)
        places = np.flatnonzero(reached >= accuracy)
        return float(self.confidence[order[places[-1]]]) if len(places) else None

    def is_unlike(self, features: np.ndarray) -> np.ndarray:
        """Returns bools (photos,): whether each is unlike all training photos.

        `features` are (photos, size). The limit leaves out `FALSE_ALARMS` of the test
        photos. Without known photos, none is unlike them.
        """
        if not len(self.distances):
            return np.zeros(len(features), bool)
        limit = np.quantile(self.distances, 1 - FALSE_ALARMS)
        return distances_to(self.known, features) > limit

    def write(self, path: pathlib.Path) -> None:
        """Writes an `.npz` file, whole or not at all."""
        # The reader refuses arrays without numbers.
        parts = {name: array for name, array in vars(self).items() if array.size}
        with whole_file(path) as temporary:
            np.savez(temporary, allow_pickle=False, **parts)


def read(path: pathlib.Path) -> HeldOut:
    """Reads what `HeldOut.write` has written; a `RunError` says what is wrong."""
    try:
        file = Npz(path)
        parts = {key: np.asarray(file.check(key)) for key in file.keys}
        held_out = HeldOut(**{"known": _NONE, "distances": _NONE[0], **parts})
        _check(held_out)
    except (CheckpointError, TypeError, ValueError, OSError) as error:
        raise RunError(
            f"{path} is damaged ({error}): run the command again that made the run, "
            "or copy the file from a backup."
        ) from error
    return held_out


def _check(held_out):
    shapes = {name: array.shape for name, array in vars(held_out).items()}
    kinds = "".join(array.dtype.kind for array in vars(held_out).values())
    is_judged = shapes["confidence"] == shapes["is_correct"]
    ranks = [*map(len, shapes.values())]
    if ranks != [1, 1, 2, 1] or kinds != "fbff" or not is_judged:
        raise ValueError(f"its arrays have the shapes {shapes}")
    if not all(np.isfinite(array).all() for array in vars(held_out).values()):
        raise ValueError("it has numbers that are not finite")


def distances_to(known: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Returns the distance of each feature, (photos, size), to the third nearest known.

    Both are compared at length 1.

    Source: Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors
    (2022), https://arxiv.org/abs/2204.06507.
    """
    likeness = unit(features) @ known.T.astype("float32")
    place = max(likeness.shape[1] - _NEIGHBOUR, 0)
    return 1 - np.partition(likeness, place, axis=1)[:, place]


def unit(features: np.ndarray) -> np.ndarray:
    """Returns features, (photos, size), at length 1, float32."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return (features / np.maximum(lengths, 1e-12)).astype("float32")
