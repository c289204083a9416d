"""The model, optimizer and loss of a recipe; which weights are trained, how fast."""

import dataclasses
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_vit import VisionTransformer, ViTConfig
from train import recipes
from train.common.errors import RunError
from train.data.sources import Source, splits
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine, WarmupLinear
from train.engine.tensorflow_backend import TensorFlowTrainer
from train.recipes import pretraining
from train.run import building
from train.run.classification import FineTuning
from train.run.trained_parts import (
    block_numbers,
    choose_trainable,
    count_parameters,
    layer_rates,
)

TINY = ViTConfig(hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, patch_size=4)
BASE = recipes.for_dataset("digits").override(model=TINY, image_size=8)
RATES = {"dropout_rate": 0.2, "stochastic_depth_rate": 0.1}
LABELS = np.array([0, 0, 0, 0, 2, 2])


def test_the_papers_optimizers():
    optimizer = building.optimizer(pretraining.for_dataset("imagenet21k"))
    assert isinstance(optimizer, Adam) and optimizer.kernel_decay == 0.03
    assert isinstance(optimizer._learning_rate, WarmupLinear)
    optimizer = building.optimizer(recipes.for_dataset("cifar100"))
    assert isinstance(optimizer, MomentumSGD) and optimizer.momentum == 0.9
    assert isinstance(optimizer._learning_rate, WarmupCosine)


def test_a_model_of_pre_training_and_a_probe():
    augreg = pretraining.for_dataset("x", "augreg_imagenet2012_none")
    recipe = dataclasses.replace(augreg, model=TINY, image_size=8, pre_logits=True)
    model = building.model(recipe.override(**RATES), classes=3)
    head = model.get_layer("head")
    np.testing.assert_allclose(head.bias.numpy(), -6.9, rtol=1e-6)
    assert not np.any(head.kernel.numpy())
    assert building.optimizer(recipe).momentum_dtype == "bfloat16"
    assert model.get_layer("pre_logits").units == 16
    assert model.get_layer("encoder_block_1").stochastic_depth_rate == 0.1
    assert model.get_layer("encoder_block_1").dropout_rate == 0.2
    # A probe sees what the model says, and trains the head alone.
    probe = building.model(BASE.override(frozen=True, **RATES), 3)
    assert probe.get_layer("encoder_block_1").dropout_rate == 0.0
    assert probe.get_layer("encoder_block_1").stochastic_depth_rate == 0.0
    choose_trainable(probe, frozen=True)
    paths = [variable.path for variable in probe.trainable_variables]
    assert paths == ["head/kernel", "head/bias"]


def losses_of(recipe):
    split = splits.in_memory("made train", LABELS, LABELS, tf.identity, str)
    source = Source("made", ("a", "b", "c"), split, None, split)
    logits = np.zeros((3, 3), "float32")
    return np.asarray(building.loss(recipe, source)(logits, np.array([0, 1, 2])))


def test_classes_are_balanced_or_have_the_weights_that_are_given():
    # Four of six examples are of class a, none of class b.
    weights = np.array([6 / (2 * 4), 0.0, 6 / (2 * 2)])
    found = losses_of(BASE.override(class_weights="balanced"))
    np.testing.assert_allclose(found, weights * np.log(3), rtol=1e-6)
    given = BASE.override(class_weights=(1.0, 2.0, 3.0), loss="sigmoid")
    expected = 3 * np.log(2) * np.array([1, 2, 3])
    np.testing.assert_allclose(losses_of(given), expected, rtol=1e-6)
    with pytest.raises(RunError, match="--class_weights has 2 numbers, .*3 classes"):
        losses_of(BASE.override(class_weights=(1.0, 2.0)))


def test_what_a_baseline_does_not_have():
    baseline = BASE.override(model="ResNet50V2", image_size=32)
    for name, value in (("remat", True), ("pre_logits", True), ("dropout_rate", 0.1)):
        with pytest.raises(RunError, match=f"ResNet50V2 has no {name}"):
            building.model(baseline.override(**{name: value}), 3)
    one, two = (types.SimpleNamespace(has_hosts=False, count=n) for n in (1, 2))
    with pytest.raises(RunError, match="ResNet50V2 normalises .*--strategy=one"):
        FineTuning(baseline).check_devices(two)
    for recipe, devices in ((baseline, one), (BASE, one), (BASE, two)):
        FineTuning(recipe).check_devices(devices)


# Parts of the weights

SMALL = dataclasses.replace(TINY, hidden_size=8, mlp_dim=16)


def vit():
    keras.utils.set_random_seed(0)
    model = VisionTransformer(SMALL, image_size=8, classes=3)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(0, 0.3, kernel.shape))
    return model


def test_lora_trains_products_of_low_rank_and_saves_a_plain_model(tmp_path):
    images = np.random.default_rng(2).uniform(-1, 1, (2, 8, 8, 3)).astype("float32")
    model, plain = vit(), vit()
    choose_trainable(model, lora_rank=2)
    np.testing.assert_allclose(model(images), plain(images), atol=1e-6)
    # Two matrices for queries and values of each of two blocks, and the head.
    shapes = sorted(tuple(v.shape) for v in model.trainable_variables)
    assert shapes == sorted([(2, 8), (8, 2)] * 4 + [(8, 3), (3,)])
    assert count_parameters(model.weights) == plain.count_params()
    lora = 4 * 2 * (2 * 8) + 8 * 3 + 3
    assert count_parameters(model.trainable_weights, lora=True) == lora
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1))
    for labels in ([0, 1], [2, 2], [1, 0]):
        trainer.step(images, np.array(labels, "int32"))

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    # Frozen weights stay frozen when they are saved.
    nested = keras.Input((8, 8, 3))
    for one in (again, keras.Model(nested, again(nested))):
        trained = [variable.path for variable in one.trainable_variables]
        assert trained == ["head/kernel", "head/bias"]
    np.testing.assert_allclose(again(images), model(images), atol=1e-5)
    for mine, theirs in zip(again.weights, plain.weights, strict=True):
        change = mine.numpy() - theirs.numpy()
        if mine.path.endswith(("query/kernel", "value/kernel")):
            assert np.linalg.matrix_rank(change, tol=1e-6) == 2
        else:
            assert np.any(change) == mine.path.startswith("head/"), mine.path


def test_rates_fall_from_block_to_block():
    model = vit()
    assert block_numbers(model) == [0, 1]
    rates = layer_rates(model, 0.5)
    assert rates.keys() == {v.path for v in model.trainable_variables}
    first = ("embedding/", "class_token/", "position_embedding/")
    expected = dict.fromkeys(first, 0.5**3)
    expected |= {"encoder_block_0/": 0.5**2, "encoder_block_1/": 0.5}
    expected |= {"encoder_norm/": 1.0, "head/": 1.0}
    for path, rate in rates.items():
        assert rate == expected[path.partition("/")[0] + "/"], path


def test_what_needs_blocks_says_so():
    images = keras.Input((4, 4, 3))
    head = keras.layers.Dense(2, name="head")(keras.layers.Flatten()(images))
    model = keras.Model(images, head, name="mine")
    assert block_numbers(model) == []
    with pytest.raises(RunError, match="--layer_decay needs .*blocks; mine has none"):
        layer_rates(model, 0.5)
    with pytest.raises(RunError, match="--lora_rank=3 needs attention .*mine has none"):
        choose_trainable(model, lora_rank=3)
