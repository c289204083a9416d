import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import quick_xla
from ml_dtypes import bfloat16

import keras_vit
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine

RATES = WarmupCosine(0.5, steps=8, warmup_steps=3)


def steps_of(optimizer, gradients, start, name="kernel"):
    """Returns the weights after each update."""
    variable = keras.Variable(start, name=name)
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


def by_hand(gradients, weights, rates, momentum, stored="float64"):
    """The rule of `optax.sgd`, in float64 but for what it stores."""
    weights, velocity, after = weights.astype("float64"), np.zeros(1), []
    for gradient, rate in zip(gradients.astype("float64"), rates, strict=True):
        moved = faded(velocity, momentum) + gradient
        weights = weights - rate * moved
        velocity = moved.astype(stored)
        after.append(weights)
    return np.stack(after)


def faded(mean, factor):
    """JAX multiplies an array and a Python number in the array's dtype."""
    return (mean * mean.dtype.type(factor)).astype("float64")


def adam_by_hand(gradients, weights, rates, decay=0.0, stored="float64"):
    """`optax.scale_by_adam`, decayed weights added, by the rate, in float64."""
    weights, mean, square, after = weights.astype("float64"), np.zeros(1), 0.0, []
    pairs = zip(gradients.astype("float64"), rates, strict=True)
    for step, (gradient, rate) in enumerate(pairs, start=1):
        moved = faded(mean, 0.9) + (1 - 0.9) * gradient
        square = 0.999 * square + (1 - 0.999) * gradient**2
        full_mean, full_square = 1 - 0.9**step, 1 - 0.999**step
        update = moved / full_mean / (np.sqrt(square / full_square) + 1e-8)
        weights = weights - rate * (update + decay * weights)
        mean = moved.astype(stored)
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


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_adam_equals_the_released_rule_under_a_schedule(problem, dtype):
    gradients, start = problem
    # From 1e-8 on the epsilon counts, too.
    gradients = gradients * np.logspace(-8, 2, 4, dtype="float32")
    stored = dtype and bfloat16
    expected = adam_by_hand(gradients, start, rates(), 0.3, stored or "float64")
    adam = Adam(RATES, kernel_decay=0.3, momentum_dtype=dtype)
    weights = steps_of(adam, gradients, start)
    # Roundings to bfloat16 may fall either way: one in 256 of a tenth of a step.
    atol = 2e-6 if dtype is None else 1e-4
    np.testing.assert_allclose(weights, expected, atol=atol)
    assert adam.means[0].dtype == dtype or "float32"
    assert adam.squares[0].dtype == "float32"


def test_adam_in_bfloat16_differs_from_adam_in_float32(problem):
    one, other = (
        steps_of(Adam(RATES, momentum_dtype=dtype), *problem)
        for dtype in (None, "bfloat16")
    )
    assert 1e-4 < np.abs(one - other).max() < 0.02


@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_a_velocity_in_bfloat16_is_rounded_after_it_has_moved_the_weights(
    problem, momentum
):
    gradients, start = problem
    optimizer = MomentumSGD(RATES, momentum, momentum_dtype="bfloat16")
    weights = steps_of(optimizer, gradients, start)
    expected = by_hand(gradients, start, rates(), momentum, bfloat16)
    np.testing.assert_allclose(weights, expected, atol=1e-6, rtol=1e-6)
    assert optimizer.velocities[0].dtype == "bfloat16"
    unrounded = by_hand(gradients, start, rates(), momentum)
    assert np.abs(weights - unrounded).max() > 1e-4


def test_adam_decays_what_the_released_pattern_names():
    model = keras_vit.VisionTransformer(
        keras_vit.ViTConfig(
            hidden_size=8,
            num_layers=1,
            num_heads=2,
            mlp_dim=16,
            patch_size=1,
            resnet_stages=(1,),
            resnet_width=32,
        ),
        image_size=32,
        classes=3,
        representation_size=8,
    )
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, 2.0))
    optimizer = Adam(0.1, kernel_decay=0.5)
    zeros = [np.zeros(v.shape, "float32") for v in model.trainable_variables]
    gradients = [keras.ops.convert_to_tensor(zero) for zero in zeros]
    optimizer.build(model.trainable_variables)
    optimizer.apply(gradients, model.trainable_variables)
    decayed = set()
    for variable in model.trainable_variables:
        factor = np.unique(variable.numpy()) / 2
        np.testing.assert_allclose(factor, 0.95 if factor < 1 else 1.0, rtol=1e-6)
        if factor < 1:
            decayed.add(variable.path)
    names = {v.path for v in model.trainable_variables}
    assert decayed == {name for name in names if name.endswith("/kernel")}
    assert {"conv_root/kernel", "embedding/kernel", "pre_logits/kernel"} < decayed
    assert {"head/kernel", "encoder_block_0/mlp/expand/kernel"} < decayed


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


def test_config_round_trip_of_adam(problem):
    optimizer = Adam(
        RATES,
        beta_1=0.8,
        beta_2=0.99,
        epsilon=1e-3,
        kernel_decay=0.2,
        momentum_dtype="bfloat16",
        name="mine",
    )
    config = keras.optimizers.serialize(optimizer)
    again = keras.optimizers.deserialize(config)
    assert isinstance(again, Adam)
    assert again.get_config() == optimizer.get_config()
    np.testing.assert_array_equal(
        steps_of(again, *problem), steps_of(optimizer, *problem)
    )


@pytest.mark.parametrize(
    ("make", "policy"),
    [
        (lambda: MomentumSGD(RATES), "mixed_bfloat16"),
        (lambda: MomentumSGD(RATES, momentum_dtype="bfloat16"), "float32"),
        (lambda: Adam(RATES, kernel_decay=0.1), "float32"),
        (lambda: Adam(RATES, momentum_dtype="bfloat16"), "mixed_bfloat16"),
    ],
)
def test_a_saved_compiled_model_goes_on_where_it_was(make, policy, tmp_path):
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense(3, dtype=policy)
    model = keras.Sequential([keras.Input((4,)), dense])
    model.compile(make(), "mse")
    rng = np.random.default_rng(0)
    batches = rng.normal(size=(4, 8, 4)), rng.normal(size=(4, 8, 3))
    for images, targets in zip(*batches, strict=True):
        model.train_on_batch(images, targets)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 4
    pairs = zip(model.optimizer.variables, loaded.optimizer.variables, strict=True)
    for mine, theirs in list(pairs)[2:]:
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(values(mine), values(theirs))
        assert np.abs(values(mine)).max() > 0
    for one in (model, loaded):
        one.train_on_batch(batches[0][0], batches[1][0])
    for mine, theirs in zip(model.weights, loaded.weights, strict=True):
        assert mine.dtype == "float32"
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def values(variable):
    """As float32, for not every backend has NumPy's view of bfloat16."""
    return keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", sorted({"tensorflow", "jax", "torch"} - {keras.backend.backend()})
)
def test_the_other_backends_pass_the_same_tests(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    check = f"import keras; assert keras.backend.backend() == {backend!r}"
    arguments = ["-q", "-m", "not slow", "-p", "no:cacheprovider", __file__]
    # Goes by names, which are the same on every backend.
    # Saving is tested in mixed precision alone, which needs all that float32 does.
    arguments += ["-k", "not released_pattern and not float32_"]
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{check}; import pytest; raise SystemExit(pytest.main({arguments!r}))",
        ],
        cwd=pathlib.Path(__file__).parents[3],
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            # JAX compiles every operation: fast compilation beats fast code here.
            "XLA_FLAGS": quick_xla.flags(),
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
