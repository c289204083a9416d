"""Principal components with reproducible signs."""

import numpy as np


def principal_components(rows, count):
    """Returns the directions in which rows differ most.

    Args:
        rows: array (rows, columns).
        count: int, how many directions; at most one less than there are rows.

    Returns:
        Tuple of the directions, float64 (count, columns), orthonormal, the largest
        entry of each positive; and of the share of the variance that each explains,
        float64 (count,).

    Example:

    >>> directions, shares = principal_components([[-2, 0], [2, 0], [0, 1], [0, -1]], 1)
    >>> directions, shares
    (array([[1., 0.]]), array([0.8]))
    """
    rows = np.asarray(rows, "float64")
    centred = rows - rows.mean(axis=0)
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    largest = np.take_along_axis(
        directions, np.abs(directions).argmax(axis=1)[:, None], axis=1
    )
    directions = directions * np.sign(largest)
    count = min(count, len(rows) - 1)
    shares = values**2 / np.sum(values**2)
    return directions[:count], shares[:count]
