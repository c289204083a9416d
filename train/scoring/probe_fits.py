"""The ways of fitting a probe, each from features and labels to kernels and biases.

Labels are integers (photos,) from 0 to classes - 1, each of which occurs. Features are
brought to mean 0 and deviation 1 in the fit, and what comes back is for features as
they are.
"""

import warnings
from collections.abc import Sequence

import numpy as np

# big_vision's `evaluators/fewshot_lsr.py`.
RIDGE_L2 = 2.0**10
EPSILON = 1e-5
_CONSTANT = 100.0
# The logistic probe is the mean of these: L2 per photo, of half the kernel's square.
LOGISTIC_L2 = (1.0, 0.1, 0.01, 0.001, 0.0001)
_LOGISTIC_STEPS, _LOGISTIC_TOLERANCE = 200, 1e-5
_ROWS = 8192
_MLP_UNITS, _MLP_L2, _MLP_STEPS, _MLP_BATCH = 256, 1e-3, 2000, 64


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

    They minimise the mean cross-entropy + l2 / 2 |kernel|^2, from the strongest to the
    weakest, each from where the one before ended. The inputs are turned to their main
    axes and each of these is scaled by its curvature, so that few steps are needed.
    """
    from scipy.optimize import minimize

    examples, size = inputs.shape
    values, vectors = np.linalg.eigh(inputs.T @ inputs / examples)
    turned = (inputs @ vectors).astype(np.float32)
    kernel, bias = np.zeros((size, classes)), np.zeros(classes)
    solved = []
    for l2 in sorted(strengths, reverse=True):
        curvature = np.sqrt(np.maximum(values, 0) / classes + l2)[:, None]

        def loss(parameters, curvature=curvature, l2=l2):
            scaled, bias = parameters[:-classes], parameters[-classes:]
            kernel = scaled.reshape(size, classes) / curvature
            value, of_kernel, of_bias = _cross_entropy(turned, labels, kernel, bias)
            value += l2 / 2 * np.sum(kernel**2)
            of_scaled = (of_kernel + l2 * kernel) / curvature
            return value, np.concatenate([of_scaled.ravel(), of_bias])

        start = np.concatenate([(kernel * curvature).ravel(), bias])
        found = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": _LOGISTIC_STEPS,
                "gtol": _LOGISTIC_TOLERANCE,
                "ftol": 0,
            },
        )
        kernel = found.x[:-classes].reshape(size, classes) / curvature
        bias = found.x[-classes:]
        solved.append((vectors @ kernel, bias))
    return solved


def _cross_entropy(inputs, labels, kernel, bias):
    """Returns the mean cross-entropy and its gradients, of the kernel and the bias."""
    kernel, bias = kernel.astype(np.float32), bias.astype(np.float32)
    value, of_kernel, of_bias = 0.0, np.zeros(kernel.shape), np.zeros(bias.shape)
    # The logits of some rows stay in the processor's cache.
    for begin in range(0, len(inputs), _ROWS):
        rows, truth = inputs[begin : begin + _ROWS], labels[begin : begin + _ROWS]
        numbers = np.arange(len(rows))
        logits = rows @ kernel + bias
        logits -= logits.max(axis=1, keepdims=True)
        value -= logits[numbers, truth].sum(dtype=np.float64)
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1, keepdims=True)
        value += np.log(sums).sum(dtype=np.float64)
        logits /= sums
        logits[numbers, truth] -= 1
        of_kernel += rows.T @ logits
        of_bias += logits.sum(axis=0)
    return tuple(part / len(inputs) for part in (value, of_kernel, of_bias))


def lda(features: np.ndarray, labels: np.ndarray, classes: int) -> tuple:
    """Fits linear discriminant analysis, with one shrunk covariance of all classes.

    The shrinkage is Ledoit and Wolf's, of what the features differ from the mean of
    their class. Where each class has one photo the covariance is the identity.
    """
    from sklearn.covariance import ledoit_wolf_shrinkage

    standard = Standard(features)
    inputs = standard(features)
    counts = np.bincount(labels, minlength=classes)
    means = np.zeros((classes, inputs.shape[1]))
    np.add.at(means, labels, inputs)
    means /= counts[:, None]
    inputs -= means[labels]
    size = inputs.shape[1]
    covariance = inputs.T @ inputs / max(len(inputs) - classes, 1)
    variance = np.trace(covariance) / size
    if variance > 0:
        shrinkage = ledoit_wolf_shrinkage(inputs, assume_centered=True)
        covariance *= 1 - shrinkage
        covariance.flat[:: size + 1] += shrinkage * variance
    else:
        covariance = np.eye(size)
    kernel = np.linalg.solve(covariance, means.T)
    bias = np.log(counts / len(labels)) - np.sum(means.T * kernel, axis=0) / 2
    return standard.folded(kernel, bias)


def mlp(features: np.ndarray, labels: np.ndarray, classes: int, seed: int) -> tuple:
    """Fits a perceptron with one hidden layer of ReLU.

    Returns kernel and bias of the hidden layer, and those of the logits.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    standard = Standard(features)
    batch = min(_MLP_BATCH, len(labels))
    steps = -(-len(labels) // batch)
    classifier = MLPClassifier(
        _MLP_UNITS,
        alpha=_MLP_L2 * len(labels),
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
    return *standard.folded(hidden.astype(np.float64), hidden_bias), kernel, bias
