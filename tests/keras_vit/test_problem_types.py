"""What heads answer besides one class of several, and the names in their settings."""

import pathlib

import keras
import numpy as np
import pytest
from harness import numpy, randomize

import keras_vit
import zoo
from keras_vit import VisionTransformer, ViTConfig, classify, embed
from zoo.network.head import sigmoid, softmax

CASES = pathlib.Path(__file__).parents[1] / "cases"
PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)
# The names of classes in the settings, and what of a golden the answers are.
ANSWERS = {
    "own_names_of_1000": (tuple(f"product {i}" for i in range(1000)), "softmax"),
    "own_names_of_3": (("cat", "dog", "elk"), "softmax"),
    "timm_label_names": (("red", "green", "blue"), "softmax"),
    "several_labels": (("a", "b", "c"), "probabilities"),
    "one_number": (("output 0",), "logits"),
}


def case(name):
    return keras_vit.load_model(CASES / name), np.load(CASES / name / "expected.npz")


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_those_of_the_settings(name):
    model, expected = case(name)
    names, kind = ANSWERS[name]
    logits = numpy(model(keras_vit.preprocess_input(expected["photos"])))
    np.testing.assert_allclose(logits, expected["logits"], atol=2e-5)
    values = softmax(expected["logits"]) if kind == "softmax" else expected[kind]
    answers = classify(model, expected["photos"])
    for found, row in zip(answers, values, strict=True):
        best = np.argsort(-row)[:5]
        assert [one[:2] for one in found] == [(at, names[at]) for at in best]
        assert [one[2] for one in found] == pytest.approx(row[best], abs=2e-5)
    own = None if name == "one_number" else names
    assert model.get_layer("head").class_names == own


def test_features_of_a_processor_config():
    folder = CASES / "mean_in_processor_config"
    model = keras_vit.load_model(folder, include_top=False)
    expected = np.load(folder / "expected.npz")
    np.testing.assert_allclose(
        embed(model, expected["photos"]), expected["features"], atol=2e-5
    )


def test_a_model_of_two_numbers_has_both_in_their_order():
    model = VisionTransformer(PLAIN, image_size=16, class_names=["age", "weight"])
    randomize(model)
    head = model.get_layer("head")
    head.problem_type = "regression"
    image = np.zeros((16, 16, 3), "uint8")
    expected = numpy(model(keras_vit.preprocess_input(image)[None]))[0]
    [found] = classify(model, image, top=1)
    assert found == [
        (0, "age", pytest.approx(expected[0], abs=1e-5)),
        (1, "weight", pytest.approx(expected[1], abs=1e-5)),
    ]


def test_one_class_of_several_is_itself_or_not():
    model = VisionTransformer(PLAIN, image_size=16, class_names=["cat"])
    randomize(model)
    image = np.zeros((16, 16, 3), "uint8")
    with pytest.raises(ValueError, match="has one class.*problem_type"):
        classify(model, image)
    model.get_layer("head").problem_type = "multi_label_classification"
    expected = sigmoid(numpy(model(keras_vit.preprocess_input(image)[None])))
    assert classify(model, image) == [
        [(0, "cat", pytest.approx(expected[0, 0], abs=1e-5))]
    ]


def test_heads_keep_their_problem_type_in_files(tmp_path):
    model, _ = case("one_number")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_layer("head").problem_type == "regression"
    for naming in ("released", "transformers"):
        folder = tmp_path / naming
        folder.mkdir()
        keras_vit.save_released_weights(model, folder / "model.safetensors", naming)
        head = keras_vit.load_model(folder / "model.safetensors").get_layer("head")
        assert head.problem_type == "regression"
    plain = VisionTransformer(PLAIN, image_size=16, classes=1)
    plain.get_layer("head").problem_type = "regression"
    with pytest.raises(zoo.CheckpointError, match="an .npz cannot say problem_type"):
        keras_vit.save_released_weights(plain, tmp_path / "x.npz")


def test_new_heads_forget_what_others_answer():
    for name in ("several_labels", "own_names_of_3"):
        for options in ({"classes": 5}, {"new_head": True}):
            model = keras_vit.load_model(CASES / name, **options)
            head = model.get_layer("head")
            assert head.class_names is None
            assert head.problem_type == "single_label_classification"


@pytest.mark.parametrize("include_top", [True, False])
def test_preparations_of_settings_are_those_of_the_model(tmp_path, include_top):
    checkpoint = zoo.read(CASES / "own_names_of_3")
    options = {} if include_top else {"include_top": False}
    model = keras_vit.load_model(checkpoint, **options)
    photo = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype="uint8")
    image = zoo.photos.prepare(photo, 32, "transformers squash bilinear")
    expected = numpy(model(image[None]))
    if include_top:
        [[best]] = classify(model, photo, top=1)
        assert best[2] == pytest.approx(softmax(expected).max(), abs=1e-5)
    else:
        np.testing.assert_allclose(embed(model, photo), expected, atol=1e-5)
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_allclose(embed(model, photo), expected, atol=1e-5)
    # The files of a model keep it as well.
    keras_vit.save_released_weights(model, tmp_path / "model.safetensors")
    found = zoo.read(tmp_path / "model.safetensors").head.preparation
    assert found == "transformers squash bilinear"
