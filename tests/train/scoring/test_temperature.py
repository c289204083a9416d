"""Temperatures, and where they are left out."""

import numpy as np
import pytest
from scipy.special import log_softmax

from train.scoring.temperature import log_losses, sharpening, temperature
from zoo.network.head import softmax


def drawn(photos, classes=4, seed=0):
    """Logits, and labels that are drawn with their probabilities."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(photos, classes), scale=2)
    odds = softmax(logits).cumsum(axis=1)
    return logits, (rng.uniform(size=(photos, 1)) > odds).sum(axis=1).clip(0, 3)


@pytest.mark.parametrize("factor", [0.02, 0.4, 5.0, 90.0])
def test_the_temperature_of_logits_that_were_scaled(factor):
    logits, labels = drawn(4000)
    found = temperature(factor * logits, labels)
    assert found == pytest.approx(factor, rel=0.1)
    before, after = (
        log_losses(factor * logits / one, labels).mean() for one in (1, found)
    )
    assert after < before


def test_a_temperature_that_does_not_help_is_left_out():
    assert temperature(*drawn(500)) == 1
    # On so few the best temperature is far from 1, and helps none of the others.
    logits, labels = drawn(12, seed=3)
    assert temperature(logits, labels) == 1


def test_the_temperature_of_a_few_right_answers_is_not_zero():
    logits = 2 * np.eye(3)[[0, 1, 2] * 5]
    found = temperature(logits, [0, 1, 2] * 5)
    assert 0.2 < found < 0.8


def test_log_losses_are_those_of_the_labels():
    logits, labels = drawn(20)
    expected = -log_softmax(logits, axis=1)[np.arange(20), labels]
    np.testing.assert_allclose(log_losses(logits, labels), expected)
    assert np.isfinite(log_losses(1e6 * logits, labels)).all()


@pytest.mark.parametrize("photos", [100, 2000])
def test_an_average_of_answers_that_are_sure_enough_is_sharpened(photos):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 4000)
    # Two views of each photo, by each of which the logits are exactly right.
    views = np.eye(3)[labels] + rng.normal(size=(2, 4000, 3))
    logits, here = views.mean(axis=0), np.arange(4000) < photos
    found = sharpening(logits[here], labels[here])
    # Both views together would be exactly right as their sum.
    assert 0.5 < found < 0.95
    losses = log_losses(logits[~here] / found, labels[~here])
    assert losses.mean() < log_losses(logits[~here], labels[~here]).mean()
    assert sharpening(2 * logits[here], labels[here]) == pytest.approx(1, abs=0.1)


def test_an_average_that_is_too_sure_is_left():
    logits, labels = drawn(500)
    assert sharpening(5 * logits, labels) == 1
