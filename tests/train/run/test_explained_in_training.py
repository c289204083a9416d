"""Pictures of the attention while a model is trained; the loop asks for them."""

import keras
import pytest

from keras_vit import VisionTransformer, ViTConfig
from train import recipes
from train.common.errors import RunError
from train.data import sources
from train.run import explained_images

RECIPE = recipes.for_dataset("digits").override(explained_images=2)


def test_pictures_are_of_the_first_images_and_of_this_step():
    # A grid of 2x2 patches, and as few filters as are not too few to be drawn.
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 2, "mlp_dim": 8}
    config = ViTConfig(**sizes, patch_size=4, position_embedding="2d")
    model = VisionTransformer(config, image_size=8, classes=10)
    images = explained_images.choose(RECIPE, model, sources.load("digits").train)
    assert images.shape == (2, 8, 8, 3)
    drawn = explained_images.pictures(model, images, step=1)
    assert drawn.keys() == {"attention rollout", "figure 7"}
    for name, pixels in explained_images.pictures(model, images, step=2).items():
        assert min(pixels.shape[:2]) > 200 and pixels.dtype == "uint8"
        assert (pixels != drawn[name]).any()
    none = RECIPE.override(explained_images=0)
    assert explained_images.choose(none, model, split=None) is None


def test_models_without_attention_are_refused_before_they_are_trained():
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))
    with pytest.raises(RunError, match="--explained_images shows what a Vision Tran"):
        explained_images.choose(RECIPE, model, split=None)
