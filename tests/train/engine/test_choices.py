"""Every row of the registry does what flags, recipes and reports say of it."""

import inspect

import keras
import numpy as np
import pytest

from train import recipes
from train.engine.choices import LOSSES, OPTIMIZERS, PRECISIONS, SCHEDULES

RECIPE = recipes.for_dataset("digits")


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_of_single_examples(name):
    recipe = RECIPE.override(loss=name)
    loss = LOSSES[name].of(recipe, class_weights=(1.0, 0.0, 1.0))
    losses = np.asarray(loss(np.zeros((3, 3), "float32"), np.array([0, 1, 2])))
    assert losses.shape == (3,) and losses[1] == 0.0 < losses[0] == losses[2]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_warms_up_and_falls(name):
    recipe = RECIPE.override(schedule=name, steps=10, warmup_steps=2)
    schedule = SCHEDULES[name].of(recipe)()
    rates = [float(schedule(step)) for step in range(11)]
    assert rates[0] == 0.0 and max(rates) == pytest.approx(recipe.learning_rate)
    assert 0.0 <= rates[10] < rates[5] < rates[2]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_takes_the_recipes_settings(name):
    choice = OPTIMIZERS[name]
    recipe = RECIPE.override(optimizer=name, momentum_dtype="bfloat16")
    optimizer = choice.of(recipe)(0.1)
    assert isinstance(optimizer, keras.optimizers.Optimizer)
    for argument, field in choice.settings.items():
        assert getattr(optimizer, argument) == getattr(recipe, field)


@pytest.mark.parametrize(
    ("field", "rows"),
    [("loss", LOSSES), ("schedule", SCHEDULES), ("optimizer", OPTIMIZERS)],
)
def test_recipes_take_the_rows_and_no_others(field, rows):
    for name, choice in rows.items():
        assert getattr(RECIPE.override(**{field: name}), field) == name
        assert inspect.getdoc(choice.of(RECIPE).func)
    with pytest.raises(ValueError, match=f"{field} must be one of {', '.join(rows)}"):
        RECIPE.override(**{field: "another"})
    with pytest.raises(ValueError, match=", ".join(PRECISIONS)):
        RECIPE.override(precision="int8")
