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
from zoo import photos, regular_files

PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)
PHOTO = np.zeros((20, 20, 3), "uint8")
IMAGES = np.zeros((1, 16, 24, 3), "float32")
SCORES = np.eye(2)
# Arguments that are no models, no numbers and no counts.
NO_MODELS = ("photo.jpg", None, keras_vit.ViT_Ti16, IMAGES, ["model.keras"])
NO_NUMBERS = ("photo.jpg", None, b"GIF89a", ["a.jpg"], [[1, 2], [3]], [PHOTO, None],
              np.array(["a"]), np.array([PHOTO, None], object))  # fmt: skip
NO_COUNTS = ("3", 0, -1, 1.5, True, [1])
TAKES_MODELS = {
    "classify": lambda model: keras_vit.classify(model, PHOTO),
    "embed": lambda model: keras_vit.embed(model, PHOTO),
    "Predictor": lambda model: Predictor(model),
    "features": lambda model: keras_vit.features(model),
    "at_image_size": lambda model: keras_vit.at_image_size(model, 32),
    "quantize_weights": lambda model: keras_vit.quantize_weights(model),
    "save": lambda model: keras_vit.save_released_weights(model, "weights.npz"),
    "load": lambda model: keras_vit.load_released_weights(model, "weights.npz"),
    "attention_maps": lambda model: explain.attention_maps(model, IMAGES),
    "grid_size": lambda model: explain.grid_size(model),
}
TAKES_NUMBERS = {
    "preprocess_input": (
        lambda model, images: keras_vit.preprocess_input(images),
        "^images must be an array or a tensor of numbers.*keras_vit.classify and embed",
    ),
    "decode_predictions": (
        lambda model, scores: keras_vit.decode_predictions(scores),
        "^predictions must be an array or a tensor of numbers.*model.predict returns",
    ),
    "Predictor": (
        lambda model, images: Predictor(model)(images),
        "^images must be an array or a tensor of numbers.*keras_vit.classify and embed",
    ),
    "attention_maps": (
        lambda model, images: explain.attention_maps(model, images),
        "^images must be an array or a tensor of numbers.*keras_vit.classify and embed",
    ),
}
OTHERS = {
    "top": (
        NO_COUNTS,
        lambda model, top: keras_vit.classify(model, PHOTO, top=top),
        "^top must be a positive int",
    ),
    "top of scores": (
        (*NO_COUNTS, None, ["a", "b"]),
        lambda model, top: keras_vit.decode_predictions(SCORES, top, ["a", "b"]),
        "^top must be a positive int",
    ),
    "batch_size": (
        ("8", 0, None),
        lambda model, size: keras_vit.embed(model, PHOTO, batch_size=size),
        "^batch_size must be a positive int",
    ),
    "bits": (
        ("12", 12.0, 7),
        lambda model, bits: keras_vit.classify(model, [], bits=bits),
        "^bits must be 8 to 16 or None",
    ),
    "class_names": (
        (5, "cat", [1, 2]),
        lambda model, names: keras_vit.classify(model, PHOTO, class_names=names),
        "^class_names",
    ),
    "photos": (
        (None, 5, keras.layers.ReLU()),
        lambda model, given: keras_vit.classify(model, given),
        "^photos are paths, bytes, arrays or images",
    ),
    "one of photos": (
        (None, 5, ["a.jpg"], [[1, 2], [3]], np.array(["a"])),
        lambda model, photo: keras_vit.embed(model, [PHOTO, photo]),
        r"^photos\[1\]: A photo is",
    ),
    "photo": (
        (None, "", [PHOTO, "a"], {}, PLAIN),
        lambda model, photo: photos.decode(photo),
        "^A photo is a path, the bytes of a file|cannot be opened .*: check the path",
    ),
    "photo of text": (
        (["a"], np.array(["a"]), [["a"]], np.array([["a"]]), np.array([[True]])),
        lambda model, photo: photos.decode(photo),
        "^A photo is a path, the bytes of a file, .* or an array of numbers, got",
    ),
    "path": (
        ("a\0b.jpg", pathlib.Path("a\0b.jpg"), "a\ud800.jpg"),
        lambda model, path: keras_vit.embed(model, path),
        r"^photos\[0\]: path is .*(a\\x00b|a\\ud800).jpg., with a null byte .*: take",
    ),
    "weights": (
        ("a\0b.npz", "a\0b/c"),
        lambda model, path: keras_vit.load_released_weights(model, path),
        r"is .*a\\x00b.*, with a null byte .*: take it out",
    ),
    "engine": (
        (None, 5, []),
        lambda model, engine: Predictor(model, engine=engine),
        "^engine must be one of auto, keras",
    ),
    "layers": (
        (None, 1.5, "head", [None], [[0]], b"pooled", np.array([[0, 1]])),
        lambda model, layers: keras_vit.features(model, layers),
        "has no layer .*: pass numbers from -1 to 0",
    ),
    "no layers": (
        ([], {}, np.array(1)),
        lambda model, layers: keras_vit.features(model, layers),
        r"^layers are (\[\]|\{\}|array\(1\)): pass numbers",
    ),
    "image_size": (
        ("32", None, 32.0, (32, "48"), (32, None)),
        lambda model, size: keras_vit.at_image_size(model, size),
        "^image_size must be a positive int or",
    ),
    "classes": (
        (["cat", "dog"], "2", 0),
        lambda model, classes: VisionTransformer(PLAIN, classes=classes),
        "^classes must be a positive int.*names are class_names=",
    ),
    "config": (
        (None, 5, {}),
        lambda model, config: VisionTransformer(config),
        "^config must be a ViTConfig or the name of a variant",
    ),
}


@pytest.fixture(scope="module")
def model():
    made = VisionTransformer(PLAIN, image_size=(16, 24), class_names=["a", "b"])
    made.get_layer("head").set_weights([np.ones((24, 2)), np.array([0, 2.0])])
    return made


def refusal(call, *given):
    """Returns the message of a refusal, which must be one short line."""
    with pytest.raises((ValueError, OSError)) as caught:
        call(*given)
    message = str(caught.value)
    assert "\n" not in message and r"\x0a" not in message and len(message) < 300
    return message


@pytest.mark.parametrize("call", TAKES_MODELS.values(), ids=TAKES_MODELS)
def test_a_model_is_asked_for_by_name(call):
    for given in NO_MODELS:
        message = refusal(call, given)
        assert message.startswith("model must be a keras.Model, got ")
        assert "keras.saving.load_model" in message


@pytest.mark.parametrize(("call", "pattern"), TAKES_NUMBERS.values(), ids=TAKES_NUMBERS)
def test_arrays_are_asked_for_by_name(call, pattern, model):
    for given in NO_NUMBERS:
        with pytest.raises(ValueError, match=pattern):
            call(model, given)
        refusal(call, model, given)


@pytest.mark.parametrize(("values", "call", "pattern"), OTHERS.values(), ids=OTHERS)
def test_other_arguments_are_asked_for_by_name(values, call, pattern, model):
    for given in values:
        with pytest.raises((ValueError, OSError), match=pattern):
            call(model, given)
        refusal(call, model, given)


@pytest.mark.parametrize("call", [keras_vit.classify, keras_vit.embed])
@pytest.mark.parametrize("kind", [str, pathlib.Path])
def test_a_photo_that_is_not_there_is_named_once_with_what_to_do(call, kind, model):
    with pytest.raises(FileNotFoundError) as caught:
        call(model, kind("nosuch.jpg"))
    assert str(caught.value) == (
        "photos[0]: nosuch.jpg cannot be opened (No such file or directory): check "
        "the path."
    )


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
    with pytest.raises(OSError, match="cannot be opened") as caught:
        keras_vit.classify(model, "a.jpg")
    error = caught.value
    assert isinstance(error, type(OSError(code, "")))
    copied = pickle.loads(pickle.dumps(error))
    for one in (error, copied):
        assert (one.errno, one.strerror) == (code, os.strerror(code))
        assert one.filename == "a.jpg"
        assert str(one) == (
            f"photos[0]: a.jpg cannot be opened ({os.strerror(code)}): {remedy}."
        )


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
    assert list(keras_vit.features(model, np.int64(-1)).output) == ["layer_0"]
    assert list(keras_vit.features(model, np.arange(1)).output) == ["layer_0"]
