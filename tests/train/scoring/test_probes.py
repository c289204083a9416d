"""Probes: each against another implementation, and with what is hard to fit."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from scipy.stats import multivariate_normal
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier

from train.scoring import probe_fits, probe_kinds, probes

# Fewer examples than features, as many, more.
SHAPES = [(7, 20), (20, 20), (21, 20), (200, 20)]


def problem(examples, size, classes=5, seed=0):
    """Features around the mean of their class, of different scales, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(examples) % classes)
    means = np.random.default_rng(99).normal(size=(classes, size))
    features = means[labels] + rng.normal(size=(examples, size))
    return features * np.linspace(0.5, 3, size) + 2, labels


def standardised(features):
    return (features - features.mean(0)) / (features.std(0) + 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("l2", [1e-3, probe_fits.RIDGE_L2])
def test_the_solution_of_ridge_is_that_of_scikit_learn(shape, l2):
    inputs, _ = problem(*shape)
    targets = np.random.default_rng(1).normal(size=(shape[0], 3))
    judge = Ridge(alpha=l2, fit_intercept=False, solver="svd")
    found = probe_fits.solve_ridge(inputs, targets, l2)
    expected = judge.fit(inputs, targets).coef_
    np.testing.assert_allclose(found.T, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", [(40, 60), (400, 40)])
def test_ridge_by_the_definition(shape):
    """Whitening, the constant 100 and targets of -1 and 1, by another way."""
    features, labels = problem(*shape)
    others, _ = problem(300, shape[1], seed=3)
    features[:, 3] = others[:, 3] = 5.0  # without variance
    mean, deviation = features.mean(0), features.std(0) + 1e-5
    judge = Ridge(alpha=1024.0, fit_intercept=False, solver="cholesky")
    judge.fit(
        np.column_stack([(features - mean) / deviation, np.full(shape[0], 100.0)]),
        np.where(np.arange(5) == labels[:, None], 1.0, -1.0),
    )
    scores = judge.predict(
        np.column_stack([(others - mean) / deviation, np.full(300, 100.0)])
    )
    found = probes.fit("ridge", features, labels, 5).logits(others)
    np.testing.assert_allclose(found, scores, atol=1e-9)


@pytest.mark.parametrize("shape", [(30, 40, 5), (300, 20, 5), (400, 30, 40)])
def test_logistic_regression_is_that_of_scikit_learn(shape):
    """On other photos, to 0.003 in probabilities and 0.001 in their log loss."""
    _, size, classes = shape
    features, labels = problem(*shape)
    inputs = standardised(features)
    others, truth = problem(300, size, classes, seed=3)
    others = (others - features.mean(0)) / (features.std(0) + 1e-5)
    strengths = probe_fits.LOGISTIC_L2
    solved = probe_fits.solve_logistic(inputs, labels, classes, strengths)
    for l2, (kernel, bias) in zip(strengths, solved, strict=True):
        judge = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000)
        expected = judge.fit(inputs, labels).predict_proba(others)
        found = softmax(others @ kernel + bias, axis=1)
        np.testing.assert_allclose(found, expected, atol=3e-3)
        loss = log_loss(truth, found)
        assert loss == pytest.approx(log_loss(truth, expected), abs=1e-3)


def test_the_logistic_probe_is_the_mean_of_several_strengths():
    features, labels = problem(60, 8)
    judges = [
        LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000)
        for l2 in probe_fits.LOGISTIC_L2
    ]
    inputs = standardised(features)
    scores = [judge.fit(inputs, labels).decision_function(inputs) for judge in judges]
    expected = softmax(np.mean(scores, axis=0), axis=1)
    found = probes.fit("logistic", features, labels, 5).logits(features)
    np.testing.assert_allclose(softmax(found, axis=1), expected, atol=2e-3)


@pytest.mark.parametrize("shape", [(40, 60), (400, 20)])
def test_lda_by_the_densities_of_the_classes(shape):
    features, labels = problem(*shape)
    labels[labels == 4] = 3  # unequal priors
    inputs = standardised(features)
    means = np.stack([inputs[labels == one].mean(0) for one in range(4)])
    residuals = inputs - means[labels]
    pooled = residuals.T @ residuals / (len(labels) - 4)
    target = np.trace(pooled) / shape[1] * np.eye(shape[1])
    strengths = (0.1, 0.6)
    for shrinkage, (kernel, bias) in zip(
        strengths, probe_fits.solve_lda(inputs, labels, 4, strengths), strict=True
    ):
        covariance = (1 - shrinkage) * pooled + shrinkage * target
        scores = [
            multivariate_normal(mean, covariance).logpdf(inputs)
            + np.log(np.mean(labels == one))
            for one, mean in enumerate(means)
        ]
        expected = log_softmax(np.transpose(scores), axis=1)
        found = log_softmax(inputs @ kernel + bias, axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(("photos", "strong"), [(40, True), (4000, False)])
def test_the_shrinkage_is_that_which_folds_find_best(photos, strong, monkeypatch):
    """Few photos say little of 20 features that depend on each other, many all."""
    monkeypatch.setattr(probe_fits, "_ONE_FOLD", 1000)
    features, labels = problem(photos, 20)
    mixed = features @ np.random.default_rng(5).normal(size=(20, 20))
    inputs = standardised(mixed)
    tried = {
        shrinkage: probes.Linear(*solved)
        for shrinkage, solved in zip(
            probe_fits.LDA_SHRINKAGES,
            probe_fits.solve_lda(inputs, labels, 5, probe_fits.LDA_SHRINKAGES),
            strict=True,
        )
    }
    found = probes.fit("lda", mixed, labels, 5)
    # A temperature divides all of it.
    [chosen] = [
        shrinkage
        for shrinkage, probe in tried.items()
        if np.ptp(probe.logits(inputs) / found.logits(mixed)) < 1e-2
    ]
    assert (chosen > 0.2) == strong


@pytest.mark.parametrize("classes", [2, 3])
def test_the_perceptron_is_that_of_scikit_learn(classes, monkeypatch):
    monkeypatch.setattr(probe_fits, "_MLP_STEPS", 20)
    fitted = []

    def fit(self, *args):
        fitted.append(self)
        return original(self, *args)

    original = MLPClassifier.fit
    monkeypatch.setattr(MLPClassifier, "fit", fit)
    features, labels = problem(40, 6, classes)
    found = probes.fit("mlp", features, labels, classes).logits(features)
    [judge] = fitted
    expected = judge.predict_log_proba(standardised(features).astype("float32"))
    np.testing.assert_allclose(log_softmax(found, axis=1), expected, atol=1e-4)


@pytest.mark.parametrize("kind", probes.KINDS)
def test_what_is_hard_to_fit(kind, monkeypatch):
    """One photo a class, more features than photos, constant ones, absent classes."""
    monkeypatch.setattr(probe_fits, "_MLP_STEPS", 20)
    features, labels = problem(4, 30, classes=4)
    features[:, 5] = 7.0
    probe = probes.fit(kind, features, labels + 1, 6)
    logits = probe.logits(features)
    assert logits.shape == (4, 6)
    np.testing.assert_array_equal(logits.argmax(axis=1), labels + 1)
    features[:, 5] = 8.0
    np.testing.assert_allclose(probe.logits(features), logits, atol=1e-6)
    others = probe.logits(np.random.default_rng(1).normal(size=(500, 30), scale=9))
    assert np.isfinite(others).all()
    assert not set(others.argmax(axis=1)) & {0, 5}


def test_rare_classes_are_answered_as_often_by_a_balanced_probe():
    features, labels = problem(600, 4, classes=3)
    features = features / 3
    rare = (labels == 2) & (np.arange(600) % 10 > 0)
    few, truth = features[~rare], labels[~rare]
    probe = probes.fit("logistic", few, truth, 4)
    recalls = [
        np.mean(one.logits(features)[labels == 2].argmax(axis=1) == 2)
        for one in (probe, probes.balanced(probe, truth, 4))
    ]
    assert recalls[1] > recalls[0] + 0.05
    answers = probes.balanced(probe, truth, 4).logits(features).argmax(axis=1)
    assert set(answers) == {0, 1, 2}


@pytest.mark.parametrize("kind", probes.KINDS)
def test_one_class_is_always_answered(kind):
    probe = probes.fit(kind, np.ones((3, 2)), [1, 1, 1], 3)
    assert probe.logits(np.zeros((4, 2))).argmax(axis=1).tolist() == [1] * 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("knn", np.ones((2, 3)), [0, 1], 2), "choose from ridge, logistic, lda, mlp"),
        (("lda", np.ones((2, 3)), [0], 2), "do not fit"),
        (("lda", np.ones((0, 3)), [], 2), "one photo at least"),
        (("lda", np.ones((2, 3)), [0, 2], 2), "from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        probes.fit(*arguments)


def test_an_average_is_one_linear_classifier():
    features, labels = problem(50, 8)
    fitted = [probes.fit(kind, features, labels, 5) for kind in probe_kinds.LINEAR]
    fitted[0] = fitted[0].scaled(10.0)
    averaged = probes.average(fitted, [1, 1, 2])
    expected = np.average(
        [probe.logits(features) for probe in fitted], axis=0, weights=[1, 1, 2]
    )
    np.testing.assert_allclose(averaged.logits(features), expected, atol=1e-9)


def test_probabilities_are_of_probes_that_have_not_seen_the_photo():
    """A copy of each photo in another class: in its fold nothing points to that."""
    features, labels = problem(60, 4, classes=3)
    copies = np.concatenate([features, features])
    both = np.concatenate([labels, (labels + 1) % 3])
    groups = np.tile(np.arange(60), 2)
    found = probes.out_of_fold("lda", copies, both, groups=groups)
    assert found.shape == (120, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found[:60], found[60:], atol=1e-9)


def test_out_of_fold_probabilities_are_calibrated():
    """Outputs of ridge are between -1 and 1, and no logits by themselves."""
    features, labels = problem(300, 10, classes=3)
    found = probes.out_of_fold("ridge", features, labels)
    accuracy = np.mean(found.argmax(axis=1) == labels)
    assert accuracy > 0.9
    assert found.max(axis=1).mean() == pytest.approx(accuracy, abs=0.03)


@pytest.mark.parametrize("share", [0, 0.25, 1])
def test_a_perceptron_and_linear_probes_are_one_perceptron(share, monkeypatch):
    monkeypatch.setattr(probe_fits, "_MLP_STEPS", 20)
    features, labels = problem(60, 8)
    linear = probes.fit("ridge", features, labels, 5)
    mlp = probes.fit("mlp", features[:, :6], labels, 5).widened(8)
    found = probes.mixed(linear, mlp, share)
    expected = share * mlp.logits(features) + (1 - share) * linear.logits(features)
    np.testing.assert_allclose(found.logits(features), expected, atol=1e-9)
    assert found.size == 8
    inputs = found.head_inputs(features)
    last = found if share == 0 else found.output
    np.testing.assert_allclose(last.logits(inputs), expected, atol=1e-9)
