"""Whether classes differ so much in size that the balanced accuracy leads, and it."""

import numpy as np

# The largest class of uneven ones has so many times the photos of the smallest.
UNEVEN = 3


def is_uneven(counts: np.ndarray) -> bool:
    """Returns whether the balanced accuracy leads where classes have so many photos.

    The photos to train on decide about all of a run, whichever photos test it; where
    they are not known, those that are evaluated. Classes without photos are left out.

    Args:
        counts: integers (classes,).

    Example:
        >>> import numpy as np
        >>> is_uneven(np.array([29, 0, 10])), is_uneven(np.array([30, 0, 10]))
        (False, True)
    """
    present = counts[counts > 0]
    return bool(present.max() >= UNEVEN * present.min())


def accuracies(
    labels: np.ndarray, predicted: np.ndarray, counts: np.ndarray | None
) -> dict[str, float]:
    """Returns the `accuracy` of answers, and the `balanced_accuracy` where that leads.

    `counts` are those of `is_uneven`, None where they are not known.
    """
    found = {"accuracy": float(np.mean(predicted == labels))}
    if counts is not None and is_uneven(counts):
        from sklearn.metrics import recall_score

        found["balanced_accuracy"] = float(
            recall_score(labels, predicted, labels=np.unique(labels), average="macro")
        )
    return found
