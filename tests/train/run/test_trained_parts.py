"""Which weights are trained, and how fast."""

import keras
import numpy as np
import pytest

import keras_vit
from train.common.errors import RunError
from train.engine.optimizers import MomentumSGD
from train.engine.tensorflow_backend import TensorFlowTrainer
from train.run.trained_parts import choose_trainable, count_parameters, layer_rates

CONFIG = keras_vit.ViTConfig(
    hidden_size=8, num_layers=2, num_heads=2, mlp_dim=16, patch_size=4
)


def vit():
    keras.utils.set_random_seed(0)
    model = keras_vit.VisionTransformer(CONFIG, image_size=8, classes=3)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(0, 0.3, kernel.shape))
    return model


def steps_of(model, count=3):
    trainer = TensorFlowTrainer(model, MomentumSGD(0.1))
    rng = np.random.default_rng(0)
    for _ in range(count):
        images = rng.uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
        trainer.step(images, rng.integers(0, 3, 4).astype("int32"))


def test_a_probe_moves_the_head_alone():
    model = vit()
    choose_trainable(model, frozen=True)
    before = {v.path: v.numpy() for v in model.weights}
    steps_of(model)
    moved = {v.path for v in model.weights if np.any(v.numpy() != before[v.path])}
    assert moved == {"head/kernel", "head/bias"}


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
    steps_of(model)

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(images), model(images), atol=1e-5)
    for mine, theirs in zip(again.weights, plain.weights, strict=True):
        change = mine.numpy() - theirs.numpy()
        if mine.path.endswith(("query/kernel", "value/kernel")):
            assert np.linalg.matrix_rank(change, tol=1e-6) == 2
        else:
            assert np.any(change) == mine.path.startswith("head/"), mine.path


@pytest.mark.parametrize("chosen", [{"frozen": True}, {"lora_rank": 2}])
def test_what_is_saved_stays_frozen(chosen, tmp_path):
    model = vit()
    choose_trainable(model, **chosen)
    model.save(tmp_path / "model.keras")
    saved = keras.saving.load_model(tmp_path / "model.keras")
    images = keras.Input((8, 8, 3))
    for again in (saved, keras.Model(images, saved(images))):
        paths = [variable.path for variable in again.trainable_variables]
        assert paths == ["head/kernel", "head/bias"]


def test_rates_fall_from_block_to_block():
    model = vit()
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
    with pytest.raises(RunError, match="--layer_decay needs .*blocks; mine has none"):
        layer_rates(model, 0.5)
    with pytest.raises(RunError, match="--lora_rank=3 needs attention .*mine has none"):
        choose_trainable(model, lora_rank=3)
