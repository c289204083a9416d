"""Arguments of wrong types are named, with what to pass instead, in one line."""

import errno
import os
import pathlib
import pickle

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import Predictor, VisionTransformer, ViTConfig, explain
from zoo import photos
from zoo.common import regular_files

PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)
PHOTO = np.zeros((20, 20, 3), "uint8")
IMAGES = np.zeros((1, 16, 24, 3), "float32")
SCORES = np.eye(2)
NO_MODELS = ("photo.jpg", None, keras_vit.ViT_Ti16, IMAGES, ["model.keras"])
NO_NUMBERS = ("photo.jpg", None, b"GIF89a", ["a.jpg"], [[1, 2], [3]], [PHOTO, None],
              np.array(["a"]), np.array([PHOTO, None], object))  # fmt: skip
NO_COUNTS = ("3", 0, -1, 1.5, True, [1])
MODEL = "^model must be a keras.Model, got .*keras.saving.load_model"
NUMBERS = "must be an array or a tensor of numbers"
OF_PHOTOS = f"^images {NUMBERS}.*keras_vit.classify and embed"
COUNT = "must be a positive int"
# A function of a model and an argument, wrong values of it, and what is said of each.
REFUSED = [
    *((lambda _, given, takes=takes: takes(given), NO_MODELS, MODEL) for takes in (
        lambda model: keras_vit.classify(model, PHOTO),
        lambda model: keras_vit.embed(model, PHOTO),
        Predictor,
        keras_vit.features,
        lambda model: keras_vit.at_image_size(model, 32),
        keras_vit.quantize_weights,
        lambda model: keras_vit.save_released_weights(model, "weights.npz"),
        lambda model: keras_vit.load_released_weights(model, "weights.npz"),
        lambda model: explain.attention_maps(model, IMAGES),
        explain.grid_size,
    )),
    (lambda model, images: keras_vit.preprocess_input(images), NO_NUMBERS, OF_PHOTOS),
    (lambda model, scores: keras_vit.decode_predictions(scores), NO_NUMBERS,
        f"^predictions {NUMBERS}.*model.predict returns"),
    (lambda model, images: Predictor(model)(images), NO_NUMBERS, OF_PHOTOS),
    (explain.attention_maps, NO_NUMBERS, OF_PHOTOS),
    (lambda model, top: keras_vit.classify(model, PHOTO, top=top), NO_COUNTS,
        f"^top {COUNT}"),
    (lambda model, top: keras_vit.decode_predictions(SCORES, top, ["a", "b"]),
        (*NO_COUNTS, None, ["a", "b"]), f"^top {COUNT}"),
    (lambda model, size: keras_vit.embed(model, PHOTO, batch_size=size),
        ("8", 0, None), f"^batch_size {COUNT}"),
    (lambda model, bits: keras_vit.classify(model, [], bits=bits),
        ("12", 12.0, 7), "^bits must be 8 to 16 or None"),
    (lambda model, names: keras_vit.classify(model, PHOTO, class_names=names),
        (5, "cat", [1, 2]), "^class_names"),
    (keras_vit.classify, (None, 5, keras.layers.ReLU()),
        "^photos are paths, bytes, arrays or images"),
    (lambda model, photo: keras_vit.embed(model, [PHOTO, photo]),
        (None, 5, ["a.jpg"], [[1, 2], [3]], np.array(["a"])),
        r"^photos\[1\]: A photo is"),
    (keras_vit.embed, ("nosuch.jpg", pathlib.Path("nosuch.jpg")),
        r"^photos\[0\]: nosuch.jpg cannot be opened .No such [^:]*: check the path.$"),
    (lambda model, photo: photos.decode(photo), (None, "", [PHOTO, "a"], {}, PLAIN),
        "^A photo is a path, the bytes of a file|cannot be opened .*: check the path"),
    (lambda model, photo: photos.decode(photo),
        (["a"], np.array(["a"]), [["a"]], np.array([["a"]]), np.array([[True]])),
        "^A photo is a path, the bytes of a file, .* or an array of numbers, got"),
    (keras_vit.embed, ("a\0b.jpg", pathlib.Path("a\0b.jpg"), "a\ud800.jpg"),
        r"^photos\[0\]: path is .*(a\\x00b|a\\ud800).jpg., with a null byte .*: take"),
    (keras_vit.load_released_weights, ("a\0b.npz", "a\0b/c"),
        r"is .*a\\x00b.*, with a null byte .*: take it out"),
    (lambda model, engine: Predictor(model, engine=engine), (None, 5, []),
        "^engine must be one of auto, keras"),
    (keras_vit.features,
        (None, 1.5, "head", [None], [[0]], b"pooled", np.array([[0, 1]]), 1),
        "has no layer .*: pass numbers from -1 to 0"),
    (keras_vit.features, ([], {}, np.array(1)),
        r"^layers are (\[\]|\{\}|array\(1\)): pass numbers"),
    (keras_vit.at_image_size, ("32", None, 32.0, (32, "48"), (32, None)),
        f"^image_size {COUNT} or"),
    (lambda model, classes: VisionTransformer(PLAIN, classes=classes),
        (["cat", "dog"], "2", 0), f"^classes {COUNT}.*names are class_names="),
    (lambda model, config: VisionTransformer(config), (None, 5, {}),
        "^config must be a ViTConfig or the name of a variant"),
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    made = VisionTransformer(PLAIN, image_size=(16, 24), class_names=["a", "b"])
    made.get_layer("head").set_weights([np.ones((24, 2)), np.array([0, 2.0])])
    return made


@pytest.mark.parametrize(("call", "values", "pattern"), REFUSED)
def test_arguments_are_asked_for_by_name_in_one_short_line(
    call, values, pattern, model
):
    for given in values:
        with pytest.raises((ValueError, OSError), match=pattern) as caught:
            call(model, given)
        message = str(caught.value)
        assert "\n" not in message and r"\x0a" not in message and len(message) < 300


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ENOENT, "check the path"),
        (errno.EACCES, "allow this user to read it"),
        (errno.EMFILE, "close files that are open, or allow more (ulimit -n)"),
    ],
)
def test_a_photo_that_cannot_be_opened_keeps_the_error_of_the_system(
    code, remedy, model, monkeypatch
):
    def fail(path):
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(regular_files, "open_regular", fail)
    with pytest.raises(type(OSError(code, ""))) as caught:
        keras_vit.classify(model, "a.jpg")
    why = os.strerror(code)
    said = f"photos[0]: a.jpg cannot be opened ({why}): {remedy}."
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        facts = (error.errno, error.strerror, error.filename, str(error))
        assert facts == (code, why, "a.jpg", said)


def test_what_was_right_stays(model):
    right = np.array([[0.25, 0.75]])
    for scores in (right, right.tolist(), keras.ops.convert_to_tensor(right)):
        [[best]] = keras_vit.decode_predictions(scores, np.int64(1), ["a", "b"])
        assert best == (1, "b", 0.75)
    for images in (IMAGES, IMAGES.tolist(), list(IMAGES), IMAGES.astype(bool)):
        assert Predictor(model)(images).shape == (1, 2)
        assert keras_vit.preprocess_input(images).shape == IMAGES.shape
    symbolic = keras.Input((16, 24, 3), dtype="uint8")
    assert keras_vit.preprocess_input(symbolic).shape == (None, 16, 24, 3)
    for layers in (np.int64(-1), np.arange(1)):
        assert list(keras_vit.features(model, layers).output) == ["layer_0"]
