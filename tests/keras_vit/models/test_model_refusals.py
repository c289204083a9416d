"""Arguments that functions which make models refuse: by name, with what to do."""

import dataclasses
import math
import pathlib

import keras
import numpy as np
import pytest
from harness import check_refusal
from small_models import PLAIN, SIZE, made, shared

import keras_vit
import zoo
from keras_vit import VisionTransformer, at_image_size, layers
from keras_vit import save_released_weights as save
from keras_vit.models.bit import BiTResNet
from keras_vit.structure import architectures
from zoo.network import BiTConfig

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"
ANY = (None, None)


def vit(config=PLAIN, **options):
    return VisionTransformer(config, **{"image_size": 32, **options})


def bit(config=None, **options):
    return BiTResNet(config or BiTConfig((1, 1)), **{"image_size": 32, **options})


def golden(name="token", **options):
    return keras_vit.load_model(GOLDENS / f"{name}.npz", **options)


def replaced(**changes):
    return dataclasses.replace(PLAIN, **changes)


def after(layer, size=(96, 96)):
    """A small model in a functional one."""
    images = keras.Input((*size, 3))
    return keras.Model(images, shared()(layer(images)))


class Mine(keras.Model):
    def call(self, images):
        return images


def flattened():
    model = made(pooling=None, include_top=False)
    flat = keras.layers.Flatten()(model.output)
    return keras.Model(model.input, keras.layers.Dense(2, name="flat")(flat))


def without_classes():
    arrays = dict(np.load(GOLDENS / "token.npz"))
    head = {name: arrays[name][..., :0] for name in ("head/kernel", "head/bias")}
    return zoo.Checkpoint("own", arrays | head)


def of_one_number_of_tokens():
    images = keras.Input((16, 24, 3))
    positions = layers.RelativePositionEmbedding()
    attention = layers.SelfAttention(2, positions=positions)
    return keras.Model(images, attention(layers.PatchEncoder(8, 16)(images)))


def in_sequence():
    """A model of ours that is no functional one."""
    embedding = layers.PatchEncoder(8, 24)
    positions = layers.AddPositionEmbs((4, 6))
    return keras.Sequential([keras.Input((*SIZE, 3)), embedding, positions])


FIXED = {"name": "fixed", "height": SIZE[0], "width": SIZE[1]}
ONE_TOKEN_COUNT = "RelativePositionEmbedding, which belongs to one"
# Layers of one size that stand before a small model, and their names.
IN_FRONT = [
    (keras.layers.Resizing(**FIXED), "layer fixed"),
    (lambda images: keras.layers.Pipeline([keras.layers.Resizing(**FIXED)])(images),
     "layer fixed"),
    (lambda images: keras.ops.image.resize(images, SIZE, data_format="channels_last"),
     "layer resize"),
]  # fmt: skip
REFUSED = [
    # The size of the images.
    (lambda: vit("ViT-B_16", image_size=225), "ViT-B_16 expects", "image_size=(224, "),
    (lambda: vit(replaced(patch_size=(8, 4)), image_size=36),
     "patch size (8, 4), got 36x36: resize the images", "image_size=(32, 36)"),
    (lambda: vit(image_size=0), "image_size must be a positive int", "got 0"),
    (lambda: vit(image_size=(None, 32)), "(height, width) pair"),
    (lambda: at_image_size(shared("relative"), 32), ONE_TOKEN_COUNT),
    (lambda: at_image_size(of_one_number_of_tokens(), 24), "build and train the model"),
    (lambda: at_image_size(shared(), (33, 36)), "cannot cut images of 33x36 into ",
     "patches of 8x8 pixels: pass image_size=(32, 32)."),
    (lambda: at_image_size(after(keras.layers.ZeroPadding2D(4), (24, 40)), (21, 27)),
     "of 21x27", "image_size=(24, 24)."),
    *((lambda layer=layer, size=size: at_image_size(after(layer), size),
       name, ", which makes images")
      for layer, name in IN_FRONT for size in (64, ANY)),
    (lambda: at_image_size(flattened(), 64), "The layer flat of", "one image size"),
    (lambda: at_image_size(after(Mine(name="mine"), SIZE), 64), "model mine in"),
    (lambda: at_image_size(in_sequence(), ANY), "build a functional model"),
    (lambda: at_image_size(shared(), 64, "cubic"), "method 'cubic'"),
    # Names.
    (lambda: vit("ViT-G_14"), "variant 'ViT-G_14'", "choose one of ViT-Ti_16, "),
    (lambda: vit(pooling="max"), "take the maximum over the tokens that include_top"),
    (lambda: vit(pooling="avg"), 'the mean over the patches is pooling="gap" here.'),
    (lambda: vit(pooling="cls"), '"token", "gap" or None', ", got 'cls'."),
    (lambda: vit(position_embedding_method="cubic"), "unknown method 'cubic'"),
    # A head.
    *((lambda make=make, given=given: make(include_top=False, **given), name)
      for make in (vit, bit)
      for given, name in (
          ({"classes": 5}, "classes=5 needs the head"),
          ({"new_head": True}, "new_head=True needs the head"),
          ({"classifier_activation": "softmax"}, "'softmax' needs the head"),
      )),
    (lambda: golden(head_bias_init=-6.9), "-6.9 is for a new head", "is kept"),
    (lambda: keras_vit.ViT_B16(classes=9, representation_size=768, pooling="gap"),
     "class token: leave it out"),
    (without_classes, "classes is 0"),
    # No default weights have what is asked for, before any are read.
    (lambda: keras_vit.ViT_B16(pooling="gap"), 'pooling="gap"', "pass classes=K"),
    (lambda: keras_vit.ViT_B16(representation_size=768), "n_size=768", "classes=K"),
    (lambda: keras_vit.ViT_B16(head_bias_init=-1.0), "init=-1.0", "pass classes=K"),
    *((lambda head=head: keras_vit.ViT_S16(representation_size=384, **head),
       "representation_size=384 does not fit")
      for head in ({}, {"classes": 10}, {"include_top": False})),
    # Configs.
    (lambda: replaced(num_heads=5), "hidden_size=24 must", "num_heads=5"),
    (lambda: replaced(patch_size=(8, 0)), "patch_size", "got (8, 0)"),
    (lambda: replaced(resnet_stages=(1,), resnet_width=48), "resnet_width=48", "32"),
    (lambda: replaced(position_embedding="1d"), "none, 2d, relative, got '1d'"),
    (lambda: replaced(position_embedding="none", position_embedding_at="every_layer"),
     "'none' is not added to tokens", "leave out", "'every_layer'"),
    (lambda: architectures.of_config(3), "int is the config of no architecture: pass"),
    (lambda: architectures.named("Swin"), "no architecture 'Swin' among", "import the"),
    # Features and files.
    (lambda: keras_vit.features(made(pooling="gap"), "class_token"), "no class token"),
    (lambda: keras_vit.features(shared("all tokens"), "pooled"), "no pooled features"),
    (lambda: keras_vit.features(keras.Sequential([shared()])), "not a model that wr"),
    (lambda: save(bit(), "a.npz", "timm"), "is no Vision Transf", "naming='timm'"),
    (lambda: keras_vit.load_released_weights(bit(), "a.npz", variant="R50"),
     "'bit_resnet' is no Vision Transformer: leave out variant"),
    (lambda: save(bit(), "a.h5"), "must end in .npz"),
]  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_refused_by_name_with_what_to_do(row):
    call, *parts = row
    check_refusal(call, *parts)


CLASSES = (0, -1, 2.5, "ten", True)
RATES = (1.0, -0.1, True, None, "0.1", [0.1], 1e400, math.nan, 10**400, 1.5)
FLOATS = (math.nan, math.inf, -math.inf, 1e300, 10**400, "-6.9", True)
# An argument, wrong values of it, and what is said of each.
VALUES = [
    (vit, "classes", CLASSES, "a positive int", "include_top=False"),
    (bit, "classes", CLASSES, "a positive int, got", "; a model without head has"),
    (golden, "classes", CLASSES, "a positive int", "include_top=False"),
    (vit, "representation_size", (0,), "must be a positive int, got 0"),
    (vit, "channels", (0,), "must be a positive int, got 0"),
    (vit, "dropout_rate", RATES, "must be in [0, 1), got "),
    (vit, "stochastic_depth_rate", RATES, "must be in [0, 1), got "),
    (vit, "head_bias_init", FLOATS, "a number of at most 3.4e+38, got"),
    (vit, "dtype", ("int8", "float99", 16, "int8_from_float32"), "must be a policy"),
    (replaced, "hidden_size", (0, 48.0), "must be a positive int, got"),
    (replaced, "num_layers", (-1, "2"), "must be a positive int, got"),
    (replaced, "resnet_stages", ((1, 0),), "must be a positive int, got"),
]


@pytest.mark.parametrize("row", VALUES)
def test_wrong_values_are_refused_by_name(row):
    make, name, values, *parts = row
    for value in values:
        with pytest.raises(ValueError) as caught:
            make(**{name: value})
        message = str(caught.value)
        assert name in message and len(message) < 200
        assert all(part in message for part in parts), message
    with pytest.raises(ValueError):
        vit(dtype="bfloat16", image_size=33)
    # An error leaves the policy.
    assert keras.config.dtype_policy().name == "float32"


UNKNOWN = [
    (lambda: vit(input_shape=(32, 32, 3)),
     "VisionTransformer() takes no input_shape: pass image_size=(height, width), and "),
    (lambda: keras_vit.ViT_B16(None, input_tensor=1),
     "ViT_B16() takes no input_tensor: build the model without it and call it on the"),
    (lambda: bit(num_classes=5), "BiTResNet() takes no num_classes: pass classes=."),
    (lambda: bit(pooling="avg"), "always averaged", "leave it out"),
    (lambda: golden(input_shape=(32, 32, 3)), "no input_shape: pass image_size="),
    (lambda: keras_vit.ViT_Ti16(None, colour=3),
     "ViT_Ti16() takes no colour: its arguments are weights, include_top, "),
    (lambda: vit(clases=3), "VisionTransformer() takes no clases: did you mean "),
    (lambda: at_image_size(None, 64, method="bicubic"),
     "at_image_size() takes no method: its arguments are model, image_size,"),
]  # fmt: skip


@pytest.mark.parametrize("row", UNKNOWN)
def test_unknown_arguments_are_answered_with_those_there_are(row):
    call, *parts = row
    check_refusal(call, *parts, error=TypeError)
