"""Predictions of small models, by Keras, by other engines and of exports."""

import os

import keras
import numpy as np
import pytest
from harness import randomize
from photo_folder import NAMES, paths, prepared
from small_models import SIZE, made, shared

import keras_vit
from train.common import predictors
from train.common.errors import RunError
from train.models import finding, loaded_model
from train.predict import classifiers
from train.predict.prediction import predict
from train.scoring.evaluation_data import num_logits


def computed(model, images):
    return keras.ops.convert_to_numpy(model(images))


def answers_of(model, **options):
    """Returns the names and the values of the answers to all photos, best first."""
    answers = []
    predict(str(model), paths(), answer=answers.append, **options)
    names = [[name for name, _ in answer.top] for answer in answers]
    return names, np.array([[value for _, value in answer.top] for answer in answers])


def test_features_of_a_keras_model_beside_its_answers(folder, files):
    model = files / "model.keras"
    _, found = answers_of(model, features="x.npz")
    np.testing.assert_allclose(found, answers_of(model)[1], rtol=1e-3)
    body = keras.Model(shared().input, shared().layers[-1].input)
    expected = computed(body, prepared(*SIZE))
    features = np.load("x.npz")["features"]
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-4)


def test_a_model_without_head_has_features_alone(folder):
    shared("without head").save("model.keras")
    with pytest.raises(RunError, match="no head for class.* Pass --features=NAME.npz"):
        predict("model.keras", paths())
    found = predict("model.keras", paths(), features="x.npz")
    assert (found.answered, np.load("x.npz")["features"].shape) == (10, (10, 24))


@pytest.mark.parametrize("name", ["model.keras", "model.onnx"])
def test_a_gray_model_without_names_of_classes(name, folder):
    model = shared("gray, softmax")
    if name == "model.keras":
        model.save(name)
    else:
        pytest.importorskip("train.export.onnx").write_onnx(model, name)
    names, found = answers_of(name)
    probabilities = computed(model, prepared(*SIZE, channels=1))
    np.testing.assert_allclose(found[:, 0], probabilities.max(axis=1), rtol=1e-3)
    assert names[0][0] == f"class {probabilities[0].argmax()}"


@pytest.mark.parametrize("name", ["model.keras", "model.onnx"])
def test_a_model_of_one_class_needs_a_probability(name, folder):
    export = pytest.importorskip("train.export.onnx")
    for activation in (None, "sigmoid"):
        model = made(classes=1, classifier_activation=activation, class_names=["cat"])
        if name == "model.keras":
            model.save(name)
        else:
            export.write_onnx(model, name, class_names=["cat"])
        if activation is None:
            with pytest.raises(RunError, match="has one class, cat, which every photo"):
                predict(name, paths())
    found = predict(name, paths(), out="x.csv")
    assert any("a probability of its own" in note for note in found.notes)
    assert answers_of(name)[0] == [["cat"]] * 10


def test_heads_that_are_not_the_last_layer(folder):
    """What `keras_vit.classify` answers is answered alike."""
    model = made(class_names=NAMES, preparation="central crop")
    softmax_last = keras.Model(model.input, keras.layers.Softmax()(model.output))
    body = made(include_top=False)
    head = keras_vit.layers.ClassificationHead(5, class_names=NAMES, name="answers")
    model = keras.Model(body.input, head(body.output))
    randomize(head)
    for one in (softmax_last, model):
        one.save("model.keras")
        names, found = answers_of("model.keras")
        best = keras_vit.classify(one, paths())
        assert names == [[name for _, name, _ in row] for row in best]
        values = [[value for *_, value in row] for row in best]
        np.testing.assert_allclose(found, values, rtol=1e-3)
        with pytest.raises(RunError, match="Features are what the layer called head"):
            predict("model.keras", paths(), features="x.npz")
    assert num_logits(loaded_model.load("model.keras")) == 5
    softmax_last.save("model.keras")
    with pytest.raises(RunError, match="ends in softmax, where logits"):
        num_logits(loaded_model.load("model.keras"))


def test_what_exports_cannot_do(folder, files):
    for given, told in (
        ({"image_size": 64}, "exported for images of one size"),
        ({"features": "x.npz"}, "gives classes, not the features that"),
        ({"engine": "onnxruntime"}, "leave --engine and --precision out"),
    ):
        with pytest.raises(RunError, match=told):
            predict(str(files / "model.onnx"), paths(), **given)
    with pytest.raises(RunError, match="onnx is an exported file.* pass the model tha"):
        finding.find(str(files / "model.onnx"))
    assert os.listdir(folder) == ["photos"]


def test_exports_of_any_size_answer_as_the_model_of_that_size(folder, files):
    export = pytest.importorskip("train.export.onnx")
    model = keras.saving.load_model(files / "model.keras")
    export.write_onnx(keras_vit.at_image_size(model, (None, None)), "any.onnx")
    with pytest.raises(RunError, match="multiples of .*, got --image_size=61: pass"):
        predict("any.onnx", paths(), image_size=61)
    for size in (48, (48, 96)):
        _, found = answers_of("any.onnx", image_size=size)
        _, expected = answers_of(files / "model.keras", image_size=size)
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_engines_and_precisions(folder, files):
    model = str(files / "model.keras")
    [expected, found] = (
        classifiers.load(model, engine=engine) for engine in ("keras", "onnxruntime")
    )
    images = prepared(*SIZE)
    np.testing.assert_allclose(
        found.compute(images)[0], expected.compute(images)[0], atol=1e-6
    )
    assert found.digest() == expected.digest()
    int8 = classifiers.load(model, engine="litert", precision="int8")
    assert int8.digest() == f"{expected.digest()} in int8"
    with pytest.raises(RunError, match="--engine=keras --precision=int8: "):
        classifiers.load(model, engine="keras", precision="int8")


def test_commands_say_that_a_model_is_converted(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "keras_vit.runtimes.automatic.conversion_seconds", lambda *_: 0.0
    )
    monkeypatch.setenv("KERAS_VIT_CACHE", str(tmp_path))
    predictor = predictors.predictor(made(), 2, "auto", "float32")
    predictor(np.zeros((6, *SIZE, 3), "float32"))
    assert capsys.readouterr().err.startswith("converting the model for onnxruntime")
