"""Blocks give all tokens, but where a model runs for its output alone."""

import keras
import numpy as np
import pytest
import small_models
from harness import gradients, normal, numpy

import keras_vit
from keras_vit import layers
from keras_vit.lean import blocks_for_class_token, lean

NAMES = ["encoder_block_0", "encoder_block_1", "encoder_norm"]
# All tokens go into what the others pool.
_OF_ALL = {"mean of the tokens", "rotary, attention pooling"}
LEAN = sorted(small_models.POOLED.keys() - _OF_ALL)


def images_of(model):
    return normal((2, *model.input_shape[1:]))


@pytest.mark.parametrize("kind", ["without head", "relative"])
def test_every_layer_gives_all_tokens(kind):
    model = small_models.shared(kind)
    images = images_of(model)
    for name in NAMES:
        part = keras.Model(model.input, model.get_layer(name).output)
        layer = None if name == "encoder_norm" else int(name[-1])
        features = keras_vit.explain.token_features(model, images, layer)
        rows = features.patches.reshape(2, -1, 24)
        expected = np.concatenate([features.class_token[:, None], rows], axis=1)
        assert part.output_shape == (None, *expected.shape[1:])
        np.testing.assert_allclose(numpy(part(images)), expected, atol=1e-5)
        assert blocks_for_class_token(part) == frozenset()
    predicted = keras_vit.Predictor(part)(images)
    np.testing.assert_allclose(predicted, expected, atol=1e-5)


@pytest.mark.parametrize("kind", LEAN)
def test_the_least_arithmetic_gives_the_same(kind, monkeypatch):
    model = small_models.shared(kind)
    images = images_of(model)
    expected = numpy(model(images))
    seen = small_models.seen_by(monkeypatch)
    with lean(model)():
        found = numpy(model(images))
    assert seen == [False, True]
    np.testing.assert_allclose(found, expected, atol=2e-6)
    seen.clear()
    model(images)
    assert seen == [False, False]


def with_argument(model):
    """The model as it was made when its last block was called with an argument."""

    def call(layer, *args, **kwargs):
        if layer.name == "encoder_block_1":
            kwargs["class_token_only"] = True
        return layer(*args, **kwargs)

    clone = keras.models.clone_model(model, call_function=call)
    for variable, source in zip(clone.variables, model.variables, strict=True):
        variable.assign(source)
    return clone


@pytest.mark.parametrize("kind", ["remat and dropout"])
def test_training_is_bit_for_bit_as_with_the_argument(kind):
    model = small_models.made(**small_models.POOLED[kind])
    other = with_argument(model)
    images = images_of(model)
    # PyTorch drops by its own random state.
    keras.utils.set_random_seed(0)
    with lean(model)():
        found = gradients(model, images, training=True)
    keras.utils.set_random_seed(0)
    expected = gradients(other, images, training=True)
    for one, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, theirs)


def test_files_of_models_with_the_argument_load(tmp_path):
    model = small_models.shared()
    with_argument(model).save(tmp_path / "old.keras")
    loaded = keras.saving.load_model(tmp_path / "old.keras")
    images = images_of(model)
    np.testing.assert_allclose(numpy(loaded(images)), numpy(model(images)), atol=2e-6)
    assert [block.name for block in blocks_for_class_token(loaded)] == [
        "encoder_block_1"
    ]


def wrapped(model):
    images = keras.Input(model.input_shape[1:])
    return keras.Model(images, keras.layers.Softmax()(model(images)))


def in_sequence(model):
    images = keras.Input(model.input_shape[1:])
    return keras.Sequential([images, keras.layers.Rescaling(0.5), model])


def with_lora(model):
    model.get_layer("encoder_block_1").attention.query.enable_lora(2)
    return model


@pytest.mark.parametrize(
    "change", [wrapped, in_sequence, with_lora, keras_vit.quantize_weights]
)
def test_models_made_of_ours_are_served(change, monkeypatch):
    model = change(small_models.made())
    images = images_of(model)
    expected = numpy(model(images))
    seen = small_models.seen_by(monkeypatch)
    found = keras_vit.Predictor(model)(images)
    assert seen == [False, True]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def also(name):
    def add(model):
        tokens = model.get_layer(name).output
        return keras.Model(model.input, [model.output, tokens])

    return add


def mean_beside(model):
    tokens = model.get_layer("encoder_block_1").output
    mean = keras.layers.GlobalAveragePooling1D()(tokens)
    return keras.Model(
        model.input, keras.layers.Concatenate()([mean, model.get_layer("head").output])
    )


def beside_a_part(model):
    part = keras.Model(model.input, model.get_layer("encoder_block_1").output)
    images = keras.Input(model.input_shape[1:])
    mean = keras.layers.GlobalAveragePooling1D()(part(images))
    return keras.Model(images, keras.layers.Concatenate()([mean, model(images)]))


def in_a_class(model):
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = model
            self.last = model.get_layer("encoder_block_1")

        def call(self, images):
            return self.inner(images)

    mine = Mine()
    mine(images_of(model))
    return mine


class WithAPart(keras.Model):
    """A functional model with a call of its own."""

    def call(self, images, training=None):
        tokens = images
        for name in ("embedding", "class_token", "position_embedding"):
            tokens = self.get_layer(name)(tokens)
        return self.get_layer("encoder_block_1")(tokens)


def of_a_class(model):
    return WithAPart(model.input, model.output)


class Doubled(layers.TransformerBlock):
    def call(self, tokens, **arguments):
        return super().call(tokens + keras.ops.mean(tokens), **arguments)


def another_block(model):
    block = Doubled(3, 40, name="doubled")
    norm, pooling = layers.LayerNorm(), layers.ClassTokenPooling()
    tokens = model.get_layer("encoder_block_1").output
    return keras.Model(model.input, pooling(norm(block(tokens))))


@pytest.mark.parametrize(
    "change",
    [
        also("encoder_block_1"),
        also("encoder_norm"),
        mean_beside,
        beside_a_part,
        in_a_class,
        of_a_class,
        another_block,
    ],
)
def test_where_more_is_used_all_is_computed(change):
    model = change(small_models.shared())
    assert blocks_for_class_token(model) == frozenset()
    images = normal((2, 32, 48, 3))
    with lean(model)():
        found = keras.tree.flatten(model(images))
    for one, expected in zip(found, keras.tree.flatten(model(images)), strict=True):
        np.testing.assert_array_equal(numpy(one), numpy(expected))


@pytest.mark.parametrize("pooling", ["gap", None])
def test_models_that_use_all_tokens(pooling):
    model = small_models.made(pooling=pooling)
    assert blocks_for_class_token(model) == frozenset()


def test_watchers_see_all_tokens():
    model = small_models.shared()
    images = images_of(model)
    expected = keras_vit.explain.attention_maps(model, images)
    with lean(model)():
        found = keras_vit.explain.attention_maps(model, images)
    np.testing.assert_array_equal(found, expected)
