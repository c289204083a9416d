"""The names of classes and the preparation of photos stay with a model's head."""

import keras
import numpy as np
from harness import check_refusal, normal, numpy, randomize

from keras_vit import VisionTransformer, ViTConfig
from keras_vit.layers import ClassificationHead

PLAIN = ViTConfig(hidden_size=24, num_layers=1, num_heads=3, mlp_dim=40, patch_size=8)


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


def test_what_it_says_can_be_set_and_taken_away(tmp_path):
    model = VisionTransformer(PLAIN, image_size=16, classes=2)
    head = model.get_layer("head")
    for names in (["a", "b"], np.array(["a", "b"]), (name for name in "ab")):
        head.class_names = None
        head.class_names = names
        assert head.class_names == ("a", "b") and type(head.class_names[0]) is str
    head.preparation = "central crop"
    # Keras's low-rank weights go with it.
    head.enable_lora(2)
    again = loaded(model, tmp_path).get_layer("head")
    assert (again.class_names, again.preparation) == (("a", "b"), "central crop")


def test_a_model_without_head_keeps_its_preparation_in_the_patch_embedding():
    options = {"include_top": False, "preparation": "central crop"}
    body = VisionTransformer(PLAIN, **options)
    assert body.get_layer("embedding").preparation == "central crop"
    check_refusal(
        lambda: VisionTransformer(PLAIN, **options, class_names=["a", "b"]),
        "class_names=",
        "needs the head",
    )


def test_keras_quantises_it_as_a_dense_layer(tmp_path):
    features = normal((4, 24))
    outputs = []
    for kind in (keras.layers.Dense, ClassificationHead):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((24,)), kind(5, name="head")])
        model.quantize("int8")
        outputs.append(numpy(loaded(model, tmp_path)(features)))
    np.testing.assert_array_equal(*outputs)
