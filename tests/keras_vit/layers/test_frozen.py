"""A frozen base stays frozen, however the model that holds it is copied."""

import keras
import numpy as np
import pytest
import small_models
from harness import normal
from keras import ops

import keras_vit
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

BASES = {
    "plain": lambda: small_models.made(include_top=False),
    "hybrid": lambda: small_models.made(small_models.HYBRID, include_top=False),
    "bit": lambda: BiTResNet(BiTConfig((1,)), image_size=32),
    "int8": lambda: keras_vit.quantize_weights(small_models.made(include_top=False)),
}


def saved(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras")


COPIES = {
    "as it is": lambda model, _: model,
    "saved": saved,
    "cloned": lambda model, _: keras.models.clone_model(model),
    "recursively": lambda model, _: keras.models.clone_model(model, recursive=True),
    "at another size": lambda model, _: keras_vit.at_image_size(model, 64),
}


# Other kinds have other layers; how they are copied is the same.
PAIRS = [("plain", copy) for copy in COPIES]
PAIRS += [("hybrid", "at another size"), ("bit", "saved"), ("int8", "at another size")]


@pytest.mark.parametrize(("kind", "copy"), PAIRS)
def test_only_the_head_is_trained(kind, copy, tmp_path):
    base = BASES[kind]()
    base.trainable = False
    images = keras.Input(base.input_shape[1:])
    head = keras.layers.Dense(3, name="new_head")
    model = COPIES[copy](keras.Model(images, head(base(images))), tmp_path)
    assert {weight.path.split("/")[-2] for weight in model.trainable_weights} == {
        "new_head"
    }
    before = [ops.convert_to_numpy(weight) for weight in model.weights]
    # Compiled, the same takes ten times as long, nearly all of it the compiler's.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=eager)
    images = normal((2, *model.input_shape[1:]))
    model.train_on_batch(images, np.ones((2, 3), "float32"))
    moved = {
        weight.path.split("/")[-2]
        for weight, old in zip(model.weights, before, strict=True)
        if (ops.convert_to_numpy(weight) != old).any()
    }
    assert moved == {"new_head"}


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_parts_frozen_before_they_are_built_stay_so(part):
    block = keras_vit.TransformerBlock(3, 40)
    getattr(block, part).trainable = False
    copy = keras.models.clone_model(keras.Sequential([block])).layers[0]
    for one in (block, copy):
        one.build((None, 7, 24))
        assert not getattr(one, part).trainable_weights
    assert len(copy.trainable_weights) == len(block.trainable_weights) > 0
