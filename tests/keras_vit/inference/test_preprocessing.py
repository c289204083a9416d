import urllib.parse

import keras
import numpy as np
import pytest
from keras import ops
from serving import serving_files, use_mirror

import zoo
from keras_vit import decode_predictions, preprocess_input

IDS = [f"n{index:08d}" for index in range(21843)]


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """Serves the label files under their real paths."""
    texts = {
        "imagenet21k_ids": "\n".join(IDS),
        "imagenet21k_lemmas": "\n".join(f"lemma {name}" for name in IDS),
    }
    for name, url in zoo.LABEL_FILES.items():
        file = tmp_path / urllib.parse.urlsplit(url).path.strip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(texts[name])
    with serving_files(tmp_path) as server:
        use_mirror(monkeypatch, server.url, tmp_path / "cache")
        yield


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
@pytest.mark.parametrize("convert", [np.array, ops.convert_to_tensor])
def test_preprocess_input(dtype, convert):
    values = np.arange(256).reshape(2, 8, 16).astype(dtype)
    images = convert(values)
    found = preprocess_input(images)
    assert isinstance(found, np.ndarray) == (convert is np.array)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    found = ops.convert_to_numpy(found)
    np.testing.assert_allclose(found, values / 127.5 - 1, atol=1e-7)
    np.testing.assert_array_equal(ops.convert_to_numpy(images), values)
    assert not np.shares_memory(found, ops.convert_to_numpy(images))


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_preprocess_input_in_a_pipeline(dtype, monkeypatch):
    """With every backend, where it is TensorFlow that makes the batches."""
    tf = pytest.importorskip("tensorflow")
    # Keras's backend has no part in it.
    monkeypatch.setattr("keras_vit.inference.preprocessing.ops", None)
    images = np.arange(12, dtype=dtype).reshape(3, 4)
    (mapped,) = tf.data.Dataset.from_tensors(images).map(preprocess_input)
    # And where it is called outside of it.
    for found in (mapped, preprocess_input(tf.constant(images))):
        assert isinstance(found, tf.Tensor) and found.dtype == "float32"
        np.testing.assert_array_equal(found, preprocess_input(images))


def test_preprocess_input_in_a_model():
    images = keras.Input((2, 3), dtype="uint8")
    model = keras.Model(images, preprocess_input(images))
    values = np.arange(6, dtype="uint8").reshape(1, 2, 3)
    found = ops.convert_to_numpy(model(values))
    np.testing.assert_allclose(found, preprocess_input(values), atol=1e-7)
    assert preprocess_input([images, images]).shape == (2, None, 2, 3)


@pytest.mark.parametrize(
    "convert",
    [
        np.array,
        ops.convert_to_tensor,
        lambda scores: ops.convert_to_tensor(scores, "float16"),
        lambda scores: ops.convert_to_tensor(scores, "bfloat16"),
    ],
)
def test_decode_predictions_with_names(convert):
    predictions = convert(np.array([[0.5, -1.0, 2.0], [3.0, 4.0, 4.0]], "float32"))
    names = ["cat", "dog", "elk"]
    assert decode_predictions(predictions, top=2, class_names=names) == [
        [(2, "elk", 2.0), (0, "cat", 0.5)],
        # Equal scores stay in the order of the classes.
        [(1, "dog", 4.0), (2, "elk", 4.0)],
    ]
    everything = decode_predictions(predictions, class_names=names)
    assert [len(row) for row in everything] == [3, 3]
    types = [type(item) for item in everything[0][0]]
    assert types == [int, str, float]


def test_decode_predictions_of_imagenet():
    predictions = np.zeros((1, 1000), "float32")
    predictions[0, [7, 999]] = 1.0, 2.0
    assert decode_predictions(predictions, 2, "imagenet2012") == [
        [("n15075141", "toilet tissue", 2.0), ("n01514668", "cock", 1.0)]
    ]
    [answers] = decode_predictions(predictions, class_names="imagenet2012")
    assert len(answers) == 5


def test_decode_predictions_of_imagenet21k(mirror):
    predictions = np.zeros((1, 21843), "float32")
    predictions[0, [7, 21842]] = 1.0, 2.0
    assert decode_predictions(predictions, 2, "imagenet21k") == [
        [(IDS[21842], f"lemma {IDS[21842]}", 2.0), (IDS[7], f"lemma {IDS[7]}", 1.0)]
    ]
    # From the cache the second time.
    zoo.fetch(zoo.LABEL_FILES["imagenet21k_ids"])


@pytest.mark.parametrize(
    ("shape", "names", "message"),
    [
        ((10,), None, r"expects \(batch, classes\), got \(10,\)"),
        ((2, 5, 10), None, r"expects \(batch, classes\), got \(2, 5, 10\)"),
        ((2, 10), None, "No class names are known for 10 classes: pass class_names"),
        ((2, 10), ["a", "b"], "class_names has 2 names for 10 classes"),
        ((2, 1000), None, 'class_names="imagenet2012" if they are ImageNet'),
        ((2, 10), "imagenet2012", "class_names has 1,000 names for 10 classes"),
        ((2, 3), ["a", "b", "c"], "same score: the head is new.*Fine-tune"),
    ],
)
def test_predictions_that_are_refused(shape, names, message):
    predictions = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    predictions *= "same score" not in message
    with pytest.raises(ValueError, match=message):
        decode_predictions(predictions, class_names=names)


def test_lists_of_tensors_of_a_graph_are_scaled():
    tf = pytest.importorskip("tensorflow")
    pixels = np.arange(12, dtype="uint8").reshape(2, 6) * 20
    expected = preprocess_input(np.stack([pixels, pixels]))
    data = tf.data.Dataset.from_tensors((pixels, pixels))
    for given in (lambda *pair: pair, lambda *pair: [*pair]):
        (found,) = data.map(lambda *pair, given=given: preprocess_input(given(*pair)))
        np.testing.assert_allclose(found, expected, atol=1e-6)
    image = tf.Variable(np.ones((2, 6), "float32"))
    with tf.GradientTape() as tape:
        scaled = tf.reduce_sum(preprocess_input([image, image]))
    np.testing.assert_allclose(tape.gradient(scaled, image) * 127.5, 2, rtol=1e-6)


def test_lists_of_tensors_and_lists_of_different_types_are_read():
    tensors = [
        keras.ops.convert_to_tensor([0.25, 0.75], kind)
        for kind in ("float16", "float32")
    ]
    for scores in ([tensors[0], [0.25, 0.75]], tensors, [keras.Variable([0.25, 0.75])]):
        answers = decode_predictions(scores, top=1, class_names=["a", "b"])
        assert answers == [[(1, "b", 0.75)]] * len(scores)
        expected = preprocess_input(np.array([[0.25, 0.75]] * len(scores)))
        np.testing.assert_allclose(preprocess_input(scores), expected, rtol=1e-6)
