"""What users do with Keras models: copies compute and know what the first did."""

import keras
import numpy as np
import pytest
import small_models
from harness import normal, numpy, randomize

import keras_vit
from keras_vit.layers import ClassificationHead
from keras_vit.models.bit import BiTResNet
from zoo.network import BiTConfig

FACTS = {
    # Of two alphabets; a name twice, as ImageNet has; one without letters.
    "class_names": ("crane", "crane", "Käfer", "猫", ""),
    "preparation": "central crop",
    "problem_type": "multi_label_classification",
    "bits": 12,
}
# Each has layers that others have not.
KINDS = ("plain", "hybrid", "registers", "rotary, attention pooling", "relative biases")


def made(kind):
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


CASES = [(kind, habit) for kind in KINDS for habit in (saved, of_any_size, of_int8)]
CASES += [("bit", habit) for habit in (saved, cloned, of_int8)]
CASES += [("plain", habit) for habit in (cloned, inside)]


@pytest.mark.parametrize(("kind", "habit"), CASES)
def test_copies_are_as_the_first(kind, habit, tmp_path):
    model = made(kind)
    copy = habit(model, tmp_path)
    images = normal((2, *model.input_shape[1:]))
    expected, found = numpy(model(images)), numpy(copy(images))
    tolerance = 0.1 if habit is of_int8 else 2e-6
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
    trained = {weight.path.split("/")[-2] for weight in copy.trainable_weights}
    assert trained == {"head"}
    head = copy.get_layer("head")
    assert isinstance(head, ClassificationHead)
    assert {name: getattr(head, name) for name in FACTS} == FACTS
    if habit is cloned:
        # A clone is a graph of any kind.
        assert copy.config is None
    else:
        assert copy.description == model.description
