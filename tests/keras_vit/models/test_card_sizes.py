"""The sizes on the cards of released files are those of the models."""

import keras
import pytest

import keras_vit
import zoo


# What cards have beyond `test_models.test_parameters_of_the_variants`: pre_logits with
# the classes of ImageNet-21k, 384 pixels, no class token; of plain models and hybrids.
@pytest.mark.parametrize(
    "handle",
    [
        "vit-b32/imagenet21k",
        "vit-ti16/augreg-imagenet21k+imagenet2012",
        "vit-s32-gap-norep/gsam",
        "r26-vit-b32/imagenet21k",
        "r-vit-ti16/augreg-imagenet21k+imagenet2012",
    ],
)
def test_a_card_counts_the_parameters_of_its_model(handle):
    card = zoo.get(handle)
    # Variables are never allocated.
    with keras.StatelessScope(initialize_variables=False):
        model = keras_vit.VisionTransformer(
            card.variant.removesuffix("-gap-norep"),
            image_size=card.image_size,
            classes=card.classes,
            representation_size=card.representation_size,
            pooling=card.pooling,
        )
        assert model.count_params() == card.parameters
    keras.utils.clear_session(free_memory=False)
