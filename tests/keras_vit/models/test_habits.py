"""What users do with Keras models: copies compute and know what the first did."""

import keras
import numpy as np
import pytest
import small_models
from harness import normal, numpy, randomize

import keras_vit
from keras_vit.layers import ClassificationHead
from keras_vit.models.bit import BiTResNet
from keras_vit.runtimes.precision import in_precision
from zoo.network import BiTConfig

# Of two alphabets; a name twice, as ImageNet has; one without letters.
NAMES = ("crane", "crane", "Käfer", "猫", "")
# Each has layers that others have not.
KINDS = ("plain", "hybrid", "registers", "rotary, attention pooling", "relative biases")


def made(kind, **options):
    """A model whose head alone is trained, which knows its classes and preparation."""
    if kind == "bit":
        model = BiTResNet(BiTConfig((1,)), image_size=small_models.SIZE, classes=5)
        randomize(model)
    else:
        model = small_models.made(**small_models.MODELS[kind], **options)
    head = model.get_layer("head")
    head.class_names, head.preparation = list(NAMES), "central crop"
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


def inside(model):
    images = keras.Input(model.input_shape[1:])
    return keras.Model(images, model(images))


HABITS = {
    "saved": saved,
    "cloned": cloned,
    "resized": lambda model, _: keras_vit.at_image_size(model, small_models.SIZE),
    "of any size": lambda model, _: keras_vit.at_image_size(model, (None, None)),
    "of any size, saved": lambda model, folder: saved(
        keras_vit.at_image_size(model, (None, None)), folder
    ),
    "int8": lambda model, _: keras_vit.quantize_weights(model),
    "int8, saved": lambda model, folder: saved(
        keras_vit.quantize_weights(model), folder
    ),
    "int8, resized": lambda model, _: keras_vit.at_image_size(
        keras_vit.quantize_weights(model), small_models.SIZE
    ),
    "in a model, saved": lambda model, folder: saved(inside(model), folder).layers[-1],
}
FEW = ("saved", "cloned", "of any size, saved", "int8, saved")
CASES = [("plain", habit) for habit in HABITS]
CASES += [(kind, habit) for kind in KINDS[1:] for habit in FEW]
CASES += [("bit", habit) for habit in ("saved", "cloned", "int8, saved")]


@pytest.mark.parametrize(("kind", "habit"), CASES)
def test_copies_are_as_the_first(kind, habit, tmp_path):
    model = made(kind)
    copy = HABITS[habit](model, tmp_path)
    images = normal((2, *model.input_shape[1:]))
    expected, found = numpy(model(images)), numpy(copy(images))
    tolerance = 0.1 if habit.startswith("int8") else 2e-6
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()
    trained = {weight.path.split("/")[-2] for weight in copy.trainable_weights}
    assert trained == {"head"}
    head = copy.get_layer("head")
    assert isinstance(head, ClassificationHead)
    assert (head.class_names, head.preparation) == (NAMES, "central crop")
    assert type(head.class_names) is tuple
    if habit == "cloned":
        # A clone is a graph of any kind.
        assert copy.config is None
    else:
        assert copy.description == model.description


def in_float16(layer):
    return type(layer).from_config({**layer.get_config(), "dtype": "float16"})


def test_heads_know_their_classes_in_other_dtypes_and_on_other_bodies(tmp_path):
    model = made("plain")
    half = keras.models.clone_model(model, clone_function=in_float16)
    pooled = model.get_layer("pooling").output
    for copy in (
        saved(half, tmp_path),
        in_precision(made("plain", dtype="bfloat16")),
        keras.Model(model.input, model.get_layer("head")(pooled * 2)),
    ):
        head = copy.layers[-1]
        assert isinstance(head, ClassificationHead) and head.name == "head"
        assert (head.class_names, head.preparation) == (NAMES, "central crop")


def test_a_step_of_training_moves_what_is_trained_alone():
    model = made("plain")
    before = [numpy(weight) for weight in model.weights]
    # Compiled, the same takes ten times as long, nearly all of it the compiler's.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(1.0), "mse", run_eagerly=eager)
    images = normal((2, *model.input_shape[1:]))
    model.train_on_batch(images, np.ones((2, 5), "float32"))
    moved = {
        weight.path.split("/")[-2]
        for weight, old in zip(model.weights, before, strict=True)
        if (numpy(weight) != old).any()
    }
    assert moved == {"head"}
