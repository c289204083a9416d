"""Arguments that functions which make models refuse: by name, with what to do."""

import dataclasses
import functools
import math
import pathlib

import keras
import numpy as np
import pytest
from harness import check_refusal
from small_models import HYBRID, PLAIN, SIZE, made, shared

import keras_vit
import zoo
from keras_vit import VisionTransformer, at_image_size, layers
from keras_vit.models.base import Description
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


def cannot_be_cut(patch, got, remedy):
    return (f"patch size {patch}, got {got}: resize the images", f"image_size={remedy}")


SMALL_PATCHES = dataclasses.replace(HYBRID, resnet_stages=(), patch_size=4)
# A function, options that it refuses, and what is said of them.
OPTIONS = [
    # The size of the images.
    (vit, {"config": "ViT-B_16", "image_size": 225},
     "ViT-B_16 expects", *cannot_be_cut(16, "225x225", "(224, 224)")),
    (vit, {"config": replaced(patch_size=(8, 4)), "image_size": 36},
     *cannot_be_cut("(8, 4)", "36x36", "(32, 36)")),
    (vit, {"image_size": 3}, *cannot_be_cut(8, "3x3", "(8, 8)")),
    (vit, {"config": SMALL_PATCHES, "image_size": 50}, "got 50x50: resize", "(48, 48)"),
    (vit, {"image_size": 0}, "image_size must be a positive int", "got 0"),
    (vit, {"image_size": "32"}, "image_size must be", "got '32'"),
    (vit, {"image_size": (None, 32)}, "(height, width) pair"),
    # Names.
    (vit, {"config": "ViT-G_14"}, "variant 'ViT-G_14'", "choose one of ViT-Ti_16, "),
    (bit, {"config": "BiT-R26x1"}, "variant 'BiT-R26x1'", "one of BiT-R50x1, "),
    (vit, {"pooling": "max"}, "take the maximum over the tokens that include_top=Fal"),
    (vit, {"pooling": "avg"}, 'the mean over the patches is pooling="gap" here.'),
    (vit, {"pooling": "cls"}, '"token", "gap" or None', ", got 'cls'."),
    (vit, {"position_embedding_method": "cubic"}, "unknown method 'cubic'", "bicubic"),
    # A head.
    *(
        (make, {"include_top": False, name: value}, f"{name}={value!r} needs the head")
        for make in (vit, bit)
        for name, value in (
            ("classes", 5), ("new_head", True), ("classifier_activation", "softmax")
        )
    ),
    (vit, {"include_top": False, "head_bias_init": -1.0}, "init=-1.0 needs the head"),
    (golden, {"head_bias_init": -6.9}, "-6.9 is for a new head", "is kept"),
    (keras_vit.ViT_B16, {"classes": 9, "representation_size": 768, "pooling": "gap"},
     "class token: leave it out"),
    # Configs.
    (replaced, {"num_heads": 5}, "hidden_size=24 must", "num_heads=5"),
    (replaced, {"patch_size": (8, 0)}, "patch_size", "got (8, 0)"),
    (replaced, {"resnet_stages": (1,), "resnet_width": 48}, "resnet_width=48", "32"),
    (replaced, {"position_embedding": "1d"}, "learned, none, 2d, relative, got '1d'"),
    (replaced, {"position_embedding_at": "head"}, "one of stem, every_layer, "),
    (replaced, {"position_embedding": "none", "position_embedding_at": "every_layer"},
     "'none' is not added to tokens", "leave out", "'every_layer'"),
]  # fmt: skip


@pytest.mark.parametrize("row", OPTIONS, ids=lambda row: str(row[1]))
def test_options_are_refused_by_name_with_what_to_do(row):
    make, options, *parts = row
    check_refusal(lambda: make(**options), *parts)


FIXED = {"name": "fixed", "height": SIZE[0], "width": SIZE[1]}
ONE_TOKEN_COUNT = "RelativePositionEmbedding, which belongs to one"
# What stands before a small model of one size, and the name of the layer.
IN_FRONT = [
    (keras.layers.Resizing(**FIXED), "layer fixed"),
    (keras.layers.CenterCrop(**FIXED), "layer fixed"),
    (lambda images: keras.layers.Pipeline([keras.layers.Resizing(**FIXED)])(images),
     "layer fixed"),
    (lambda images: keras.ops.image.resize(images, SIZE, data_format="channels_last"),
     "layer resize"),
]  # fmt: skip
# A function that makes a model, the size that it cannot have, and what is said of it.
SIZES = [
    (lambda: shared("relative"), 32, ONE_TOKEN_COUNT),
    (lambda: shared("relative"), ANY, ONE_TOKEN_COUNT),
    (of_one_number_of_tokens, (24, 16), "build and train the model at the image size"),
    (shared, (33, 36), "The model vision_transformer cannot cut images of 33x36 into ",
     "patches of 8x8 pixels: pass image_size=(32, 32)."),
    (lambda: after(keras.layers.ZeroPadding2D(4), (24, 40)), (21, 27),
     "of 21x27", "image_size=(24, 24)."),
    (shared, 0, "image_size must be a positive int"),
    *((lambda layer=layer: after(layer), size, name, ", which makes images")
      for layer, name in IN_FRONT for size in (64, ANY)),
    (flattened, 64, "The layer flat of", "one image size"),
    (Mine, 64, "functional or sequential model of one input"),
    (lambda: after(Mine(name="mine"), SIZE), 64, "model mine in", "one input and"),
    (in_sequence, ANY, "build a functional model"),
]  # fmt: skip


@pytest.mark.parametrize("row", SIZES)
def test_models_that_cannot_have_another_size_say_so(row):
    make, size, *parts = row
    check_refusal(lambda: at_image_size(make(), size), *parts)


REFUSED = [
    (lambda: at_image_size(shared(), 64, "cubic"), "method 'cubic'"),
    (without_classes, "classes is 0"),
    (lambda: keras_vit.features(shared(), (0, 3)), "no layer 3", "numbers from -2 to"),
    (lambda: keras_vit.features(shared("mean of the tokens"), "class_token"),
     "no class token"),
    (lambda: keras_vit.features(shared("all tokens"), "pooled"), "no pooled features"),
    (lambda: keras_vit.features(keras.Sequential([shared()])), "not a model that wr"),
    (lambda: keras_vit.save_released_weights(bit(), "a.npz", "timm"),
     "is no Vision Transformer: leave out naming='timm'"),
    (lambda: keras_vit.load_released_weights(bit(), "a.npz", variant="R50"),
     "'bit_resnet' is no Vision Transformer: leave out variant"),
    (lambda: keras_vit.save_released_weights(bit(), "a.h5"), "must end in .npz"),
    (lambda: architectures.of_config(3), "int is the config of no architecture: pass"),
    (lambda: Description.from_config({"architecture": "Swin"}),
     "no architecture 'Swin' among", "import the mo"),
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
    (vit, "classes", CLASSES, ["a positive int", "include_top=False"]),
    (bit, "classes", CLASSES, ["a positive int, got", "; a model without head has"]),
    (golden, "classes", CLASSES, ["a positive int", "include_top=False"]),
    (keras_vit.ViT_Ti16, "classes", CLASSES, ["a positive int", "include_top=False"]),
    (vit, "representation_size", (0,), ["must be a positive int, got 0"]),
    (vit, "channels", (0,), ["must be a positive int, got 0"]),
    (vit, "dropout_rate", RATES, ["must be in [0, 1), got "]),
    (vit, "stochastic_depth_rate", RATES, ["must be in [0, 1), got "]),
    (vit, "head_bias_init", FLOATS, ["a number of at most 3.4e+38, got"]),
    (vit, "dtype", ("int8", "float99", 16, "int8_from_float32"), ["must be a policy"]),
    (replaced, "hidden_size", (0, 48.0), ["must be a positive int, got"]),
    (replaced, "num_layers", (-1, "2"), ["must be a positive int, got"]),
    (replaced, "resnet_stages", ((1, 0),), ["must be a positive int, got"]),
]


@pytest.mark.parametrize(("make", "name", "values", "parts"), VALUES)
def test_wrong_values_are_refused_by_name(make, name, values, parts):
    policy = keras.config.dtype_policy()
    for value in values:
        given = {name: value}
        if make is keras_vit.ViT_Ti16:
            given["weights"] = None
        with pytest.raises(ValueError) as caught:
            make(**given)
        message = str(caught.value)
        assert name in message and len(message) < 200
        assert all(part in message for part in parts), message
    assert keras.config.dtype_policy() == policy


def test_an_error_leaves_the_policy():
    with pytest.raises(ValueError):
        vit(dtype="bfloat16", image_size=33)
    assert keras.config.dtype_policy().name == "float32"


ELSEWHERE = {
    "input_shape": ((32, 32, 3), "pass image_size=(height, width), and channels="),
    "input_tensor": (1, "build the model without it and call it on the tensor"),
    "num_classes": (5, "pass classes=."),
}
MAKERS = {
    "VisionTransformer": functools.partial(VisionTransformer, "ViT-Ti_16"),
    "ViT_B16": functools.partial(keras_vit.ViT_B16, None),
    "BiTResNet": functools.partial(BiTResNet, "BiT-R50x1"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_arguments_of_kerass_own_models_are_answered_with_ours(maker):
    for name, (value, remedy) in ELSEWHERE.items():
        words = f"{maker}() takes no {name}: {remedy}"
        given = {name: value}
        check_refusal(
            lambda given=given: MAKERS[maker](**given), words, error=TypeError
        )


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: golden(input_shape=(32, 32, 3)), ["no input_shape: pass image_size="]),
        (lambda: bit(pooling="avg"), ["always averaged", "leave it out"]),
        (
            lambda: keras_vit.ViT_Ti16(None, colour=3),
            ["ViT_Ti16() takes no colour: its arguments are weights, include_top, "],
        ),
        (lambda: vit(clases=3), ["VisionTransformer() takes no clases: did you mean "]),
        (
            lambda: at_image_size(None, 64, method="bicubic"),
            ["at_image_size() takes no method: its arguments are model, image_size,"],
        ),
    ],
)
def test_unknown_arguments_are_answered_with_those_there_are(call, parts):
    check_refusal(call, *parts, error=TypeError)
