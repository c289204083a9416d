"""The model, optimizer and loss of a recipe."""

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import ViTConfig
from train import recipes
from train.common.errors import RunError
from train.data.sources import Source, splits
from train.engine.optimizers import Adam, MomentumSGD
from train.engine.schedules import WarmupCosine, WarmupLinear
from train.recipes import pretraining
from train.run import building
from train.run.classification import FineTuning

TINY = ViTConfig(hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, patch_size=4)
BASE = recipes.for_dataset("digits").override(model=TINY, image_size=8)
LABELS = np.array([0, 0, 0, 0, 2, 2])


def source():
    split = splits.in_memory("made train", LABELS, LABELS, tf.identity, str)
    return Source("made", ("a", "b", "c"), split, None, split)


def test_the_papers_optimizers():
    optimizer = building.optimizer(pretraining.for_dataset("imagenet21k"))
    assert isinstance(optimizer, Adam) and optimizer.kernel_decay == 0.03
    assert isinstance(optimizer._learning_rate, WarmupLinear)
    assert float(optimizer.learning_rate) == 0.0
    optimizer = building.optimizer(recipes.for_dataset("cifar100"))
    assert isinstance(optimizer, MomentumSGD) and optimizer.momentum == 0.9
    assert isinstance(optimizer._learning_rate, WarmupCosine)


def test_the_head_of_pre_training():
    recipe = dataclasses.replace(
        pretraining.for_dataset("x", "augreg_imagenet2012_none"),
        model=TINY,
        image_size=8,
        dropout_rate=0.2,
        stochastic_depth_rate=0.1,
        pre_logits=True,
    )
    model = building.model(recipe, classes=3)
    head = model.get_layer("head")
    np.testing.assert_allclose(head.bias.numpy(), -6.9, rtol=1e-6)
    assert not np.any(head.kernel.numpy())
    assert model.get_layer("pre_logits").units == 16
    assert model.get_layer("encoder_block_1").stochastic_depth_rate == 0.1
    assert model.get_layer("encoder_block_1").dropout_rate == 0.2


def test_a_probe_sees_what_the_model_says():
    model = building.model(
        BASE.override(frozen=True, dropout_rate=0.2, stochastic_depth_rate=0.1), 3
    )
    assert model.get_layer("encoder_block_1").dropout_rate == 0.0
    assert model.get_layer("encoder_block_1").stochastic_depth_rate == 0.0


def losses_of(recipe):
    logits = np.zeros((3, 3), "float32")
    return np.asarray(building.loss(recipe, source())(logits, np.array([0, 1, 2])))


def test_balanced_classes_have_the_same_weight_in_sum():
    # Of six examples four are of class a, none of class b.
    weights = np.array([6 / (2 * 4), 0.0, 6 / (2 * 2)])
    expected = weights * np.log(3)
    np.testing.assert_allclose(
        losses_of(BASE.override(class_weights="balanced")), expected, rtol=1e-6
    )
    assert sum(weights[label] for label in LABELS) == len(LABELS)


def test_given_weights_and_the_other_loss():
    given = BASE.override(class_weights=(1.0, 2.0, 3.0), loss="sigmoid")
    np.testing.assert_allclose(
        losses_of(given), 3 * np.log(2) * np.array([1, 2, 3]), rtol=1e-6
    )
    with pytest.raises(RunError, match="--class_weights has 2 numbers, .*3 classes"):
        losses_of(BASE.override(class_weights=(1.0, 2.0)))


@pytest.mark.parametrize(
    "values", [{"remat": True}, {"pre_logits": True}, {"dropout_rate": 0.1}]
)
def test_what_a_baseline_does_not_have(values):
    recipe = BASE.override(model="ResNet50V2", image_size=32, **values)
    with pytest.raises(RunError, match=f"ResNet50V2 has no {next(iter(values))}"):
        building.model(recipe, 3)


def test_only_batch_norms_are_refused_on_two_devices():
    norms, none = BASE.override(model="ResNet50V2", image_size=32), BASE
    one, two = (types.SimpleNamespace(has_hosts=False, count=n) for n in (1, 2))
    with pytest.raises(RunError, match="ResNet50V2 normalises .*--strategy=one"):
        FineTuning(norms).check_devices(two)
    for recipe, devices in ((norms, one), (none, one), (none, two)):
        FineTuning(recipe).check_devices(devices)
