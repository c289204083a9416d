"""Metrics of masks: intersection over union, pixel accuracy, boundaries, confusions.

Maps are integers (height, width), a class from 0 for each pixel. Pixels whose truth is
`IGNORED` count nowhere.
"""

import dataclasses

import numpy as np

from train.data.registry import IGNORED
from train.masks import boundaries
from train.scoring.bootstrap import Estimate, estimates, mean_of_finite, ratio
from train.scoring.metrics import confused_pairs


@dataclasses.dataclass(frozen=True)
class MaskMetrics:
    """How well the pixels of photos are answered; intervals of 95% are over photos.

    Attributes:
        photos: how many were answered.
        confusion: integers (classes, classes), pixels by their class and its answer.
        iou: floats (classes,), the pixels that truth and answer share by those that
            either has; NaN for a class that neither has.
        mean_iou: the mean of `iou` over the classes that truth or answers have.
        pixel_accuracy: share of pixels that are answered right.
        boundary_f1: mean over photos of the mean over their classes of
            `train.masks.boundaries.boundary_f1`.
        boundary_f1_of: floats (classes,), means over the photos where the class has a
            boundary; NaN without any.
        boundary_confusion: as `confusion`, of the pixels near boundaries in the truth.
        photo_iou: floats (photos,), mean over the classes that the photo's truth or
            answer has; NaN where all is ignored.
    """

    photos: int
    confusion: np.ndarray
    iou: np.ndarray
    mean_iou: Estimate
    pixel_accuracy: Estimate
    boundary_f1: Estimate
    boundary_f1_of: np.ndarray
    boundary_confusion: np.ndarray
    photo_iou: np.ndarray

    @property
    def worst(self) -> np.ndarray:
        """Integers, the places of photos by `photo_iou`, lowest first; NaN last."""
        return np.argsort(self.photo_iou, kind="stable")

    def confused_at_boundaries(self) -> list[list[int]]:
        """Returns [true, answered, pixels] of mistakes near boundaries, most first."""
        from scipy.sparse import csr_array

        return confused_pairs(csr_array(self.boundary_confusion))


class MaskCounts:
    """Counts photo by photo what `MaskMetrics` are made of.

    Two tables (classes, classes) of all photos are kept, and for each photo about 300
    bytes and 24 for each class that it has in truth or answer: 80 MB for 100,000 photos
    of 20 classes each. `tolerance` is a share of the diagonal.

    Example:
        >>> counts = MaskCounts(classes=2)
        >>> counts.add(np.array([[0, 0, 1, 255]]), np.array([[0, 1, 1, 0]]))
        >>> found = counts.metrics()
        >>> found.iou.tolist(), found.confusion.tolist()
        ([0.5, 0.5], [[1, 1], [0, 1]])
    """

    def __init__(self, classes: int, tolerance: float = boundaries.TOLERANCE):
        self.classes = classes
        self.tolerance = tolerance
        self.confusion = np.zeros((classes, classes), np.int64)
        self.boundary_confusion = np.zeros((classes, classes), np.int64)
        # Sums and numbers of the boundary F1 of each class.
        self._boundary_sums, self._boundary_photos = np.zeros((2, classes))
        self._photo_boundary: list[float] = []
        self._photo_iou: list[float] = []
        # Rows of a photo: its classes, the pixels that both maps have, that one has.
        self._photo_classes: list[np.ndarray] = []
        self._pixels: list[int] = []

    def add(self, truth: np.ndarray, answer: np.ndarray) -> None:
        """Counts a photo: integers (height, width), truth and answer of one size.

        Raises a `ValueError` for other sizes, and for values that are no classes.
        """
        truth, answer = np.asarray(truth), np.asarray(answer)
        if truth.shape != answer.shape or truth.ndim != 2:
            raise ValueError(
                "Truth and answer must be maps (height, width) of one size, got "
                f"{truth.shape} and {answer.shape}: resize the answer to the mask."
            )
        is_counted = truth != IGNORED
        self._check("truth", truth[is_counted])
        self._check("answer", answer[is_counted])
        confusion = self._confusion(truth, answer, is_counted)
        self.confusion += confusion
        shared, either = _shared_and_either(confusion)
        places = np.flatnonzero(either)
        self._photo_classes.append(np.stack((places, shared[places], either[places])))
        self._photo_iou.append(float(mean_of_finite(ratio(shared, either))))
        self._pixels.append(int(confusion.sum()))
        self._add_boundaries(truth, np.where(is_counted, answer, IGNORED))

    def _add_boundaries(self, truth, answer):
        distance = boundaries.pixels_within(truth.shape, self.tolerance)
        near = boundaries.band(boundaries.edges(truth, IGNORED), distance)
        near &= truth != IGNORED
        self.boundary_confusion += self._confusion(truth, answer, near)
        found = boundaries.boundary_f1(truth, answer, distance, IGNORED)
        for number, value in found.items():
            self._boundary_sums[number] += value
            self._boundary_photos[number] += 1
        values = [*found.values()]
        self._photo_boundary.append(sum(values) / len(values) if values else np.nan)

    def _check(self, name, numbers):
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < self.classes:
            wrong = numbers.max() if numbers.max() >= self.classes else numbers.min()
            raise ValueError(
                f"The {name} has a pixel of {wrong}, which is none of {self.classes} "
                "classes from 0: give the number of its class."
            )

    def _confusion(self, truth, answer, selected):
        both = truth[selected].astype(np.int64) * self.classes + answer[selected]
        counts = np.bincount(both, minlength=self.classes**2)
        return counts.reshape(self.classes, self.classes)

    @property
    def last_photo_iou(self) -> float:
        """The mean IoU of the last photo, NaN where none of its pixels counts."""
        return self._photo_iou[-1]

    def metrics(self) -> MaskMetrics:
        """Returns the metrics of the photos so far, at least one."""
        photos = len(self._pixels)
        if not sum(self._pixels):
            raise ValueError(
                f"No pixel of {photos} masks counts: add masks with pixels of classes."
            )
        from scipy.sparse import csr_array

        # Tables (photos, classes) of pixels.
        ends = np.cumsum([0, *(rows.shape[1] for rows in self._photo_classes)])
        places, *values = np.concatenate(self._photo_classes, axis=1)
        shape = (photos, self.classes)
        shared, either = (csr_array((one, places, ends), shape) for one in values)
        hits, pixels = shared.sum(axis=1), np.array(self._pixels)
        boundary = np.array(self._photo_boundary)
        is_bounded = np.isfinite(boundary)

        def metrics(counts):
            iou = ratio(counts @ shared, counts @ either)
            weights = counts * is_bounded
            met = weights @ np.where(is_bounded, boundary, 0)
            return np.stack(
                (
                    mean_of_finite(iou),
                    ratio(counts @ hits, counts @ pixels),
                    ratio(met, weights.sum(axis=1)),
                ),
                axis=1,
            )

        per_photo = max(1, len(places) // photos)
        mean_iou, accuracy, boundary_f1 = estimates(metrics, photos, per_photo)
        return MaskMetrics(
            photos=photos,
            confusion=self.confusion.copy(),
            iou=ratio(*_shared_and_either(self.confusion)),
            mean_iou=mean_iou,
            pixel_accuracy=accuracy,
            boundary_f1=boundary_f1,
            boundary_f1_of=ratio(self._boundary_sums, self._boundary_photos),
            boundary_confusion=self.boundary_confusion.copy(),
            photo_iou=np.array(self._photo_iou),
        )


def _shared_and_either(confusion):
    """Returns the pixels of each class that both maps have, and that one has."""
    shared = confusion.diagonal()
    return shared, confusion.sum(axis=0) + confusion.sum(axis=1) - shared
