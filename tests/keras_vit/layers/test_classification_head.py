"""The names of classes and the preparation of photos stay with a model's head."""

import keras
import numpy as np
import pytest
import small_models
from harness import check_refusal, normal, numpy, randomize

import keras_vit
from keras_vit import VisionTransformer, ViTConfig
from keras_vit.layers import ClassificationHead

PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)
# Of two alphabets; a name twice, as ImageNet has; one without letters.
NAMES = ("crane", "crane", "Käfer", "猫", "")


def made(**options):
    options = {"class_names": list(NAMES), "preparation": "central crop"} | options
    return small_models.made(PLAIN, 16, classes=None, **options)


@pytest.fixture(scope="module")
def model():
    return made()


def test_it_is_a_dense_layer_to_the_last_bit():
    features = normal((4, 24))
    head, dense = (
        kind(5, name="head") for kind in (ClassificationHead, keras.layers.Dense)
    )
    head.build((None, 24))
    dense.build((None, 24))
    randomize(head)
    dense.set_weights(head.get_weights())
    np.testing.assert_array_equal(numpy(head(features)), numpy(dense(features)))
    assert [one.path for one in head.weights] == [one.path for one in dense.weights]
    assert (head.class_names, head.preparation) == (None, "squash")


def loaded(model, folder):
    model.save(folder / "moved.keras")
    return keras.saving.load_model(folder / "moved.keras")


def test_they_can_be_set_and_taken_away(tmp_path):
    model = VisionTransformer(PLAIN, image_size=16, classes=2)
    head = model.get_layer("head")
    for names in (["a", "b"], np.array(["a", "b"]), (name for name in "ab")):
        head.class_names = None
        head.class_names = names
        assert head.class_names == ("a", "b") and type(head.class_names[0]) is str
    head.preparation = "central crop"
    again = loaded(model, tmp_path).get_layer("head")
    assert (again.class_names, again.preparation) == (("a", "b"), "central crop")


def test_names_alone_are_the_number_of_classes():
    assert VisionTransformer(PLAIN, class_names=["a", "b"]).output_shape == (None, 2)
    model = keras_vit.ViT_Ti16(weights=None, class_names=["a", "b"], image_size=16)
    assert model.output_shape == (None, 2)


def test_a_model_without_head_keeps_its_preparation_in_the_patch_embedding():
    options = {"include_top": False, "preparation": "central crop"}
    body = VisionTransformer(PLAIN, **options)
    assert body.get_layer("embedding").preparation == "central crop"
    check_refusal(
        lambda: VisionTransformer(PLAIN, **options, class_names=["a", "b"]),
        "class_names=",
        "needs the head",
    )


def test_released_files_keep_their_head_with_as_many_names(model, tmp_path):
    path = keras_vit.save_released_weights(model, tmp_path / "five.npz")
    again = keras_vit.load_model(path, class_names=NAMES)
    np.testing.assert_array_equal(
        numpy(again.get_layer("head").kernel), numpy(model.get_layer("head").kernel)
    )
    other = keras_vit.load_model(path, class_names=["a", "b"])
    assert not numpy(other.get_layer("head").kernel).any()


def test_keras_quantises_it_as_a_dense_layer(tmp_path):
    features = normal((4, 24))
    outputs = []
    for kind in (keras.layers.Dense, ClassificationHead):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((24,)), kind(5, name="head")])
        model.quantize("int8")
        outputs.append(numpy(loaded(model, tmp_path)(features)))
    np.testing.assert_array_equal(*outputs)


def test_lora_goes_with_it(model, tmp_path):
    copy = loaded(model, tmp_path)
    copy.get_layer("head").enable_lora(2)
    assert loaded(copy, tmp_path).get_layer("head").class_names == NAMES
