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


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_those_of_the_settings(name):
    model = keras_vit.load_model(CASES / name)
    expected = np.load(CASES / name / "expected.npz")
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
    # A new head forgets what others answer.
    for options in ({"classes": 5}, {"new_head": True}):
        head = keras_vit.load_model(CASES / name, **options).get_layer("head")
        assert head.class_names is None
        assert head.problem_type == "single_label_classification"


def test_one_class_is_itself_or_not_and_numbers_have_their_order():
    image = np.zeros((16, 16, 3), "uint8")
    model = VisionTransformer(PLAIN, image_size=16, class_names=["cat"])
    randomize(model)
    with pytest.raises(ValueError, match="has one class.*problem_type"):
        classify(model, image)
    numbers = model.rebuild(class_names=["age", "weight"])
    randomize(numbers)
    for one, problem_type, activated, top in (
        (model, "multi_label_classification", sigmoid, 5),
        (numbers, "regression", np.array, 1),
    ):
        head = one.get_layer("head")
        head.problem_type = problem_type
        expected = activated(numpy(one(keras_vit.preprocess_input(image)[None])))[0]
        assert classify(one, image, top=top) == [
            [
                (at, head.class_names[at], pytest.approx(value, abs=1e-5))
                for at, value in enumerate(expected)
            ]
        ]


@pytest.mark.parametrize("naming", ["released", "transformers"])
def test_heads_keep_their_problem_type_in_files(naming, tmp_path):
    model = keras_vit.load_model(CASES / "one_number")
    path = tmp_path / "model.safetensors"
    keras_vit.save_released_weights(model, path, naming)
    head = keras_vit.load_model(path).get_layer("head")
    assert head.problem_type == "regression"


@pytest.mark.parametrize("include_top", [True, False])
def test_preparations_of_settings_are_those_of_the_model(tmp_path, include_top):
    model = keras_vit.load_model(CASES / "own_names_of_3", include_top=include_top)
    photo = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype="uint8")
    preparation = "transformers squash bilinear"
    image = zoo.photos.prepare(photo, 32, preparation)
    expected = numpy(model(image[None]))
    model.save(tmp_path / "model.keras")
    for one in (model, keras.saving.load_model(tmp_path / "model.keras")):
        if include_top:
            [[best]] = classify(one, photo, top=1)
            assert best[2] == pytest.approx(softmax(expected).max(), abs=1e-5)
        else:
            np.testing.assert_allclose(embed(one, photo), expected, atol=1e-5)
    keras_vit.save_released_weights(model, tmp_path / "model.safetensors")
    found = zoo.read(tmp_path / "model.safetensors").head.preparation
    assert found == preparation
