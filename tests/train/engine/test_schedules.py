import keras
import numpy as np
import pytest

from train.engine.schedules import WarmupCosine, WarmupLinear


def cosine(progress, base):
    return base * 0.5 * (1.0 + np.cos(np.pi * progress))


def linear(progress, base):
    return 1e-5 + (base - 1e-5) * (1.0 - progress)


def released(decay, step, base, total, warmup):
    """`create_learning_rate_schedule` of the released code in float64."""
    progress = np.clip((step - warmup) / float(total - warmup), 0.0, 1.0)
    rate = decay(progress, base)
    if warmup:
        rate = rate * np.minimum(1.0, step / warmup)
    return rate


@pytest.mark.parametrize(
    ("schedule_class", "decay"), [(WarmupCosine, cosine), (WarmupLinear, linear)]
)
@pytest.mark.parametrize(
    ("base", "total", "warmup"),
    [(0.03, 500, 100), (0.01, 20, 19), (0.1, 7, 0), (1.0, 1, 0)],
)
def test_equals_the_released_formula_at_every_step(
    schedule_class, decay, base, total, warmup
):
    schedule = schedule_class(base, total, warmup)
    steps = np.arange(total + 5)
    rates = [float(schedule(step)) for step in steps]
    np.testing.assert_allclose(
        rates, released(decay, steps, base, total, warmup), atol=base * 1e-6
    )


def test_landmarks():
    schedule = WarmupCosine(0.03, steps=500, warmup_steps=100)
    assert float(schedule(0)) == 0.0
    assert float(schedule(50)) == pytest.approx(0.015)
    assert float(schedule(100)) == pytest.approx(0.03)
    assert float(schedule(300)) == pytest.approx(0.015)
    assert float(schedule(500)) == pytest.approx(0.0, abs=1e-9)
    assert float(WarmupCosine(0.03, steps=500)(0)) == pytest.approx(0.03)


def test_takes_the_optimizers_step_counter():
    schedule = WarmupCosine(0.03, steps=500, warmup_steps=100)
    counter = keras.Variable(20, dtype="int64", trainable=False)
    assert float(schedule(counter)) == pytest.approx(0.006)


def test_landmarks_of_the_line():
    schedule = WarmupLinear(1e-3, steps=500, warmup_steps=100, end=0.0)
    assert float(schedule(0)) == 0.0
    assert float(schedule(100)) == pytest.approx(1e-3)
    assert float(schedule(300)) == pytest.approx(5e-4)
    assert float(schedule(500)) == float(schedule(600)) == 0.0


@pytest.mark.parametrize("schedule_class", [WarmupCosine, WarmupLinear])
@pytest.mark.parametrize("warmup", [10, 11, -1])
def test_a_warm_up_that_does_not_fit_is_named(schedule_class, warmup):
    with pytest.raises(ValueError, match=rf"warmup_steps={warmup} .*steps=10\."):
        schedule_class(0.1, steps=10, warmup_steps=warmup)


def test_config_round_trip():
    schedule = WarmupCosine(0.03, steps=500, warmup_steps=100)
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert isinstance(again, WarmupCosine)
    assert again.get_config() == {
        "learning_rate": 0.03,
        "steps": 500,
        "warmup_steps": 100,
    }
    assert float(again(250)) == float(schedule(250))


def test_config_round_trip_of_the_line():
    schedule = WarmupLinear(1e-3, steps=500, warmup_steps=100, end=2e-5)
    config = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(config)
    assert isinstance(again, WarmupLinear)
    assert again.get_config() == schedule.get_config()
    assert float(again(499)) == float(schedule(499)) > 2e-5


@pytest.mark.parametrize("schedule", [WarmupCosine, WarmupLinear])
@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1])
def test_rates_that_are_none_are_refused(schedule, rate):
    with pytest.raises(ValueError, match="learning_rate must be finite and not"):
        schedule(rate, steps=10)
