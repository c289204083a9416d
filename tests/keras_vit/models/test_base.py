"""Models know what they are, copies too, and compute no token that nothing needs."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import small_models
from harness import gradients, normal, numpy, randomize

import keras_vit
import zoo
from keras_vit import layers
from keras_vit.layers.forward_pass import Watcher, running
from keras_vit.models.base import Description, Model, of_features
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig
from zoo.network.head import ONE_CLASS

# All tokens go into what the others pool.
_OF_ALL = {"mean of the tokens", "rotary, attention pooling"}
OF_ONE_TOKEN = sorted(small_models.POOLED.keys() - _OF_ALL)


def images_of(model):
    return normal((2, *model.input_shape[1:]))


def in_full(model):
    """A clone with the same weights, which computes all tokens."""
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


@pytest.mark.parametrize("kind", small_models.MODELS)
def test_a_model_knows_what_it_is(kind):
    model = small_models.shared(kind)
    said = json.loads(json.dumps(model.description.get_config()))
    assert Description.from_config(said) == model.description
    arguments = small_models.MODELS[kind]
    assert model.config == arguments.get("config", small_models.PLAIN).completed()
    assert model.description.pooling == arguments.get("pooling", "token")
    assert model.description.image_size == small_models.SIZE
    found = any(isinstance(one, layers.ClassToken) for one in model.layers)
    assert model.description.class_token == found


def test_copies_of_another_size_know_it():
    model = small_models.shared()
    other = keras_vit.at_image_size(model, (48, 64), "bicubic")
    assert other.description.image_size == (48, 64)
    assert other.config.position_resizing == "bicubic"
    of_any = keras_vit.at_image_size(other, (None, None))
    assert of_any.description == other.description
    inner = keras_vit.at_image_size(wrapped(model), (48, 64)).get_layer(model.name)
    assert inner.config == model.config
    assert inner.description.image_size == (48, 64)


@pytest.mark.parametrize("kind", OF_ONE_TOKEN)
def test_one_token_of_the_last_block_gives_the_same(kind, monkeypatch):
    model = small_models.shared(kind)
    images = images_of(model)
    expected = numpy(in_full(model)(images))
    seen = small_models.seen_by(monkeypatch)
    found = numpy(model(images))
    assert seen == [False, True]
    np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize(("kind", "remat"), [("plain", True), ("registers", False)])
def test_gradients_are_those_of_all_tokens(kind, remat):
    model = small_models.made(**small_models.POOLED[kind], remat=remat)
    images = images_of(model)
    found = gradients(model, images, training=True)
    expected = gradients(in_full(model), images, training=True)
    for one, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, theirs, atol=2e-6)


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
    with running(watcher=Watcher()):
        expected = numpy(model(images))
    seen = small_models.seen_by(monkeypatch)
    found = keras_vit.Predictor(model)(images)
    assert seen == [False, True]
    np.testing.assert_allclose(found, expected, atol=2e-6)


def all_tokens_too(model):
    tokens = model.get_layer("encoder_block_1").output
    return keras.Model(model.input, [model.output, tokens])


def beside_a_part(model):
    part = keras.Model(model.input, model.get_layer("encoder_block_1").output)
    images = keras.Input(model.input_shape[1:])
    mean = keras.layers.GlobalAveragePooling1D()(part(images))
    return keras.Model(images, keras.layers.Concatenate()([mean, model(images)]))


class WithAPart(keras.Model):
    """A functional model with a call of its own."""

    def call(self, images, training=None):
        tokens = self.get_layer("class_token")(self.get_layer("embedding")(images))
        return self.get_layer("encoder_block_1")(tokens)


@pytest.mark.parametrize(
    "change",
    [
        all_tokens_too,
        beside_a_part,
        lambda model: WithAPart(model.input, model.output),
    ],
)
def test_where_more_is_used_all_is_computed(change):
    model = change(small_models.shared())
    images = normal((2, 32, 48, 3))
    found = keras.tree.flatten(model(images))
    with running(watcher=Watcher()):
        wanted = keras.tree.flatten(model(images))
    for one, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(numpy(one), numpy(expected), atol=2e-6)


@pytest.mark.parametrize("pooling", ["token", "gap", None])
def test_parts_for_features_know_what_they_are(pooling):
    model = small_models.made(pooling=pooling)
    part = of_features(model, model.get_layer("head").input)
    assert part.description == model.description
    for one in (model, part):
        assert (one.class_token_block is None) == (pooling != "token")


@pytest.mark.parametrize("kind", ["hybrid", "relative", "relative biases"])
def test_variables_have_the_same_paths_whenever_a_model_is_made(kind):
    """A checkpoint of a run that goes on in the same process has them."""
    first, second = (small_models.made(**small_models.MODELS[kind]) for _ in range(2))
    paths = [[weight.path for weight in model.weights] for model in (first, second)]
    assert paths[0] == paths[1]


@pytest.mark.parametrize("kind", ["plain", "hybrid", "registers", "relative biases"])
def test_a_network_built_anew_computes_the_same(kind):
    model = small_models.shared(kind)
    again = model.rebuild()
    images = images_of(model)
    np.testing.assert_array_equal(numpy(again(images)), numpy(model(images)))
    assert (again.name, again.description) == (model.name, model.description)
    head = model.rebuild(classes=3, dtype="mixed_bfloat16")
    assert head.output_shape == (None, 3)
    assert head.get_layer("encoder_block_0").compute_dtype == "bfloat16"
    for one, other in zip(model.weights[:-2], head.weights[:-2], strict=True):
        np.testing.assert_array_equal(numpy(one), numpy(other))


def test_a_network_is_built_anew_with_another_pooling_and_size():
    model = small_models.made(include_top=False, pooling="token")
    mean = model.rebuild(pooling="gap", image_size=(None, None))
    assert mean.description.class_token and mean.input_shape == (None, None, None, 3)
    images = images_of(model)
    tokens = model.rebuild(pooling=None)(images)
    expected = numpy(tokens)[:, 1:].mean(axis=1)
    np.testing.assert_allclose(numpy(mean(images)), expected, atol=1e-5)
    with pytest.raises(zoo.CheckpointError, match="head was trained on.*new_head=True"):
        small_models.shared().rebuild(pooling="gap")
    with pytest.raises(ValueError, match="does not know which network"):
        Model(model.input, model.output).rebuild()


def test_a_width_of_a_resnet_that_there_is_not_means_nothing():
    config = dataclasses.replace(small_models.PLAIN, resnet_width=32)
    model = small_models.made(config)
    assert model.rebuild(classes=3).output_shape == (None, 3)


FACTS = {
    # Names of two alphabets, one twice as in ImageNet, one without letters.
    "class_names": ("crane", "crane", "Käfer", "猫", ""),
    "preparation": "central crop",
    "problem_type": "multi_label_classification",
    "bits": 12,
}
# Each has layers that others have not.
KINDS = ("plain", "hybrid", "registers", "rotary, attention pooling", "relative biases")


def frozen(kind):
    """A model whose head alone is trained, which knows its classes and preparation."""
    if kind == "bit":
        model = BiTResNet(BiTConfig((1,)), image_size=small_models.SIZE, classes=5)
        randomize(model)
    else:
        model = small_models.made(**small_models.MODELS[kind])
    for name, fact in FACTS.items():
        setattr(model.get_layer("head"), name, fact)
    for layer in model.layers[:-1]:
        layer.trainable = False
    return model


def said_by(head):
    assert isinstance(head, layers.ClassificationHead)
    return {name: getattr(head, name) for name in FACTS}


def saved(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def cloned(model, folder):
    copy = keras.models.clone_model(model)
    model.save_weights(folder / "model.weights.h5")
    copy.load_weights(folder / "model.weights.h5")
    return copy


def of_any_size(model, folder):
    return saved(keras_vit.at_image_size(model, (None, None)), folder)


def of_int8(model, folder):
    return saved(keras_vit.quantize_weights(model), folder)


def inside(model, folder):
    images = keras.Input(model.input_shape[1:])
    return saved(keras.Model(images, model(images)), folder).layers[-1]


CASES = [(kind, habit) for kind in KINDS for habit in (saved, of_any_size)]
CASES += [("bit", habit) for habit in (saved, cloned)]
CASES += [("plain", habit) for habit in (cloned, inside)]
CASES += [(kind, of_int8) for kind in ("plain", "hybrid", "bit")]


@pytest.mark.parametrize(("kind", "habit"), CASES)
def test_copies_are_as_the_first(kind, habit, tmp_path):
    model = frozen(kind)
    copy = habit(model, tmp_path)
    images = images_of(model)
    expected, found = numpy(model(images)), numpy(copy(images))
    tolerance = 0.1 if habit is of_int8 else 2e-6
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
    trained = {weight.path.split("/")[-2] for weight in copy.trainable_weights}
    assert trained == {"head"}
    assert said_by(copy.get_layer("head")) == FACTS
    if habit is cloned:
        # A clone is a graph of any kind.
        assert copy.config is None
    else:
        assert copy.description == model.description


@pytest.mark.parametrize("kind", ["plain", "bit"])
def test_a_network_built_anew_keeps_what_its_head_says(kind):
    model = frozen(kind)
    head, images = model.get_layer("head"), images_of(model)
    assert said_by(model.rebuild().get_layer("head")) == FACTS
    np.testing.assert_array_equal(numpy(model.rebuild()(images)), numpy(model(images)))
    for options in ({"classes": 3}, {"new_head": True}):
        said = said_by(model.rebuild(**options).get_layer("head"))
        assert said == FACTS | {"class_names": None, "problem_type": ONE_CLASS}
    without = model.rebuild(include_top=False)
    expected = keras.Model(model.input, head.input)(images)
    np.testing.assert_allclose(numpy(without(images)), numpy(expected), atol=2e-6)
