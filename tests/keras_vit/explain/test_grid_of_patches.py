"""The grid of patches behind whatever layers a user puts in front of a model."""

import keras
import numpy as np
import pytest
import small_models
from keras import ops

from keras_vit import explain
from keras_vit.structure.image_sizes import patch_stride


def behind_resizing(model, size=(64, 96), **arguments):
    images = keras.Input((*size, 3))
    resized = keras.layers.Resizing(32, 48, **arguments)(images)
    return keras.Model(images, model(resized))


@pytest.mark.parametrize("size", [(64, 96), (None, None)])
def test_the_grid_behind_a_resizing(size):
    model = small_models.shared()
    wrapper = behind_resizing(model, size)
    assert explain.grid_size(wrapper) == (4, 6)
    assert explain.grid_size(wrapper, (320, 48)) == (4, 6)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 64, 96, 3)).astype("float32")
    rollout = explain.attention_rollout(wrapper, images)
    assert explain.patch_map(rollout, explain.grid_size(wrapper)).shape == (2, 4, 6)
    assert explain.token_features(wrapper, images).patches.shape == (2, 4, 6, 24)
    # Every pixel of the model is two of what it is given.
    resized = keras.layers.Resizing(32, 48)(images)
    np.testing.assert_allclose(
        explain.attention_distance(wrapper, images),
        2 * explain.attention_distance(model, resized),
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, (32, 16)),
        ({"crop_to_aspect_ratio": True}, (16, 16)),
        ({"pad_to_aspect_ratio": True}, (32, 32)),
    ],
)
def test_the_stride_of_images_of_another_shape(arguments, expected):
    wrapper = behind_resizing(small_models.shared(), (128, 96), **arguments)
    assert patch_stride(wrapper) == expected


class Shrunk(keras.layers.Layer):
    """A layer of one's own that gives images of one size."""

    def call(self, images):
        return ops.image.resize(images, (32, 48), data_format="channels_last")


POOLED = keras.layers.MaxPooling2D(2)


def in_a_model(outputs_of):
    """Returns layers as a model that is called; it gives the last of its outputs."""

    def call(images):
        inputs = keras.Input(images.shape[1:])
        *_, last = keras.tree.flatten(keras.Model(inputs, outputs_of(inputs))(images))
        return last

    return call


# Each row: layers in front, the size of their images, the pixels between patches.
IN_FRONT = {
    "operation": (
        lambda images: ops.image.resize(images, (32, 48), data_format="channels_last"),
        (100, 96),
        None,
    ),
    "own": (Shrunk(name="own"), (100, 96), None),
    "pipeline": (
        lambda images: keras.layers.Pipeline([keras.layers.Resizing(32, 48)])(images),
        (64, 96),
        (16, 16),
    ),
    "model": (in_a_model(keras.layers.Resizing(32, 48)), (64, 96), (16, 16)),
    "model that pools twice": (
        in_a_model(lambda images: POOLED(POOLED(images))),
        (128, 192),
        (32, 32),
    ),
    "model of two outputs": (
        in_a_model(lambda images: [keras.layers.Flatten()(images), POOLED(images)]),
        (64, 96),
        (16, 16),
    ),
    "padding": (keras.layers.ZeroPadding2D(4), (24, 40), (8, 8)),
    "cropping": (keras.layers.Cropping2D(4), (40, 56), (8, 8)),
    "crop": (keras.layers.CenterCrop(32, 48), (40, 56), (8, 8)),
    "crop of small ones": (keras.layers.CenterCrop(32, 48), (16, 24), None),
    "upsampling": (keras.layers.UpSampling2D(2), (16, 24), (4, 4)),
    "what keeps the size": (lambda images: ops.abs(images) + 1.0, (32, 48), (8, 8)),
}


@pytest.mark.parametrize(("layer", "size", "stride"), IN_FRONT.values(), ids=IN_FRONT)
def test_the_grid_is_that_of_what_is_cut(layer, size, stride):
    images = keras.Input((*size, 3))
    model = small_models.shared()
    wrapper = keras.Model(images, model(layer(images)))
    nodes = len(wrapper.to_json())
    assert explain.grid_size(wrapper) == (4, 6)
    assert explain.grid_size(wrapper, size) == (4, 6)
    assert len(wrapper.to_json()) == nodes
    assert model.get_layer("embedding").input.shape[1:3] == (32, 48)
    if stride is None:
        with pytest.raises(ValueError, match="changes the size of images in a way"):
            patch_stride(wrapper)
    else:
        assert patch_stride(wrapper) == stride
    rollout = np.ones((1, 25, 25), "float32")
    assert explain.patch_map(rollout, explain.grid_size(wrapper)).shape == (1, 4, 6)


@pytest.mark.parametrize("kind", ["plain", "hybrid"])
def test_the_grid_of_a_sequential_that_was_not_called_yet(kind):
    model = small_models.shared(kind)
    wrapper = keras.Sequential(
        [keras.Sequential([keras.layers.ZeroPadding2D(8)]), model]
    )
    assert explain.grid_size(wrapper, (16, 32)) == (4, 6)
    assert patch_stride(wrapper, (16, 32)) == (8, 8)
    with pytest.raises(ValueError, match="any size: pass image_size"):
        explain.grid_size(wrapper)


def test_models_of_a_class_of_their_own_have_no_known_grid():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__(name="mine")
            self.inner = small_models.made()

        def call(self, images):
            return self.inner(images)

    with pytest.raises(
        ValueError, match="the model mine does to images.*unknown.*functional"
    ):
        explain.grid_size(Mine(), (32, 48))


def test_what_is_after_or_beside_the_patches_does_not_matter():
    model = small_models.shared("all tokens")
    places = keras.layers.Reshape((5, 5, 24))(model.output)
    convolved = keras.layers.Conv2D(2, 3, strides=2)(places)
    mean = keras.layers.GlobalAveragePooling2D()(model.input)
    for outputs in (convolved, [convolved, mean], [mean, convolved]):
        assert explain.grid_size(keras.Model(model.input, outputs)) == (4, 6)
