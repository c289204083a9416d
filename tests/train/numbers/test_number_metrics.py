"""Metrics of numbers, compared with scikit-learn's and with drawn photos; the plot."""

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from train.numbers import figures
from train.numbers.metrics import number_metrics

RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.normal(40, 10, size=150)
ANSWERS = TRUTH + RANDOM.normal(1, 4, size=150)
TRAINED = RANDOM.normal(45, 12, size=301)


def by_scikit_learn(truth, answers):
    return (
        sklearn_metrics.mean_absolute_error(truth, answers),
        sklearn_metrics.mean_squared_error(truth, answers) ** 0.5,
        sklearn_metrics.r2_score(truth, answers),
    )


def estimated(found):
    return found.mean_absolute_error, found.root_mean_squared_error, found.r2


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_errors_are_those_of_scikit_learn(offset):
    truth, answers = TRUTH + offset, ANSWERS + offset
    found = number_metrics(answers[:, None], truth)
    values = [one.value for one in estimated(found)]
    np.testing.assert_allclose(values, by_scikit_learn(truth, answers), rtol=1e-9)
    assert found.photos == 150


def test_intervals_are_those_of_drawn_photos():
    found = number_metrics(ANSWERS, TRUTH)
    draws = RANDOM.integers(150, size=(400, 150))
    drawn = [by_scikit_learn(TRUTH[own], ANSWERS[own]) for own in draws]
    ends = np.quantile(drawn, (0.025, 0.975), axis=0)
    for (low, high), one in zip(ends.T, estimated(found), strict=True):
        # The ends of 400 resamples are uncertain by about a tenth of the width.
        assert abs(one.low - low) < 0.2 * (high - low)
        assert abs(one.high - high) < 0.2 * (high - low)


@pytest.mark.parametrize("trained_on", [TRAINED, None])
def test_one_same_answer_is_of_the_photos_trained_on(trained_on):
    found = number_metrics(ANSWERS, TRUTH, trained_on)
    known = TRUTH if trained_on is None else trained_on
    assert found.median == np.median(known) and found.mean == np.mean(known)
    error = sklearn_metrics.mean_absolute_error(TRUTH, np.full(150, np.median(known)))
    assert found.absolute_error_of_median == pytest.approx(error, rel=1e-9)
    error = sklearn_metrics.mean_squared_error(TRUTH, np.full(150, np.mean(known)))
    assert found.squared_error_of_mean == pytest.approx(error**0.5, rel=1e-9)


def test_the_worst_photos_come_first():
    order = number_metrics(ANSWERS, TRUTH).worst
    assert sorted(order) == list(range(150))
    assert (np.diff(np.abs(ANSWERS - TRUTH)[order]) <= 0).all()


def test_truth_that_is_always_the_same_has_no_r2():
    found = number_metrics(ANSWERS, np.full(150, 0.1))
    assert np.isnan((found.r2.value, found.r2.low, found.r2.high)).all()
    assert np.isfinite(found.mean_absolute_error.high)


@pytest.mark.parametrize(
    ("answers", "truth", "message"),
    [
        (ANSWERS[1:], TRUTH, "149 answers for 150 photos"),
        (np.where(ANSWERS > 40, np.nan, 0), TRUTH, "answers must be finite numbers"),
        (ANSWERS.reshape(75, 2), TRUTH, r"answers must .* got shape \(75, 2\)"),
        (ANSWERS[:0], TRUTH[:0], "answers must .* not none, got"),
    ],
)
def test_answers_that_do_not_fit_are_named(answers, truth, message):
    with pytest.raises(ValueError, match=message):
        number_metrics(answers, truth)


@pytest.mark.parametrize("truth", [TRUTH, np.full(150, 3.0)], ids=["varied", "same"])
def test_the_plot_shows_every_photo_on_equal_axes(truth, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save", lambda *args: drawn.append(args))
    path = tmp_path / figures.ANSWERS
    figures.draw_answers(path, ANSWERS[:, None], truth[:, None], "age $x$")
    ((figure, where),) = drawn
    (axes,) = figure.axes
    (points,) = axes.collections
    np.testing.assert_array_equal(points.get_offsets(), np.stack((truth, ANSWERS), 1))
    assert where == path and axes.get_xlim() == axes.get_ylim()
    low, high = axes.get_xlim()
    assert low < min(truth.min(), ANSWERS.min())
    assert high > max(truth.max(), ANSWERS.max())
    assert axes.get_xlabel() == "True age $x$"
    # Names are no formulas.
    assert not axes.xaxis.label.get_parse_math()


@pytest.mark.filterwarnings("error")
def test_the_plot_is_written_where_all_numbers_are_the_same(tmp_path):
    path = tmp_path / figures.ANSWERS
    figures.draw_answers(path, np.zeros(3), np.zeros(3))
    assert path.read_bytes().startswith(b"\x89PNG")
