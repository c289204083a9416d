"""The photos whose labels would help a model most: uncertain ones, and diverse."""

import numpy as np

from train.predict.answers import Answer

# The most uncertain photos among which diverse ones are chosen, and the numbers of
# their probabilities and features that are kept at most.
_POOL, _POOL_NUMBERS = 10_000, 2**24
# Photos whose gradients are shorter, beside the longest, are like those chosen before.
_LEAST = 1e-9


class Asking:
    """Collects photos, and chooses `count` of them to be labelled.

    The gradient of the last layer, if the answer were right, is long where the model is
    uncertain, and alike for photos that are alike. Each photo that is chosen is the one
    whose gradient is the longest without its parts along those chosen before: the
    greedy choice of the most probable set of a determinantal point process. Only the
    gradients of the most uncertain photos are kept, so that memory does not grow with
    the number of photos.

    Source: Ash et al., Deep Batch Active Learning by Diverse, Uncertain Gradient Lower
    Bounds (2020), section 3, https://arxiv.org/abs/1906.03671; Chen, Zhang and Zhou,
    Fast Greedy MAP Inference for Determinantal Point Process (2018), algorithm 1,
    https://arxiv.org/abs/1709.05135.
    """

    def __init__(self, count):
        self.count = count
        self._answers, self._parts = [], []

    def add(
        self, answers: list[Answer], probabilities: np.ndarray, features: np.ndarray
    ) -> None:
        """Adds photos with their probabilities (n, classes), features (n, size)."""
        # The gradient is the product of these two, which is never formed.
        errors = probabilities.astype("float32")
        errors[np.arange(len(errors)), errors.argmax(axis=1)] -= 1
        self._answers += answers
        self._parts.append((errors, features.astype("float32")))
        size = min(_POOL, _POOL_NUMBERS // (errors.shape[1] + features.shape[1]))
        most = max(size, self.count)
        if len(self._answers) > 2 * most:
            self._keep(most)

    def chosen(self) -> list[Answer]:
        """Returns the chosen photos, the most helpful first."""
        if not self._answers:
            return []
        errors, features = map(np.concatenate, zip(*self._parts, strict=True))
        return [self._answers[place] for place in _chosen(errors, features, self.count)]

    def _keep(self, most):
        errors, features = map(np.concatenate, zip(*self._parts, strict=True))
        kept = np.sort(np.argsort(-_squares(errors, features), kind="stable")[:most])
        self._answers = [self._answers[place] for place in kept]
        self._parts = [(errors[kept], features[kept])]


def _squares(errors, features):
    """Returns the squared lengths of the gradients."""
    return (errors**2).sum(axis=1) * (features**2).sum(axis=1)


def _chosen(errors, features, count):
    """Returns the places of `count` gradients, or of all if there are fewer."""
    count = min(count, len(errors))
    squares = _squares(errors, features).astype("float64")
    left, places = squares.copy(), []
    # A row for each chosen gradient: the parts of all along what is new in it.
    parts = np.zeros((count, len(errors)))
    while len(places) < count:
        place = int(left.argmax())
        if left[place] <= _LEAST * squares.max():
            break
        alike = (errors @ errors[place]) * (features @ features[place])
        row = parts[: len(places)]
        part = (alike - row[:, place] @ row) / np.sqrt(left[place])
        parts[len(places)] = part
        places.append(place)
        left = left - part**2
        left[places] = -np.inf
    others = np.setdiff1d(np.argsort(-squares, kind="stable"), places, True)
    order = np.argsort(-squares[others], kind="stable")
    return places + others[order][: count - len(places)].tolist()
