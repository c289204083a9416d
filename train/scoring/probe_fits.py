"""The ways of fitting a probe, each from features and labels to kernels and biases.

Labels are integers (photos,) from 0 to classes - 1, each of which occurs. Features are
brought to mean 0 and deviation 1 in the fit, and what comes back is for features as
they are.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from train.scoring.folds import folds_of
from train.scoring.temperature import fitted_temperature, log_losses

# big_vision's `evaluators/fewshot_lsr.py`.
RIDGE_L2 = 2.0**10
EPSILON = 1e-5
_CONSTANT = 100.0
# The logistic probe is the mean of these, beside the sum of the photos' losses. On 25
# to 1,000 photos of 5 and 100 classes the best is around 100; stronger ones leave rare
# classes unanswered.
LOGISTIC_L2 = (300.0, 100.0, 30.0, 10.0, 3.0)
# The log loss in folds is within 0.001 of that of the exact minimum.
_LOGISTIC_STEPS, _LOGISTIC_TOLERANCE = 200, 5e-4
_ROWS = 8192
# From weak to strong; the last one is that of classes of one photo each.
LDA_SHRINKAGES = (0.1, 0.3, 0.5, 0.7, 0.9, 0.95)
# One fold of more photos than this is enough to choose by.
_ONE_FOLD = 20_000
_MLP_UNITS, _MLP_L2, _MLP_STEPS, _MLP_BATCH = 256, 3e-3, 1000, 64


class Standard:
    """Features with mean 0 and deviation 1, and kernels for them as they were.

    Constant features count as 0, also where they are another number later.
    """

    def __init__(self, features: np.ndarray):
        self.mean = features.mean(axis=0, dtype=np.float64)
        deviation = features.std(axis=0, dtype=np.float64)
        varies = np.ptp(features, axis=0) > 0
        self.scale = np.where(varies, 1 / (deviation + EPSILON), 0.0)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Returns the features in float64."""
        return (features - self.mean) * self.scale

    def folded(self, kernel: np.ndarray, bias: np.ndarray) -> tuple:
        """Returns the kernel and the bias for features as they are."""
        kernel = self.scale[:, None] * kernel
        return kernel, bias - self.mean @ kernel


def with_absent(
    fitted: tuple[np.ndarray, np.ndarray],
    present: np.ndarray,
    classes: int,
    photos: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and bias of all classes, of those of the `present` ones.

    The logit of another is the mean of theirs, less the logarithm of the number of
    photos that the fit had: it is never answered, and not ruled out.
    """
    kernel, bias = fitted
    if len(present) == classes:
        return fitted
    of_all = np.tile(kernel.mean(axis=1, keepdims=True), classes)
    biases = np.full(classes, bias.mean() - np.log(photos + 1))
    of_all[:, present], biases[present] = kernel, bias
    return of_all, biases


def ridge(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple:
    """Fits least squares with targets 1 for the class and -1 for the others.

    With a constant feature large enough that the penalty hardly touches the bias. As in
    big_vision, `evaluators/fewshot_lsr.py`.
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(axis=0)
    deviation = features.std(axis=0) + EPSILON
    inputs = np.pad(
        (features - mean) / deviation, ((0, 0), (0, 1)), constant_values=_CONSTANT
    )
    *kernel, bias = solve_ridge(inputs, 2 * np.eye(classes)[labels] - 1, RIDGE_L2)
    kernel = np.array(kernel) / deviation[:, None]
    return kernel, _CONSTANT * bias - mean @ kernel


def solve_ridge(inputs: np.ndarray, targets: np.ndarray, l2: float) -> np.ndarray:
    """Returns the weights w that minimise |inputs w - targets|^2 + l2 |w|^2.

    As in big_vision, by the eigenvectors of the smaller of the two products of the
    inputs with themselves. Shapes: (examples, size), (examples, outputs), (size,
    outputs).
    """
    examples, size = inputs.shape
    if examples >= size:
        values, vectors = np.linalg.eigh(inputs.T @ inputs)
        return vectors @ ((vectors.T @ (inputs.T @ targets)) / (values + l2)[:, None])
    values, vectors = np.linalg.eigh(inputs @ inputs.T)
    return inputs.T @ (vectors @ ((vectors.T @ targets) / (values + l2)[:, None]))


def logistic(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple:
    """Fits multinomial logistic regression, the mean of several strengths of L2.

    The mean of the logits is one linear classifier. Up to twenty photos per class no
    single strength can be chosen by cross-validation.
    """
    standard = Standard(features)
    solved = solve_logistic(standard(features), labels, classes, LOGISTIC_L2)
    kernel, bias = (np.mean(parts, axis=0) for parts in zip(*solved, strict=True))
    return standard.folded(kernel, bias)


def solve_logistic(
    inputs: np.ndarray, labels: np.ndarray, classes: int, strengths: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns kernel and bias of logistic regressions, one for each strength of L2.

    They minimise the sum of cross-entropies + l2 / 2 |kernel|^2, from the strongest to
    the weakest, each from where the line through the two before it leads. The inputs
    are turned to their main axes, and each of these is scaled by its curvature at the
    start, so that few steps are needed.
    """
    from scipy.optimize import minimize

    examples, size = inputs.shape
    values, vectors = np.linalg.eigh(inputs.T @ inputs / examples)
    # The bias is a last row of the weights, for an input of 1.
    values = np.append(np.maximum(values, 0), 1.0)[:, None]
    turned = np.pad(inputs @ vectors, ((0, 0), (0, 1)), constant_values=1.0)
    turned = turned.astype(np.float32)
    penalised = np.append(np.ones(size), 0.0)[:, None]
    before = weights = np.zeros((size + 1, classes))
    solved = []
    for strength in sorted(strengths, reverse=True):
        l2 = strength / examples * penalised  # beside the mean
        scale = np.sqrt(values * _curvature(turned, weights) + l2)

        def loss(scaled, scale=scale, l2=l2):
            weights = scaled.reshape(-1, classes) / scale
            value, slopes = _cross_entropy(turned, labels, weights)
            value += np.sum(l2 * weights**2) / 2
            return value, ((slopes + l2 * weights) / scale).ravel()

        start = scale * (2 * weights - before)
        minimum = minimize(
            loss,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": _LOGISTIC_STEPS,
                "gtol": _LOGISTIC_TOLERANCE,
                "ftol": 0,
            },
        )
        before, weights = weights, minimum.x.reshape(-1, classes) / scale
        solved.append((vectors @ weights[:-1], weights[-1]))
    return solved


def _curvature(inputs, weights):
    """Returns the mean over photos and classes of p (1 - p), by the probabilities p."""
    from scipy.special import softmax

    odds = softmax(inputs @ weights.astype(np.float32), axis=1)
    return np.mean(odds * (1 - odds), dtype=np.float64) + EPSILON


def _cross_entropy(inputs, labels, weights):
    """Returns the mean cross-entropy and its gradient."""
    weights = weights.astype(np.float32)
    value, slopes = 0.0, np.zeros(weights.shape)
    # The logits of some rows stay in the processor's cache.
    for begin in range(0, len(inputs), _ROWS):
        rows, truth = inputs[begin : begin + _ROWS], labels[begin : begin + _ROWS]
        numbers = np.arange(len(rows))
        logits = rows @ weights
        logits -= logits.max(axis=1, keepdims=True)
        value -= logits[numbers, truth].sum(dtype=np.float64)
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1, keepdims=True)
        value += np.log(sums).sum(dtype=np.float64)
        logits /= sums
        logits[numbers, truth] -= 1
        slopes += rows.T @ logits
    return value / len(inputs), slopes / len(inputs)


def lda(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    groups: ArrayLike | None = None,
) -> tuple:
    """Fits linear discriminant analysis, with one shrunk covariance of all classes.

    The shrinkage, towards the identity times the mean variance, is the one of the least
    log loss in folds, once a temperature has scaled the logits, which divides those of
    the probe too: with few photos densities are up to a hundred times too sure, more
    with less shrinkage. `groups` of photos are in one fold.
    """
    standard = Standard(features)
    inputs = standard(features)
    shrinkage, divisor = _best_shrinkage(inputs, labels, groups)
    [(kernel, bias)] = solve_lda(inputs, labels, classes, [shrinkage])
    return standard.folded(kernel / divisor, bias / divisor)


def solve_lda(
    inputs: np.ndarray, labels: np.ndarray, classes: int, shrinkages: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns kernel and bias of discriminant analyses, one for each shrinkage.

    The covariance is that of what the inputs differ from the mean of their class; where
    they do not differ, as with one photo per class, it is the identity.
    """
    counts = np.bincount(labels, minlength=classes)
    order = np.argsort(labels, kind="stable")
    sums = np.add.reduceat(inputs[order], np.cumsum(counts) - counts)
    means = sums / counts[:, None]
    residuals = inputs - means[labels]
    covariance = residuals.T @ residuals / max(len(labels) - classes, 1)
    values, vectors = np.linalg.eigh(covariance)
    values = np.maximum(values, 0)
    turned, variance = vectors.T @ means.T, values.mean()
    solved = []
    for shrinkage in shrinkages:
        shrunk = (1 - shrinkage) * values + shrinkage * variance
        scale = 1 / shrunk if variance > 0 else np.ones(len(values))
        kernel = vectors @ (scale[:, None] * turned)
        bias = np.log(counts / len(labels)) - np.sum(means.T * kernel, axis=0) / 2
        solved.append((kernel, bias))
    return solved


def _best_shrinkage(inputs, labels, groups):
    """Returns the best of `LDA_SHRINKAGES` in folds, and its temperature."""
    shrinkages, judged, logits = LDA_SHRINKAGES, [], [[] for _ in LDA_SHRINKAGES]
    if groups is not None and len(np.unique(groups)) < 2:
        return shrinkages[-1], 1.0
    fold = folds_of(labels, groups)
    folds = 1 if len(labels) > _ONE_FOLD else fold.max() + 1
    for number in range(folds):
        rest = fold != number
        present, places = np.unique(labels[rest], return_inverse=True)
        # A photo of a class that only this fold has says nothing.
        here = ~rest & np.isin(labels, present)
        judged.append(labels[here])
        solved = solve_lda(inputs[rest], places, len(present), shrinkages)
        for fitted, own in zip(solved, logits, strict=True):
            kernel, bias = with_absent(fitted, present, labels.max() + 1, rest.sum())
            own.append(inputs[here] @ kernel + bias)
    truth = np.concatenate(judged)
    if not len(truth):
        return shrinkages[-1], 1.0
    scaled = [_scaled_loss(np.concatenate(own), truth) for own in logits]
    best = int(np.argmin([loss for loss, _ in scaled]))
    return shrinkages[best], scaled[best][1]


def _scaled_loss(logits, labels):
    """Returns the log loss of logits that a temperature has scaled, and that."""
    divisor = fitted_temperature(logits, labels)
    return log_losses(logits / divisor, labels).mean(), divisor


def mlp(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> tuple:
    """Fits a perceptron with one hidden layer of ReLU.

    Returns kernel and bias of the hidden layer, and kernel and bias of the logits.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    standard = Standard(features)
    # Many photos come in larger batches: ten passes in as many steps as few get.
    batch = min(max(_MLP_BATCH, len(labels) // 100), len(labels))
    steps = -(-len(labels) // batch)
    classifier = MLPClassifier(
        _MLP_UNITS,
        # scikit-learn divides it by the size of a batch.
        alpha=_MLP_L2 * batch,
        batch_size=batch,
        max_iter=max(_MLP_STEPS // steps, 10),
        random_state=seed,
    )
    with warnings.catch_warnings():
        # The number of steps is what ends it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(standard(features).astype(np.float32), labels)
    (hidden, kernel), (hidden_bias, bias) = classifier.coefs_, classifier.intercepts_
    if classes == 2:  # scikit-learn has one logit, of the second class
        kernel = np.pad(kernel, ((0, 0), (1, 0)))
        bias = np.pad(bias, (1, 0))
    hidden = standard.folded(hidden.astype(np.float64), hidden_bias)
    return hidden, (kernel, bias)
