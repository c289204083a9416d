"""Recipes cut down, from the first step to the report."""

import dataclasses
import random

import keras
import numpy as np
import pytest
import same_runs

from train import recipes
from train.engine import reproducibility
from train.recipes import pretraining
from train.run import building, training
from train.run.classification import FineTuning, PreTraining

# Of seven settings of augmentation, the least and the most.
ALL = [
    *recipes.names(),
    "imagenet21k",
    "pretraining/imagenet2012",
    "pretraining/own_data",
    "augreg_imagenet2012_none",
    "augreg_imagenet21k_strong2",
]


@pytest.fixture(autouse=True)
def policy():
    before = keras.config.dtype_policy(), random.getstate(), np.random.get_state()[1:]
    yield
    after = keras.config.dtype_policy(), random.getstate(), np.random.get_state()[1:]
    assert after[:2] == before[:2], "a run leaves them as they were"
    for one, other in zip(before[2], after[2], strict=True):
        np.testing.assert_array_equal(one, other)


def recipe_of(name):
    source = recipes if name in recipes.names() else pretraining
    return source.for_dataset("digits", name.rpartition("/")[2]).smoke()


def small(recipe):
    """A recipe whose model has one narrow block."""
    narrow = {"hidden_size": 8, "num_layers": 1, "mlp_dim": 16}
    return recipe.override(model=dataclasses.replace(recipe.model, **narrow))


@pytest.mark.parametrize("name", ALL)
def test_a_recipe_has_a_model_an_optimizer_and_a_loss(name):
    recipe = small(recipe_of(name))
    with reproducibility.seeded(recipe.seed, recipe.precision):
        model = building.model(recipe, 3)
    assert model.output_shape == (None, 3)
    assert np.allclose(model.get_layer("head").bias, recipe.head_bias)
    optimizer = building.optimizer(recipe)
    expected = 0.0 if recipe.warmup_steps else recipe.learning_rate
    assert float(optimizer.learning_rate) == expected
    loss = building.loss(recipe, source=None)
    losses = loss(np.zeros((2, 3), "float32"), np.array([0, 2]))
    expected = {"softmax": np.log(3), "sigmoid": 3 * np.log(2)}[recipe.loss]
    np.testing.assert_allclose(losses, [expected] * 2, rtol=1e-6)


# Each with a recipe, of which the others are copies in other numbers.
SETTINGS = {
    "LoRA": {
        **{"recipe": "own_data", "lora_rank": 2, "layer_decay": 0.7},
        **{"loss": "sigmoid", "class_weights": "balanced", "head_bias": -2.0},
    },
    "float16": {
        **{"recipe": "augreg_imagenet21k_strong2", "precision": "mixed_float16"},
        **{"remat": True, "dropout_rate": 0.1, "average_decay": 0.9},
    },
    "probe": {
        **{"recipe": "own_data", "frozen": True, "early_stopping": 1},
        **{"eval_every": 1, "steps": 8},
    },
    "ResNet": {"recipe": "own_data", "model": "ResNet50V2", "image_size": 32},
}
MARKED = [
    pytest.param(name, marks=pytest.mark.soak if name == "ResNet" else pytest.mark.slow)
    for name in SETTINGS
]


@pytest.mark.parametrize("name", MARKED)
def test_settings_together(name, tmp_path):
    values = {"steps": 3, "warmup_steps": 1, "eval_every": 2, **SETTINGS[name]}
    chosen = values.pop("recipe")
    recipe = small(recipe_of(chosen)).override(**values)
    recipe = dataclasses.replace(recipe, test_examples=32)
    task = FineTuning(recipe) if chosen in recipes.names() else PreTraining(recipe)
    run = tmp_path / "run"
    results = training.run(task, run_dir=run)
    keras.backend.clear_session()
    report = same_runs.report(run)
    assert (report["steps"], report["test_examples"]) == (results["steps"], 32)
    assert report["config"]["optimizer"] == recipe.optimizer
    assert (run / "model.keras").exists()
    assert (results["weights"] is not None) == isinstance(task, PreTraining)
    assert results["model"] in task.summary(results)
    best = run / "checkpoints" / "best.npz"
    assert best.exists() == bool(recipe.early_stopping)
    if not recipe.early_stopping:
        assert results["steps"] == recipe.steps
        return
    lines = same_runs.records(run)
    accuracies = [line["val_accuracy"] for line in lines if "val_loss" in line]
    first_best = accuracies.index(max(accuracies)) + 1
    assert results["steps"] == first_best
    assert len(accuracies) == min(first_best + 1, 8)
