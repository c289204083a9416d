"""Boundaries between classes in maps: where they are, and how well answers meet them.

Maps are integers (height, width), a class for each pixel or `ignored`.
"""

import math

import numpy as np

# The distance up to which boundaries meet, as a share of the diagonal: Csurka et al.,
# What is a good evaluation measure for semantic segmentation? (BMVC 2013), section 3.
TOLERANCE = 0.0075


def edges(numbers: np.ndarray, ignored: int) -> np.ndarray:
    """Returns bools (height, width): the pixels beside one of another class.

    Beside are above, below, left and right. Nothing lies between ignored pixels and
    classes, nor at the border of the photo.

    Example:
        >>> edges(np.array([[1, 1, 2, 255, 3]]), 255).tolist()
        [[False, True, True, False, False]]
    """
    found = np.zeros(numbers.shape, bool)
    is_counted = numbers != ignored
    # Transposed views write into the same array.
    for own, counted, here in (
        (numbers, is_counted, found),
        (numbers.T, is_counted.T, found.T),
    ):
        differ = (own[1:] != own[:-1]) & counted[1:] & counted[:-1]
        here[1:] |= differ
        here[:-1] |= differ
    return found


def pixels_within(shape: tuple[int, ...], tolerance: float = TOLERANCE) -> float:
    """Returns the tolerance in pixels for a photo of shape (height, width)."""
    return tolerance * math.hypot(*shape)


def band(found: np.ndarray, distance: float) -> np.ndarray:
    """Returns bools (height, width): the pixels up to a distance from `edges`."""
    from scipy.ndimage import distance_transform_edt

    if not found.any():
        return found
    return distance_transform_edt(~found) <= distance


def boundary_f1(
    truth: np.ndarray, answer: np.ndarray, distance: float, ignored: int
) -> dict[int, float]:
    """Returns how well the boundaries of each class meet, those that have any.

    Precision is the share of the pixels at a class's boundary in `answer` that lie up
    to `distance` pixels from its boundary in `truth`, recall that of the truth's from
    the answer's, and F1 their harmonic mean: 1 where all meet, 0 where none do or one
    map alone has the class beside another.

    Source: Csurka et al., see `TOLERANCE`.

    Example:
        >>> truth = np.array([[1, 1, 2, 2, 2, 2]])
        >>> answer = np.array([[1, 1, 1, 2, 2, 2]])
        >>> boundary_f1(truth, answer, 1.0, 255), boundary_f1(truth, answer, 0.5, 255)
        ({1: 1.0, 2: 1.0}, {1: 0.0, 2: 0.0})
    """
    of_truth, of_answer = (_points(one, ignored) for one in (truth, answer))
    found = {}
    for number in sorted(of_truth.keys() | of_answer.keys()):
        own, answered = of_truth.get(number), of_answer.get(number)
        if own is None or answered is None:
            found[number] = 0.0
            continue
        precision = _share_near(answered, own, distance)
        recall = _share_near(own, answered, distance)
        found[number] = 2 * precision * recall / max(precision + recall, 1e-12)
    return found


def _points(numbers, ignored):
    """Returns the places (pixels, 2) at the boundary of each class by its number."""
    is_edge = edges(numbers, ignored)
    places, classes = np.argwhere(is_edge), numbers[is_edge]
    return {number: places[classes == number] for number in np.unique(classes).tolist()}


def _share_near(places, others, distance):
    """Returns the share of places that have another one up to a distance away."""
    from scipy.spatial import KDTree

    # The bound itself would not count.
    bound = np.nextafter(distance, np.inf)
    nearest, _ = KDTree(others).query(places, distance_upper_bound=bound)
    return float(np.isfinite(nearest).mean())
