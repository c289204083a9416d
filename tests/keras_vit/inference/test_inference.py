"""Photos of any size and kind through a model: `classify` and `embed`."""

import functools
import pathlib
import threading
import warnings

import keras
import numpy as np
import pytest
from harness import check_refusal, numpy, randomize
from layer_references import softmax
from PIL import Image

import keras_vit
import zoo
from keras_vit import Predictor, VisionTransformer, ViTConfig, classify, embed
from keras_vit.explain import attention_maps, gradient_attention
from zoo import photos

PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)
NAMES = ("cat", "dog", "elk", "emu", "fox")
SIZE = (16, 24)


def made(**options):
    if options.get("include_top", True):
        options = {"classes": 5, "class_names": NAMES} | options
    model = VisionTransformer(PLAIN, image_size=SIZE, **options)
    randomize(model)
    return model


@pytest.fixture(scope="module")
def model():
    return made()


@pytest.fixture(scope="module")
def arrays():
    """Photos of several sizes, one of them gray."""
    random = np.random.RandomState(0)
    shapes = [(40, 30, 3), (16, 24, 3), (9, 50, 3), (33, 33), (100, 20, 3)]
    return [random.randint(0, 256, shape, np.uint8) for shape in shapes]


def prepared(arrays, preparation="squash", channels=3):
    inputs = [
        photos.prepare(one, SIZE, preparation, channels=channels) for one in arrays
    ]
    return np.stack(inputs)


def expected_of(model, arrays, activated=False, pixels=False, **preparation):
    """Probabilities by the model itself."""
    inputs = prepared(arrays, **preparation)
    outputs = numpy(model(127.5 * inputs + 127.5 if pixels else inputs))
    return outputs if activated else softmax(outputs)


def check(answers, probabilities, names=NAMES, top=5):
    assert len(answers) == len(probabilities)
    for answer, row in zip(answers, probabilities, strict=True):
        numbers = [number for number, _, _ in answer]
        assert numbers == np.argsort(-row, kind="stable")[:top].tolist()
        assert [name for _, name, _ in answer] == [names[number] for number in numbers]
        found = [probability for *_, probability in answer]
        np.testing.assert_allclose(found, row[numbers], atol=1e-5)
        assert all(type(one) is float for one in found)


def test_bits_of_photos_of_12_bits(model, goldens):
    path = goldens / "photos" / "grey_12_bits_in_16.png"
    pixels = photos.decode(path, bits=12)
    assert classify(model, path, bits=12) == classify(model, pixels)
    found = embed(model, path, bits=12)
    np.testing.assert_array_equal(found, embed(model, pixels))
    with pytest.warns(UserWarning, match="bits=12"):
        assert np.abs(embed(model, path) - found).max() > 1e-3


def test_photos_of_every_kind(model, arrays, tmp_path):
    for number, array in enumerate(arrays):
        Image.fromarray(array).save(tmp_path / f"{number}.png")
    paths = sorted(tmp_path.glob("*.png"))
    contents = [path.read_bytes() for path in paths]
    probabilities = expected_of(model, arrays)
    for photos_of_a_kind in (
        arrays,
        np.array([str(path) for path in paths]),
        [bytearray(content) for content in contents],
        [keras.ops.convert_to_tensor(array) for array in arrays],
        [array.astype("float32") for array in arrays],
        [arrays[0], paths[1], contents[2], Image.open(paths[3]), str(paths[4])],
        iter(arrays),
    ):
        check(classify(model, photos_of_a_kind, batch_size=2), probabilities)
    features = embed(model, paths, batch_size=2)
    np.testing.assert_allclose(features, embed(model, arrays), atol=1e-5)
    # One photo is a list of one.
    one = arrays[0], paths[0], str(paths[0]), contents[0], Image.open(paths[0])
    for photo in (*one, arrays[0][None]):
        check(classify(model, photo, top=2), probabilities[:1], top=2)
        assert embed(model, photo).shape == (1, 24)


def test_no_photos(model):
    assert classify(model, []) == []
    assert embed(model, iter(())).shape == (0, 24)


def around(*layers, size=(*SIZE, 3)):
    """A model of layers behind the images."""
    return keras.Sequential([keras.Input(size), *layers])


def of_a_dense_head():
    images = keras.Input((*SIZE, 3))
    head = keras.layers.Dense(5, name="head")
    model = keras.Model(images, head(made(include_top=False)(images)))
    randomize(model)
    return model


def before(layer):
    model = made()
    return keras.Model(model.input, layer(model.output))


# How a model is made, and what `expected_of` has to know of it.
ANSWERING = {
    "central crop": (lambda: made(preparation="central crop"),
        {"preparation": "central crop"}),
    "gray": (lambda: made(channels=1), {"channels": 1}),
    "softmax": (lambda: made(classifier_activation="softmax"), {"activated": True}),
    "sigmoid": (lambda: made(classifier_activation="sigmoid"), {"activated": True}),
    "a softmax layer": (lambda: before(keras.layers.Softmax()), {"activated": True}),
    "in a model": (lambda: around(made()), {}),
    "of pixels": (lambda: around(keras.layers.Rescaling(1 / 127.5, -1.0), made()),
        {"pixels": True}),
    "names of the call": (of_a_dense_head, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERING)
def test_answers_are_those_of_the_model(kind, arrays):
    make, known = ANSWERING[kind]
    model = make()
    names = {"class_names": NAMES} if kind == "names of the call" else {}
    check(classify(model, arrays, **names), expected_of(model, arrays, **known))


def test_a_file_of_a_model_that_was_used_knows_its_classes(model, arrays, tmp_path):
    # The function compiled beside the model is not saved with it.
    classify(model, arrays[0])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    check(classify(again, arrays), expected_of(model, arrays))


def test_a_thousand_classes_are_imagenets_only_where_somebody_says_so(arrays):
    model = made(classes=1000, class_names=None)
    best = expected_of(model, arrays[:1]).argmax()
    names = zoo.class_names("imagenet2012")
    [[found]] = classify(model, arrays[0], top=1, class_names="imagenet2012")
    assert found[:2] == names[best]
    # Weights by their path get 1,000 classes, not one per letter.
    made_so = VisionTransformer(PLAIN, image_size=SIZE, class_names="imagenet2012")
    made_so.set_weights(model.get_weights())
    assert classify(made_so, arrays[0], top=1) == [[found]]
    model.get_layer("head").class_names = [f"my {number}" for number in range(1000)]
    assert classify(model, arrays[0], top=1)[0][0][:2] == (best, f"my {best}")


@pytest.mark.parametrize(
    ("options", "layer", "width"),
    [
        ({"include_top": False, "pooling": "gap"}, "pooling", 24),
        ({"channels": 1}, "pooling", 24),
        ({"include_top": False, "representation_size": 7}, "pre_logits", 7),
        ({"dtype": "mixed_bfloat16"}, "pooling", 24),
    ],
)
def test_features_of_every_kind_of_model(options, layer, width, arrays):
    model = made(**options)
    found = embed(model, arrays)
    assert (found.shape, found.dtype) == ((5, width), "float32")
    body = keras.Model(model.input, model.get_layer(layer).output)
    expected = numpy(body(prepared(arrays, channels=options.get("channels", 3))))
    atol = 0.1 if "dtype" in options else 1e-5
    np.testing.assert_allclose(found, expected, atol=atol)


def broken():
    model = made()
    model.get_layer("head").bias.assign([np.nan] * 5)
    return model


def of_four_channels():
    head = keras_vit.layers.ClassificationHead(5, class_names=NAMES)
    return around(keras.layers.Flatten(), head, size=(*SIZE, 4))


def two_outputs():
    model = made()
    return keras.Model(model.inputs, [model.outputs[0]] * 2)


class Own(keras.Model):
    def call(self, images):
        return images


NO_NAMES = "No class names are known for"
ANY = (classify, embed, Predictor, gradient_attention)
ONE = (classify,)
# A model, functions that refuse it, and what they say.
MODELS = [
    (lambda: made(pooling=None), (classify, embed), "transformer ends in the layer"),
    (lambda: before(keras.layers.ReLU(name="relu")), (embed,),
      "in the layer relu", "end in a head"),
    (lambda: made(classifier_activation="relu"), ONE, "classifier_activation=None"),
    (lambda: VisionTransformer(PLAIN, image_size=SIZE, class_names=NAMES), ONE,
     "Every class has the same score: the head is"),
    (broken, ONE, "outputs of", "are not finite"),
    (of_four_channels, ONE, "photos have a fixed height and width and 1"),
    (lambda: made(class_names=None), ONE, f"{NO_NAMES} 5 classes: pass"),
    (lambda: around(made(), keras.layers.Dense(2)), ONE, f"{NO_NAMES} 2 classes"),
    (lambda: made(class_names=None, classes=1000), ONE, '"imagenet2012" if they'),
    (lambda: made(include_top=False), ONE, "for features call keras_vit.embed"),
    (Own, (*ANY, attention_maps), "a Own, does not say its in", ": pass keras.Model"),
    (two_outputs, ANY, "and 2 outputs", ": pass keras.Model"),
]  # fmt: skip


@pytest.mark.parametrize("row", MODELS)
def test_models_that_are_refused(row, arrays):
    make, functions, *parts = row
    model, ready = make(), np.zeros((1, *SIZE, 3), "float32")
    for function in functions:
        given = arrays if function in (classify, embed) else ready
        given = (model,) if function is Predictor else (model, given)
        check_refusal(functools.partial(function, *given), *parts)


FOLDER = pathlib.Path(__file__).parent
PHOTO = np.zeros((9, 9, 3), "uint8")


@pytest.mark.parametrize(
    ("given", "names", "part"),
    [
        (FOLDER, None, "photos[0]: "),
        ([PHOTO, str(FOLDER)], None, "is a folder: pass its fi"),
        (
            [PHOTO, PHOTO, b"no image"],
            None,
            "photos[2]: This file cannot be read as an",
        ),
        (keras_vit.preprocess_input(PHOTO), None, "leave preprocess_input out"),
        (7, None, "or an iterable of them, got int"),
        (PHOTO, NAMES[1:], "class_names has 4 names for 5 classes"),
        (PHOTO, "abcde", "must be a sequence of str"),
    ],
)
def test_photos_and_names_that_are_refused(given, names, part, model):
    check_refusal(lambda: classify(model, given, class_names=names), part)


def test_the_model_is_compiled_once(arrays, monkeypatch):
    model, compiled = made(), []
    original = Predictor.__init__

    def counted(self, *args, **kwargs):
        compiled.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Predictor, "__init__", counted)
    head = model.get_layer("head")
    for value in (0.0, 1.0):
        # Weights are read anew.
        head.bias.assign([value, 0, 0, 0, 0])
        check(classify(model, arrays), expected_of(model, arrays))
        embed(model, arrays)
    assert len(compiled) == 2
    # Layers changed in place are compiled anew.
    head.activation = keras.activations.sigmoid
    head.preparation = "central crop"
    known = {"preparation": "central crop", "activated": True}
    check(classify(model, arrays), expected_of(model, arrays, **known))


def test_photos_are_prepared_in_threads_a_batch_ahead(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    threads, asked = set(), []

    def each():
        for number in range(100):
            asked.append(number)
            yield number

    def prepared(photo):
        threads.add(threading.current_thread().name)
        return "unread" if photo % 10 == 3 else np.full((1, 1), photo)

    seen, unread = [], []
    read = photos.batches(each(), prepared, 4, lambda *pair: unread.append(pair))
    for some, images in read:
        assert [*some] == images.ravel().tolist()
        seen += some
        assert len(asked) <= len(seen) + len(unread) + 8 + 1
    assert unread == [(number, "unread") for number in range(3, 100, 10)]
    assert seen == [number for number in range(100) if number % 10 != 3]
    assert threading.current_thread().name not in threads
    # One that is left early stops its threads.
    read = photos.batches(each(), prepared, 4, lambda *pair: None)
    next(read)
    read.close()
    assert not any(name in map(str, threading.enumerate()) for name in threads)


def test_a_forgotten_preprocess_input_is_warned_of_once(model, arrays):
    images = np.stack([photos.resize(array, SIZE) for array in arrays[:3]])
    for one in (model, around(model)):
        predictor = Predictor(one)
        with pytest.warns(
            UserWarning, match=r"takes images in \[-1, 1\].*preproc"
        ) as w:
            predictor(images)
            predictor(images)
        assert [warned.filename for warned in w] == [__file__]
    # A dark photo first.
    with pytest.warns(UserWarning, match="these go up to 2"):
        Predictor(model)(np.stack([np.zeros_like(images[0]), images[0]]))
    with pytest.warns(UserWarning, match="preprocess_input"):
        attention_maps(model, images)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Another mean and deviation, as hybrids of other libraries take them.
        Predictor(model)(keras_vit.preprocess_input(images) * 2.7)
        Predictor(around(keras.layers.Rescaling(1 / 127.5, -1.0), model))(images)
        classify(model, arrays)
