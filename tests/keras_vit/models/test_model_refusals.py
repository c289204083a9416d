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


def behind(*modules):
    """A small model behind layers of the user's."""
    return keras.Sequential([*modules, shared()])


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


resized = keras.layers.Resizing


def cannot_be_cut(patch, got, remedy):
    return (f"patch size {patch}, got {got}: resize the images", f"image_size={remedy}")


REFUSED = {
    # The size of the images.
    "225": (
        lambda: VisionTransformer("ViT-B_16", image_size=225),
        "ViT-B_16 expects", *cannot_be_cut(16, "225x225", "(224, 224)"),
    ),
    "36": (
        lambda: vit(replaced(patch_size=(8, 4)), image_size=36),
        *cannot_be_cut("(8, 4)", "36x36", "(32, 36)"),
    ),
    "3": (lambda: vit(image_size=3), *cannot_be_cut(8, "3x3", "(8, 8)")),
    "a hybrid's": (
        lambda: vit(
            dataclasses.replace(HYBRID, resnet_stages=(), patch_size=4), image_size=50
        ),
        "got 50x50: resize", "(48, 48)",
    ),
    "0": (lambda: vit(image_size=0), "image_size must be a positive int", "got 0"),
    "text": (lambda: vit(image_size="32"), "image_size must be", "got '32'"),
    "one of any size": (lambda: vit(image_size=(None, 32)), "(height, width) pair"),
    # Names.
    "variant": (
        lambda: VisionTransformer("ViT-G_14"),
        "Unknown variant 'ViT-G_14'", "choose one of ViT-Ti_16, ",
    ),
    "variant of BiT": (lambda: BiTResNet("BiT-R26x1"), "26x1': ", "one of BiT-R50x1, "),
    "max": (lambda: vit(pooling="max"), "maximum over the tokens that include_top=Fal"),
    "avg": (lambda: vit(pooling="avg"), 'over the patches is pooling="gap" here.'),
    "cls": (lambda: vit(pooling="cls"), '"token", "gap" or None', ", got 'cls'."),
    "method": (
        lambda: VisionTransformer("ViT-Ti_16", position_embedding_method="cubic"),
        "unknown method 'cubic', choose from", "bicubic",
    ),
    # A head.
    **{
        f"{name} without a head": (
            lambda make=make, name=name, value=value: make(
                include_top=False, **{name: value}
            ),
            f"{name}={value!r} needs the head: pass inc",
        )
        for make in (vit, bit)
        for name, value in (
            ("classes", 5), ("new_head", True), ("classifier_activation", "softmax")
        )
    },
    "head_bias_init without a head": (
        lambda: vit(include_top=False, head_bias_init=-10.0), "head_bias_init=-10.0 nee"
    ),
    "head_bias_init of a head that is kept": (
        lambda: golden(head_bias_init=-6.9), "-6.9 is for a new head", "is kept"
    ),
    "a checkpoint of no classes": (without_classes, "classes is 0"),
    "pre_logits without a class token": (
        lambda: keras_vit.ViT_B16(classes=10, representation_size=768, pooling="gap"),
        "class token: leave it out",
    ),
    # What one number of tokens or one size of images is for, for another.
    "relative": (
        lambda: at_image_size(shared("relative"), 32),
        "RelativePositionEmbedding, which belongs to one",
    ),
    "relative of any size": (
        lambda: at_image_size(shared("relative"), ANY),
        "RelativePositionEmbedding, which belongs to one",
    ),
    "relative in any layer": (
        lambda: at_image_size(of_one_number_of_tokens(), (24, 16)),
        "build and train the model at the image size",
    ),
    "33x36": (
        lambda: at_image_size(shared(), (33, 36)),
        "The model vision_transformer cannot cut images of 33x36 into whole patches ",
        "of 8x8 pixels: pass image_size=(32, 32).",
    ),
    "33x36 behind a padding": (
        lambda: at_image_size(
            behind(keras.Input((24, 40, 3)), keras.layers.ZeroPadding2D(4)), (21, 27)
        ),
        "of 21x27", "image_size=(24, 24).",
    ),
    "another rule": (lambda: at_image_size(shared(), 64, "cubic"), "method 'cubic'"),
    **{
        f"behind {kind}": (
            lambda layer=layer: at_image_size(after(layer), 64),
            name, ", which makes images",
        )
        for kind, name, layer in (
            ("Resizing", "layer fixed", resized(*SIZE, name="fixed")),
            ("CenterCrop", "layer fixed", keras.layers.CenterCrop(*SIZE, name="fixed")),
            ("Pipeline", "layer fixed", lambda images: keras.layers.Pipeline(
                [resized(*SIZE, name="fixed")])(images)),
            ("operation", "layer resize", lambda images: keras.ops.image.resize(
                images, SIZE, data_format="channels_last")),
        )
    },
    "behind Resizing of any size": (
        lambda: at_image_size(behind(keras.Input((64, 64, 3)), resized(*SIZE)), ANY),
        "makes images one size",
    ),
    "a dense layer of all tokens": (
        lambda: at_image_size(flattened(), 64), "The layer flat of", "one image size"
    ),
    "a class of one's own": (
        lambda: at_image_size(Mine(), 64), "functional or sequential model of one inpu"
    ),
    "a class of one's own in front": (
        lambda: at_image_size(after(Mine(name="mine"), SIZE), 64),
        "The model mine in", "one input and known",
    ),
    "a sequence of layers of any size": (
        lambda: at_image_size(in_sequence(), ANY), "build a functional model"
    ),
    # Features.
    "no layer 3": (
        lambda: keras_vit.features(shared(), (0, 3)), "no layer 3", "numbers from -2 to"
    ),
    "no class token": (
        lambda: keras_vit.features(shared("mean of the tokens"), "class_token"),
        "no class token",
    ),
    "no pooling": (
        lambda: keras_vit.features(shared("all tokens"), "pooled"), "no pooled features"
    ),
    "features of a wrapper": (
        lambda: keras_vit.features(keras.Sequential([shared()])), "not a model that wr"
    ),
    # Files and architectures.
    "naming of BiT": (
        lambda: keras_vit.save_released_weights(bit(), "a.npz", "timm"),
        "is no Vision Transformer: leave out naming='timm'",
    ),
    "variant for BiT": (
        lambda: keras_vit.load_released_weights(bit(), "a.npz", variant="R50"),
        "'bit_resnet' is no Vision Transformer: leave out variant",
    ),
    "format of BiT": (
        lambda: keras_vit.save_released_weights(bit(), "a.h5"), "must end in .npz"
    ),
    "config of no architecture": (
        lambda: architectures.of_config(3), "int is the config of no architecture: pass"
    ),
    "an architecture that is not registered": (
        lambda: Description.from_config({"architecture": "Swin"}),
        "no architecture 'Swin' among", "import the mo",
    ),
    # Configs.
    "no heads": (lambda: replaced(num_heads=5), "hidden_size=24 must", "num_heads=5"),
    "patch": (lambda: replaced(patch_size=(8, 0)), "patch_size", "got (8, 0)"),
    "width": (
        lambda: replaced(resnet_stages=(1,), resnet_width=48), "resnet_width=48", "32"
    ),
    "positions": (
        lambda: replaced(position_embedding="1d"),
        "position_embedding must be one of learned, none, 2d, relative, got '1d'",
    ),
    "positions at": (
        lambda: replaced(position_embedding_at="head"), "one of stem, every_layer, "
    ),
    "none of them at": (
        lambda: replaced(
            position_embedding="none", position_embedding_at="every_layer"
        ),
        "'none' is not added to tokens", "leave out", "'every_layer'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name_with_what_to_do(case):
    call, *parts = REFUSED[case]
    check_refusal(call, *parts)


CLASSES = (0, -1, 2.5, "ten", True)
RATES = (1.0, -0.1, True, None, "0.1", [0.1], 1e400, math.nan, 10**400, 1.5)
FLOATS = (math.nan, math.inf, -math.inf, 1e300, 10**400, "-6.9", True)
# An argument, wrong values of it, and what is said of each.
VALUES = [
    (vit, "classes", CLASSES, ["a positive int", "include_top=False"]),
    (bit, "classes", CLASSES, ["a positive int", "include_top=False"]),
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
