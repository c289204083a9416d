import keras
import numpy as np
import pytest

from train.optimizers import MomentumSGD
from train.schedules import WarmupCosine

RATES = WarmupCosine(0.5, steps=8, warmup_steps=3)


def steps_of(optimizer, gradients, start):
    """Returns the weights after each update."""
    variable = keras.Variable(start)
    optimizer.build([variable])
    weights = []
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [variable])
        weights.append(variable.numpy())
    return np.stack(weights)


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(8, 3, 4)).astype("float32")
    return gradients, rng.normal(size=(3, 4)).astype("float32")


def by_hand(gradients, weights, rates, momentum):
    """The rule of `optax.sgd`, in float64."""
    weights, velocity, after = weights.astype("float64"), 0.0, []
    for gradient, rate in zip(gradients.astype("float64"), rates, strict=True):
        velocity = momentum * velocity + gradient
        weights = weights - rate * velocity
        after.append(weights)
    return np.stack(after)


def rates():
    warm = [min(1, step / 3) for step in range(8)]
    decay = [0.5 * (1 + np.cos(np.pi * max(step - 3, 0) / 5)) for step in range(8)]
    return 0.5 * np.array(warm) * np.array(decay)


@pytest.mark.parametrize("momentum", [0.9, 0.5, 0.0])
def test_equals_the_released_rule_under_a_schedule(problem, momentum):
    gradients, start = problem
    expected = by_hand(gradients, start, rates(), momentum)
    weights = steps_of(MomentumSGD(RATES, momentum), gradients, start)
    np.testing.assert_allclose(weights, expected, atol=1e-6, rtol=1e-6)


def test_differs_from_keras_sgd_only_where_the_rate_changes(problem):
    gradients, start = problem
    ours = steps_of(MomentumSGD(RATES), gradients, start)
    theirs = steps_of(keras.optimizers.SGD(RATES, momentum=0.9), gradients, start)
    assert np.abs(ours - theirs).max() > 0.1
    ours = steps_of(MomentumSGD(0.1), gradients, start)
    theirs = steps_of(keras.optimizers.SGD(0.1, momentum=0.9), gradients, start)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_first_update_of_a_warm_up_moves_nothing_but_the_velocity(problem):
    gradients, start = problem
    optimizer = MomentumSGD(RATES)
    assert float(RATES(0)) == 0.0
    np.testing.assert_array_equal(steps_of(optimizer, gradients[:1], start)[0], start)
    np.testing.assert_array_equal(optimizer.velocities[0].numpy(), gradients[0])


def test_config_round_trip(problem):
    optimizer = MomentumSGD(RATES, momentum=0.7, name="mine", clipnorm=2.0)
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    assert isinstance(again, MomentumSGD)
    assert isinstance(again._learning_rate, WarmupCosine)
    assert (again.momentum, again.name, again.clipnorm) == (0.7, "mine", 2.0)
    assert again.get_config() == optimizer.get_config()
    np.testing.assert_array_equal(
        steps_of(again, *problem), steps_of(optimizer, *problem)
    )


def test_a_saved_compiled_model_goes_on_where_it_was(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(MomentumSGD(RATES), "mse")
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(4, 8, 4)), rng.normal(size=(4, 8, 3))
    for images, targets in zip(*batches, strict=True):
        model.train_on_batch(images, targets)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 4
    assert any(np.abs(v.numpy()).max() > 0 for v in loaded.optimizer.velocities)
    for mine, theirs in zip(
        model.optimizer.variables, loaded.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
    for one in (model, loaded):
        one.train_on_batch(batches[0][0], batches[1][0])
    for mine, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())
