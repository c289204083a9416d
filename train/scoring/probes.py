"""Probes: small classifiers on features of photos, fitted in seconds."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from train.common.threads import one_thread
from train.scoring import probe_fits
from train.scoring.folds import folds_of
from train.scoring.probe_kinds import KINDS
from train.scoring.temperature import temperature
from zoo.network.head import softmax


@dataclasses.dataclass(frozen=True)
class Linear:
    """A linear classifier: `logits = features @ kernel + bias`.

    Attributes:
        kernel: float64 (size, classes).
        bias: float64 (classes,).
    """

    kernel: np.ndarray
    bias: np.ndarray

    @property
    def size(self) -> int:
        """How many features it reads."""
        return len(self.kernel)

    def head_inputs(self, features: np.ndarray) -> np.ndarray:
        """Returns what its last layer reads: the features."""
        return features

    def widened(self, size: int) -> "Linear":
        """Returns a classifier of more features, which it does not read."""
        return Linear(np.pad(self.kernel, ((0, size - self.size), (0, 0))), self.bias)

    def logits(self, features: ArrayLike) -> np.ndarray:
        """Returns float64 (photos, classes) of features (photos, size)."""
        return np.asarray(features, np.float64) @ self.kernel + self.bias

    def scaled(self, factor: float) -> "Linear":
        """Returns a classifier whose logits are `factor` times these."""
        return Linear(factor * self.kernel, factor * self.bias)

    def shifted(self, shift: ArrayLike) -> "Linear":
        """Returns a classifier with `shift`, (classes,), added to the logits."""
        return Linear(self.kernel, self.bias + shift)


@dataclasses.dataclass(frozen=True)
class Mlp:
    """A classifier with one hidden layer of ReLU.

    Attributes:
        hidden: `Linear` from features to the hidden layer.
        output: `Linear` from there to the classes.
    """

    hidden: Linear
    output: Linear

    @property
    def size(self) -> int:
        """How many features it reads."""
        return self.hidden.size

    def head_inputs(self, features: ArrayLike) -> np.ndarray:
        """Returns what its last layer reads: the hidden layer, (photos, units)."""
        return np.maximum(self.hidden.logits(features), 0)

    def widened(self, size: int) -> "Mlp":
        """Returns a classifier of more features, which it does not read."""
        return Mlp(self.hidden.widened(size), self.output)

    def logits(self, features: ArrayLike) -> np.ndarray:
        """Returns float64 (photos, classes) of features (photos, size)."""
        return self.output.logits(self.head_inputs(features))

    def scaled(self, factor: float) -> "Mlp":
        """Returns a classifier whose logits are `factor` times these."""
        return Mlp(self.hidden, self.output.scaled(factor))

    def shifted(self, shift: ArrayLike) -> "Mlp":
        """Returns a classifier with `shift`, (classes,), added to the logits."""
        return Mlp(self.hidden, self.output.shifted(shift))


Probe = Linear | Mlp


def fit(
    kind: str,
    features: ArrayLike,
    labels: ArrayLike,
    classes: int,
    *,
    groups: ArrayLike | None = None,
    seed: int = 0,
) -> Probe:
    """Fits a probe.

    Args:
        kind: str, one of `KINDS`: `"ridge"`, least squares as in big_vision's few-shot
            probe, whose outputs are no logits until a temperature scales them;
            `"logistic"`, the mean of five strengths of L2; `"lda"`, linear discriminant
            analysis with a shrunk covariance; `"mlp"`, a hidden layer.
        features: floats (photos, size).
        labels: integers (photos,) from 0 to `classes` - 1.
        classes: int. One without photos is never answered, and not ruled out: its logit
            is the mean of the others, less the logarithm of the number of photos.
        groups: numbers or texts (photos,); photos of one group, such as copies of one
            photo, are in one fold where folds choose, as the shrinkage of `"lda"`.
        seed: int, of the perceptron.

    Returns:
        `Linear`, or of the perceptron `Mlp`, for features as they are.

    Raises:
        ValueError: the kind is unknown, or features and labels do not fit each other.

    Source:
        Ridge: big_vision, `evaluators/fewshot_lsr.py`. Shrinkage: Friedman, Regularized
        Discriminant Analysis (1989).

    Example:
        >>> features = [[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.8, 0.1]]
        >>> probe = fit("lda", features, [0, 0, 1, 1], classes=2)
        >>> probe.logits([[0.2, 0.9]]).argmax(axis=1)
        array([0])
    """
    features, labels = _checked(kind, features, labels, classes)
    present, places = np.unique(labels, return_inverse=True)
    count, hidden = len(present), None
    with one_thread():
        if count == 1:
            fitted = np.zeros((features.shape[1], 1)), np.zeros(1)
        elif kind == "lda":
            fitted = probe_fits.lda(features, places, count, groups)
        elif kind == "mlp":
            hidden, fitted = probe_fits.mlp(features, places, count, seed)
        else:
            fitted = getattr(probe_fits, kind)(features, places, count)
    linear = Linear(*probe_fits.with_absent(fitted, present, classes, len(labels)))
    return linear if hidden is None else Mlp(Linear(*hidden), linear)


def _checked(kind, features, labels, classes):
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is unknown: choose from {', '.join(KINDS)}.")
    features, labels = np.asarray(features), np.asarray(labels)
    if features.ndim != 2 or labels.shape != features.shape[:1] or not len(labels):
        raise ValueError(
            f"Features of shape {features.shape} and labels of shape {labels.shape} do "
            "not fit: pass (photos, size) and (photos,), of one photo at least."
        )
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"Labels are {labels.min()} to {labels.max()}: pass numbers from 0 to "
            f"{classes - 1}, or another number of classes."
        )
    return features, labels


def balanced(probe: Probe, labels: ArrayLike, classes: int) -> Probe:
    """Returns a probe whose answers do not favour classes of many photos.

    The logarithm of the share that each class has of the labels is taken off its logit.
    The logits must be those of probabilities: scale them by a temperature first.

    Source:
        Menon et al., Long-tail learning via logit adjustment, arXiv 2007.07314.
    """
    return probe.shifted(balancing(np.bincount(labels, minlength=classes)))


def balancing(counts: np.ndarray) -> np.ndarray:
    """Returns what `balanced` adds to logits, (classes,), by the photos of classes."""
    # A class without photos is not answered now either.
    return -np.log(np.maximum(counts, 1) / np.sum(counts))


def average(probes: Sequence[Linear], weights: Sequence[float] | None = None) -> Linear:
    """Returns the linear classifier whose logits are the mean of several.

    Logits of different kinds have different scales: bring them to probabilities by a
    `temperature` first.
    """
    return Linear(
        np.average([probe.kernel for probe in probes], axis=0, weights=weights),
        np.average([probe.bias for probe in probes], axis=0, weights=weights),
    )


def mixed(linear: Linear, mlp: Mlp, share: float) -> Probe:
    """Returns one classifier that averages a linear one and a perceptron.

    It is a perceptron again, so that a network computes its features once: a linear
    logit z is relu(z) - relu(-z), of two more hidden units.

    Args:
        linear: `Linear`, on the same features.
        mlp: `Mlp`.
        share: float, that of the perceptron's logits, from 0 to 1.
    """
    if share in (0, 1):
        return mlp if share else linear
    classes = np.eye(len(linear.bias))
    units = [mlp.hidden, linear.scaled(1 - share), linear.scaled(share - 1)]
    output = mlp.output.scaled(share)
    return Mlp(
        Linear(
            np.concatenate([one.kernel for one in units], axis=1),
            np.concatenate([one.bias for one in units]),
        ),
        Linear(np.concatenate([output.kernel, classes, -classes]), output.bias),
    )


def out_of_fold_logits(
    kind: str,
    features: ArrayLike,
    labels: ArrayLike,
    classes: int | None = None,
    *,
    groups: ArrayLike | None = None,
    fitted_on: ArrayLike | None = None,
    folds: int = 5,
    seed: int = 0,
) -> np.ndarray:
    """Returns logits (photos, classes) of probes that were not fitted on the photo.

    Args:
        kind: see `fit`.
        features: see `fit`.
        labels: see `fit`.
        classes: int, by default as many as the labels have.
        groups: numbers or texts (photos,); photos of one group, such as copies of one
            photo, are in one fold.
        fitted_on: bools (photos,), which photos probes are fitted on; by default all.
        folds: int, see `train.scoring.folds.folds_of`.
        seed: int, of the folds and the perceptron.
    """
    classes = np.max(labels) + 1 if classes is None else classes
    features, labels = _checked(kind, features, labels, classes)
    fold = folds_of(labels, groups, folds, seed)
    usable = np.ones(len(labels), bool) if fitted_on is None else np.asarray(fitted_on)
    logits = np.empty((len(labels), classes))
    for number in range(fold.max() + 1):
        here = fold == number
        rest = usable & ~here
        of_rest = None if groups is None else np.asarray(groups)[rest]
        probe = fit(
            kind, features[rest], labels[rest], classes, groups=of_rest, seed=seed
        )
        logits[here] = probe.logits(features[here])
    return logits


def out_of_fold(
    kind: str,
    features: ArrayLike,
    labels: ArrayLike,
    classes: int | None = None,
    *,
    groups: ArrayLike | None = None,
    **settings: Any,
) -> np.ndarray:
    """Returns probabilities (photos, classes) by probes not fitted on the photo.

    The arguments are those of `out_of_fold_logits`; a temperature makes probabilities
    of its logits where it lowers the log loss.
    """
    logits = out_of_fold_logits(
        kind, features, labels, classes, groups=groups, **settings
    )
    return softmax(logits / temperature(logits, labels, groups))
