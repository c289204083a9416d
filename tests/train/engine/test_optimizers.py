"""Optimizers against their definitions in float64; every backend runs this file."""

import keras
import numpy as np
import pytest
from ml_dtypes import bfloat16

import keras_vit
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine

RATES = WarmupCosine(0.5, steps=8, warmup_steps=3)


def steps_of(optimizer, gradients, start):
    """Returns the weights after each update."""
    variable = keras.Variable(start, name="kernel")
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


def rates():
    warm = [min(1, step / 3) for step in range(8)]
    decay = [0.5 * (1 + np.cos(np.pi * max(step - 3, 0) / 5)) for step in range(8)]
    return 0.5 * np.array(warm) * np.array(decay)


def faded(mean, factor):
    """JAX multiplies an array and a Python number in the array's dtype."""
    return (mean * mean.dtype.type(factor)).astype("float64")


def sgd_by_hand(gradients, weights, momentum, stored="float64"):
    """The rule of `optax.sgd`, in float64 but for what it stores."""
    weights, velocity, after = weights.astype("float64"), np.zeros(1), []
    for gradient, rate in zip(gradients.astype("float64"), rates(), strict=True):
        moved = faded(velocity, momentum) + gradient
        weights = weights - rate * moved
        velocity = moved.astype(stored)
        after.append(weights)
    return np.stack(after)


def adam_by_hand(gradients, weights, decay, stored):
    """`optax.scale_by_adam`, decayed weights added, by the rate, in float64."""
    weights, mean, square, after = weights.astype("float64"), np.zeros(1), 0.0, []
    pairs = zip(gradients.astype("float64"), rates(), strict=True)
    for step, (gradient, rate) in enumerate(pairs, start=1):
        moved = faded(mean, 0.9) + (1 - 0.9) * gradient
        square = 0.999 * square + (1 - 0.999) * gradient**2
        full_mean, full_square = 1 - 0.9**step, 1 - 0.999**step
        update = moved / full_mean / (np.sqrt(square / full_square) + 1e-8)
        weights = weights - rate * (update + decay * weights)
        mean = moved.astype(stored)
        after.append(weights)
    return np.stack(after)


@pytest.mark.parametrize(
    ("momentum", "dtype"), [(0.9, None), (0.0, None), (0.9, "bfloat16")]
)
def test_momentum_equals_the_released_rule_under_a_schedule(problem, momentum, dtype):
    """A velocity in bfloat16 is rounded after it has moved the weights."""
    optimizer = MomentumSGD(RATES, momentum, momentum_dtype=dtype)
    weights = steps_of(optimizer, *problem)
    expected = sgd_by_hand(*problem, momentum, bfloat16 if dtype else "float64")
    np.testing.assert_allclose(weights, expected, atol=1e-6, rtol=1e-6)
    assert optimizer.velocities[0].dtype == (dtype or "float32")
    if dtype:
        assert np.abs(weights - sgd_by_hand(*problem, momentum)).max() > 1e-4


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_adam_equals_the_released_rule_under_a_schedule(problem, dtype):
    gradients, start = problem
    # From 1e-8 on the epsilon counts, too.
    gradients = gradients * np.logspace(-8, 2, 4, dtype="float32")
    stored = bfloat16 if dtype else "float64"
    adam = Adam(RATES, kernel_decay=0.3, momentum_dtype=dtype)
    weights = steps_of(adam, gradients, start)
    # Roundings to bfloat16 may fall either way: one in 256 of a tenth of a step.
    atol = 2e-6 if dtype is None else 1e-4
    expected = adam_by_hand(gradients, start, 0.3, stored)
    np.testing.assert_allclose(weights, expected, atol=atol)
    assert adam.means[0].dtype == (dtype or "float32")
    assert adam.squares[0].dtype == "float32"
    if dtype:
        exact = steps_of(Adam(RATES, kernel_decay=0.3), gradients, start)
        assert 1e-4 < np.abs(weights - exact).max() < 0.02


def test_adam_decays_what_the_released_pattern_names():
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
    resnet = {"resnet_stages": (1,), "resnet_width": 32}
    config = keras_vit.ViTConfig(**sizes, patch_size=1, **resnet)
    settings = {"image_size": 32, "classes": 3, "representation_size": 8}
    model = keras_vit.VisionTransformer(config, **settings)
    trained = model.trainable_variables
    for variable in trained:
        variable.assign(np.full(variable.shape, 2.0))
    optimizer = Adam(0.1, kernel_decay=0.5)
    optimizer.build(trained)
    optimizer.apply([keras.ops.zeros(v.shape) for v in trained], trained)
    decayed = set()
    for variable in trained:
        factor = np.unique(variable.numpy()) / 2
        np.testing.assert_allclose(factor, 0.95 if factor < 1 else 1.0, rtol=1e-6)
        if factor < 1:
            decayed.add(variable.path)
    assert decayed == {v.path for v in trained if v.path.endswith("/kernel")}
    assert {"conv_root/kernel", "pre_logits/kernel", "head/kernel"} < decayed


ADAM = {"beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-3, "kernel_decay": 0.2}
HALF = {"momentum_dtype": "bfloat16", "name": "mine"}


@pytest.mark.parametrize(
    ("optimizer_class", "settings"),
    [(MomentumSGD, {"momentum": 0.7, **HALF}), (Adam, {**ADAM, **HALF})],
)
def test_an_optimizer_made_of_its_config_is_the_same(
    problem, optimizer_class, settings
):
    optimizer = optimizer_class(RATES, **settings)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, optimizer_class)
    assert {name: getattr(again, name) for name in settings} == settings
    pair = [steps_of(one, *problem) for one in (again, optimizer)]
    np.testing.assert_array_equal(*pair)


def as_float32(variable):
    """Not every backend has NumPy's view of bfloat16."""
    return keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))


@pytest.mark.parametrize("optimizer_class", [MomentumSGD, Adam])
def test_a_saved_compiled_model_goes_on_where_it_was(optimizer_class, tmp_path):
    """Saving is tested in mixed precision alone, which needs all that float32 does."""
    dense = keras.layers.Dense(3, dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input((4,)), dense])
    model.compile(optimizer_class(RATES, momentum_dtype="bfloat16"), "mse")
    rng = np.random.default_rng(0)
    batch = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    for _ in range(3):
        model.train_on_batch(*batch)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 3
    for one in (model, loaded):
        one.train_on_batch(*batch)
    trained = [one.weights + one.optimizer.variables[2:] for one in (model, loaded)]
    for mine, theirs in zip(*trained, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(*map(as_float32, (mine, theirs)))
