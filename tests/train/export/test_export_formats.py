"""Each format of each kind of model answers as the Keras model does."""

import dataclasses
import functools
import importlib.util
import os
import pkgutil

import keras
import numpy as np
import pytest
import small_models
from harness import all_layers, global_policy, randomize
from small_models import HYBRID, PLAIN, made, of, positions, shared
from written_exports import check, images_for, write

import keras_vit
from keras_vit.models.bit import BiTResNet
from keras_vit.runtimes.precision import in_float32
from train.common.errors import RunError
from train.export.formats import FORMATS
from train.models.exports import exported_model
from zoo.network import BiTConfig
from zoo.network.position_embedding import METHODS

onnx = pytest.importorskip("onnx", reason="pip install onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_quantizer", reason="pip install '.[export]'")

ONE_BLOCK = dataclasses.replace(PLAIN, num_layers=1)
ODD = dataclasses.replace(HYBRID, patch_size=(2, 1), resnet_stages=(1, 2))


def map_of_features():
    maps = keras_vit.features(shared("registers"), 0)
    return keras.Model(maps.input, maps.output["layer_0"])


def bit():
    model = BiTResNet(BiTConfig((1, 1)), image_size=(39, 32), classes=5)
    randomize(model)
    return model


def of_large_numbers():
    """The squares of its positions are more than float16 holds."""
    model = made()
    table = model.get_layer("position_embedding").position_embedding
    table.assign(keras.ops.concatenate([1e3 * table[..., :3], table[..., 3:]], -1))
    assert np.abs(table).max() > 300
    return model


def each(kinds):
    """Functions that make models of some arguments."""
    return {name: functools.partial(made, **kinds[name]) for name in kinds}


BOTH, PLACES = "token_and_gap", "class token and patches"
REGISTERS = of(PLAIN, num_registers=2, tokens_with_positions=PLACES)
OF_TIMM = of(HYBRID, resnet_padding="symmetric", resnet_epsilons="timm")
ONNX = {name: functools.partial(shared, name) for name in small_models.MODELS}
ONNX |= each(
    {
        "hybrid, odd sides": {"config": ODD, "image_size": (46, 41)},
        "hybrid of timm": OF_TIMM,
        "hybrid without stages": of(HYBRID, resnet_stages=()),
        "rows and columns, no class token": dict(positions("2d"), pooling="gap"),
        "one table before every block": positions("2d", "every_layer_shared"),
        "relative, no class token": dict(positions("relative"), pooling="gap"),
        "no positions": positions("none"),
        "class token and mean, registers behind": dict(REGISTERS, pooling=BOTH),
        "distilled": dict(of(PLAIN, distillation_token=True), pooling="distilled"),
        "rotary alone": of(PLAIN, rotary="dinov3", tokens_with_positions="none"),
    }
)
ONNX |= {
    "mean of patches beside a class token": small_models.patches_averaged,
    "map of features": map_of_features,
    "BiT": bit,
    "int8 weights": lambda: keras_vit.quantize_weights(made(HYBRID)),
}
FLOAT16 = {name: ONNX[name] for name in ("plain", "exact GELU", "hybrid", "relative")}
FLOAT16 |= {"BiT": bit, "large numbers": of_large_numbers}
# Several at a time: conversion takes seconds.
TFLITE = each(
    {
        "gray, softmax": dict(
            of(ONE_BLOCK, activation="gelu", patch_size=(8, 12)),
            channels=1,
            classifier_activation="softmax",
            representation_size=16,
        ),
        "a head for each token": dict(positions("2d", "every_layer"), pooling=None),
        "all tokens, relative, remat and dropout": dict(
            of(ONE_BLOCK, position_embedding="relative"),
            pooling=None,
            include_top=False,
            remat=True,
            dropout_rate=0.1,
            stochastic_depth_rate=0.1,
        ),
    }
)
NORMED = {**of(ONE_BLOCK, norm_after_pooling=True), "pooling": "gap"}
SAVED_MODEL = each({"features behind a norm": {**NORMED, "include_top": False}})
CASES = {
    ("onnx", 1e-5): ONNX,
    # Some roundings of 2^-11 after one another.
    ("onnx-float16", 1e-2): FLOAT16,
    ("tflite", 1e-5): TFLITE,
    ("saved_model", 1e-5): SAVED_MODEL,
}


@pytest.mark.parametrize(
    ("format", "tolerance", "make"),
    [
        pytest.param(*case, make, id=f"{case[0]}, {name}")
        for case, kinds in CASES.items()
        for name, make in kinds.items()
    ],
)
def test_a_file_answers_as_its_model(format, tolerance, make, tmp_path):
    model = make()
    path = write(format, model, tmp_path)
    found = check(path, model, tolerance)
    assert os.listdir(tmp_path) == [path.relative_to(tmp_path).parts[0]]
    assert found.one_by_one == (format == "tflite")
    if format == "onnx-float16":
        check_precisions(onnx.load(path).graph)
    if format == "onnx":
        head = model.layers[-1] if model.layers[-1].name == "head" else None
        is_linear = head and head.activation is keras.activations.linear
        output = "logits" if is_linear else "probabilities"
        assert found.output == (output if head else "features")


def check_precisions(graph):
    """Weights are float16, and what needs more is computed in float32."""
    kernels = [one for one in graph.initializer if one.name.endswith("kernel")]
    assert {one.data_type for one in kernels} == {onnx.TensorProto.FLOAT16}
    widened = {
        node.output[0]: node.attribute[0].i == onnx.TensorProto.FLOAT
        for node in graph.node
        if node.op_type == "Cast"
    }
    for node in graph.node:
        if node.op_type in ("Softmax", "InstanceNormalization", "ReduceMean"):
            assert widened[node.input[0]]


@pytest.mark.parametrize(
    ("format", "options"), [("onnx", {}), ("tflite", {"dynamic_batch": True})]
)
def test_models_in_half_precision_are_exported_in_float32(format, options, tmp_path):
    model = made(ONE_BLOCK)
    with global_policy("mixed_bfloat16"):
        mixed = made(ONE_BLOCK)
    mixed.set_weights(model.get_weights())
    assert in_float32(model) is model
    parts = all_layers(in_float32(mixed))
    assert {part.dtype_policy.name for part in parts} == {"float32"}
    found = check(write(format, mixed, tmp_path, **options), model, 1e-5)
    assert not found.one_by_one


# Models of any size.

OF_ANY_SIZE = (
    *("plain", "patches not square", "hybrid", "hybrid without stages", "registers"),
    *("relative biases", "rotary, attention pooling", "rotary alone", "no positions"),
    *("one table before every block", "rows and columns, no class token", "distilled"),
    *("a head for each token", "class token and mean, registers behind"),
    *("hybrid of timm", "mean of the tokens", "rows and columns before every block"),
)
SIZES = (small_models.SIZE, (48, 24), (96, 144))
ODD_SIZES = ((8, 8), (16, 80), (40, 24), (136, 120))


@pytest.mark.parametrize(
    ("format", "name", "method", "sizes"),
    [("onnx", name, None, SIZES) for name in OF_ANY_SIZE]
    + [("onnx", "plain", method, ODD_SIZES) for method in METHODS]
    + [("onnx-float16", name, None, SIZES) for name in ("plain", "relative biases")],
)
def test_onnx_files_take_images_of_any_size(format, name, method, sizes, tmp_path):
    fixed, rule = ONNX[name](), () if method is None else (method,)
    model = keras_vit.at_image_size(fixed, (None, None), *rule)
    found = exported_model.in_its_runtime(write(format, model, tmp_path))
    for size in sizes:
        resized = keras_vit.at_image_size(fixed, size, *rule)
        images = images_for(resized)
        wanted = np.asarray(resized(images))
        limit = (5e-6 if format == "onnx" else 1e-2) * np.abs(wanted).max()
        np.testing.assert_allclose(found.run(images), wanted, rtol=0, atol=limit)


def too_large():
    model = made()
    model.get_layer("head").bias.assign([0.0, 1e5, 0.0, 0.0, 0.0])
    return model


class Twice(keras_vit.layers.LayerNorm):
    def call(self, tokens):
        return 2.0 * super().call(tokens)


@keras.saving.register_keras_serializable(package="test_export_formats")
class Odd(keras.layers.Layer):
    def call(self, features):
        return keras.ops.erfinv(keras.ops.tanh(features))


def more(layer, kind="plain"):
    model = shared(kind)
    return keras.Model(model.input, layer(model.output), name="mine")


def two_outputs():
    model = shared()
    return keras.Model(model.input, [model.output, model.layers[-2].output])


def by_keras():
    model = made(ONE_BLOCK)
    model.get_layer("head").quantize("int8")
    return model


class Own(keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner


SHAPE = (4, *small_models.SIZE, 3)
CALIBRATION = np.random.default_rng(0).uniform(-1, 1, SHAPE)
FEATURES = "without head"
LAYER = keras.layers
REFUSED = [
    ("onnx", shared, {"precision": "int8"}, "one of float32, float16, got 'int8'"),
    ("onnx", too_large, {"precision": "float16"}, 'head/bias .*precision="float32"'),
    ("onnx", lambda: more(LAYER.LayerNormalization(name="last")), {},
     "'last' is a LayerNormalization, which the ONNX exporter does not know"),
    ("onnx", lambda: more(lambda logits: logits[:, :1]), {},
     "is a GetItem, .*such as LayerNorm or ClassTokenP"),
    ("onnx", lambda: more(Twice(name="last")), {}, "'last' is a Twice, which"),
    ("onnx", lambda: more(LAYER.Dense(2, activation="elu", name="last")), {},
     "last has the activation 'elu', .*linear, relu"),
    ("onnx", lambda: more(LAYER.ReLU(max_value=6.0, name="last")), {},
     "last has a max_value, .*plain ReLU"),
    ("onnx", by_keras, {}, "head/kernel has integers"),
    ("onnx", two_outputs, {}, "not a functional model of one input and one output"),
    ("onnx", lambda: Own(shared()), {}, "own.* is not a functional model"),
    ("onnx", lambda: keras.Sequential([shared()]), {}, "sequential.* is not a functio"),
    ("tflite", shared, {"precision": "int4"}, "one of float32, float16"),
    ("tflite", shared, {"precision": "int8"}, "pass calibration"),
    ("tflite", shared, {"precision": "int8", "calibration": CALIBRATION[:, :8]},
     "resize them"),
    ("tflite", shared, {"precision": "int8", "calibration": 127.5 * CALIBRATION},
     "preprocess_input"),
    ("tflite", shared, {"precision": "dynamic", "uint8": True}, 'precision="int8"'),
    ("tflite", shared, {"precision": "dynamic", "min_agreement": 0.9},
     "pass calibration"),
    ("tflite", shared, {"precision": "float16", "min_agreement": 0.9},
     "to dynamic and int8"),
    ("tflite", shared, {"precision": "int8", "min_agreement": 99.5}, "between 0 and 1"),
    ("tflite", lambda: shared(FEATURES), {"precision": "dynamic", "min_agreement": 0.9},
     "its features: leave it out"),
    ("tflite", lambda: more(Odd(), FEATURES), {}, "mine computes tf.Erfinv, .*SavedMo"),
    ("saved_model", lambda: shared("all tokens"), {}, 'all tokens, .*"token" or "gap"'),
    ("saved_model", lambda: shared("a head for each token"), {}, "all tokens"),
    ("saved_model", lambda: more(LAYER.Softmax(name="shares")), {},
     "ends in the layer 'shares': pass a model"),
    ("saved_model", shared, {"class_names": [*"abcd", "two\nlines"]},
     "two.nlines.*spans lines"),
    *(
        case
        for format in ("onnx", "tflite", "saved_model")
        for case in [
            (format, shared, {"class_names": ["cat"]}, "1 names .* 5 classes"),
            (format, lambda: shared(FEATURES), {"class_names": ["cat"]},
             "no head .* leave out class_names"),
            (format, lambda: keras_vit.features(shared(), (0, -1)), {},
             r"a dict of layer_0, layer_1, .*: pass keras.Model.*\['layer_0'\]"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format", "make", "options", "named"), REFUSED)
def test_models_and_arguments_that_a_writer_refuses(
    format, make, options, named, tmp_path
):
    writer = pkgutil.resolve_name(FORMATS[format].runtime.writer)
    with pytest.raises((ValueError, RunError), match=named):
        writer(make(), tmp_path / "out", **options)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_a_missing_package_is_named(format, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"pip install"):
        write(format, shared(), tmp_path)
