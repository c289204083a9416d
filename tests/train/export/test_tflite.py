import collections
import dataclasses
import importlib.util
import json
import re
import zipfile

import flatbuffers
import keras
import numpy as np
import pytest
from flatbuffers import number_types as N
from harness import global_policy
from scipy.stats import norm
from small_models import HYBRID, PLAIN, SIZE, made, of, positions

from keras_vit import preprocess_input
from train.common.errors import RunError
from train.export import tflite
from train.export.tflite import quantization, write_tflite
from train.export.tflite.quantization import Product, products, quantize

interpreter = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="pip install '.[export]'"
)
pytest.importorskip("ai_edge_quantizer")

ONE_BLOCK = dataclasses.replace(PLAIN, num_layers=1)
# Patches, six of the block, and a head.
PRODUCTS = 1 + 6 + 1


def images(number=4, channels=3, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (number, *SIZE, channels))
    return preprocess_input(pixels)


def expected(model, inputs):
    head = model.layers[-1]
    if head.name != "head":
        return np.asarray(model(inputs))
    features = np.asarray(keras.Model(model.input, head.input)(inputs), "float64")
    return features @ np.asarray(head.kernel) + np.asarray(head.bias)


def answers(path, inputs):
    """What the file answers, one image at a time."""
    run = interpreter.Interpreter(model_path=str(path))
    run.allocate_tensors()
    [given], [output] = run.get_input_details(), run.get_output_details()
    results = []
    for image in inputs:
        run.set_tensor(given["index"], image[None])
        run.invoke()
        results.append(run.get_tensor(output["index"]))
    return np.concatenate(results)


def relative(found, right):
    return np.abs(found - right).max() / np.abs(right).max()


@pytest.fixture(scope="module")
def model():
    return made(ONE_BLOCK)


@pytest.fixture(scope="module")
def calibration():
    return images(8, seed=1)


@pytest.fixture(scope="module")
def converted(model):
    """The plain model as the bytes of a float32 file, to quantize."""
    return tflite._converted(model, "float32", dynamic_batch=False)


def kinds(content):
    """How many products a file computes how."""
    return collections.Counter(product.kind for product in products(content))


# All that small models have, several at a time: conversion takes seconds.
MODELS = {
    "gray, softmax": {
        **of(ONE_BLOCK, activation="gelu", patch_size=(8, 12)),
        "channels": 1,
        "classifier_activation": "softmax",
        "representation_size": 16,
    },
    "a head for each token, 2d positions": {
        **positions("2d", "every_layer"),
        "pooling": None,
    },
    "all tokens, relative, remat and dropout": {
        **of(ONE_BLOCK, position_embedding="relative"),
        "pooling": None,
        "include_top": False,
        "remat": True,
        "dropout_rate": 0.1,
        "stochastic_depth_rate": 0.1,
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_logits_are_those_of_the_model(kind, tmp_path):
    model = made(**MODELS[kind])
    inputs = images(2, model.input_shape[-1])
    any_number = kind == "gray, softmax"
    computed = write_tflite(model, tmp_path / "model.tflite", dynamic_batch=any_number)
    assert set(computed) == {"float32"}
    found = answers(tmp_path / "model.tflite", inputs)
    assert relative(found, expected(model, inputs)) < 1e-5
    if any_number:
        run = interpreter.Interpreter(model_path=str(tmp_path / "model.tflite"))
        [given], [output] = run.get_input_details(), run.get_output_details()
        run.resize_tensor_input(given["index"], inputs.shape)
        run.allocate_tensors()
        run.set_tensor(given["index"], inputs)
        run.invoke()
        np.testing.assert_allclose(run.get_tensor(output["index"]), found, rtol=1e-4)


def test_a_model_in_half_precision_is_exported_in_float32(
    model, converted, tmp_path, monkeypatch
):
    with global_policy("mixed_bfloat16"):
        mixed = made(ONE_BLOCK)
    mixed.set_weights(model.get_weights())
    taken = []

    def convert(model, *arguments):
        taken.append(model)
        return converted

    monkeypatch.setattr(tflite, "_converted", convert)
    write_tflite(mixed, tmp_path / "model.tflite")
    [taken] = taken
    assert all(layer.compute_dtype == "float32" for layer in taken.layers)
    assert relative(np.asarray(taken(images())), expected(model, images())) < 1e-5


def test_names_and_operations_and_logits(model, converted, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(converted)
    assert kinds(converted) == {"float32": PRODUCTS}
    assert relative(answers(path, images()), expected(model, images())) < 1e-5
    run = interpreter.Interpreter(model_path=str(path))
    assert run.get_signature_list() == {
        "serving_default": {"inputs": ["images"], "outputs": ["logits"]}
    }
    from ai_edge_litert.tools import flatbuffer_utils

    content = flatbuffer_utils.read_model(str(path))
    custom = flatbuffer_utils.BuiltinOperator.CUSTOM
    assert all(code.builtinCode != custom for code in content.operatorCodes)


def test_dynamic_is_a_quarter_of_the_size(tmp_path):
    model = made(dataclasses.replace(PLAIN, hidden_size=96, mlp_dim=384, num_layers=1))
    path = tmp_path / "model.tflite"
    computed = write_tflite(model, path, precision="dynamic")
    assert computed["dynamic"] >= PRODUCTS - 1  # the head of five classes is small
    found = answers(path, images())
    assert 0 < relative(found, expected(model, images())) < 0.05
    matrices = sum(np.prod(v.shape) for v in model.variables if len(v.shape) > 1)
    assert path.stat().st_size < 1.1 * matrices + 60_000


def test_int8_products_are_static_but_for_the_head(
    model, converted, calibration, tmp_path, monkeypatch
):
    monkeypatch.setattr(tflite, "_converted", lambda *_: converted)
    path = tmp_path / "model.tflite"
    computed = write_tflite(model, path, precision="int8", calibration=calibration)
    assert computed == {"static": PRODUCTS - 1, "dynamic": 1}
    found = answers(path, images())
    assert 0 < relative(found, expected(model, images())) < 0.1


def test_a_hybrid_in_float32_and_int8(calibration, tmp_path):
    config = dataclasses.replace(HYBRID, num_layers=1)
    model = made(config, pooling="gap", representation_size=16)
    path = tmp_path / "model.tflite"
    content = tflite._converted(model, "float32", dynamic_batch=False)
    path.write_bytes(content)
    assert relative(answers(path, images()), expected(model, images())) < 1e-5
    for static in (False, True):
        quantized = quantize(content, calibration, static=static)
        path.write_bytes(quantized)
        found = {
            product.kind
            for product in products(quantized)
            if product.operation == "CONV_2D"
        }
        assert found == {"static" if static else "dynamic"}
        assert relative(answers(path, images()), expected(model, images())) < 0.2


def test_an_mlp_with_one_huge_value_is_not_static(calibration):
    model = made(dataclasses.replace(PLAIN, mlp_dim=320))
    # One token is all but zero outside channel 3, and one hidden unit answers to that.
    positions = model.get_layer("position_embedding").position_embedding
    huge = np.array(positions)
    huge[0, 7, 3] = 1e4
    positions.assign(huge)
    mlp = model.get_layer("encoder_block_0").mlp
    kernel, bias = np.array(mlp.expand.kernel), np.array(mlp.expand.bias)
    kernel[:, 0], bias[0] = 1e3 * (np.arange(24) == 3), -4e3
    mlp.expand.kernel.assign(kernel)
    mlp.expand.bias.assign(bias)
    content = tflite._converted(model, "float32", dynamic_batch=False)
    dynamic = {
        product.name
        for product in products(quantize(content, calibration, static=True))
        if product.kind == "dynamic"
    }
    # Keras before 3.16 counts the uses of a layer.
    places = [
        re.findall(r"block_(\d)(?:_1)?/mlp(?:_1)?/project", one) for one in dynamic
    ]
    assert {number for numbers in places for number in numbers} == {"0"}


def test_uint8_takes_pixels(model, converted, calibration, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(quantize(converted, calibration, static=True, uint8=True))
    run = interpreter.Interpreter(model_path=str(path))
    [given], [output] = run.get_input_details(), run.get_output_details()
    assert given["dtype"] == output["dtype"] == np.uint8
    scale, zero = given["quantization"]
    assert scale == pytest.approx(2 / 255) and zero in (127, 128)
    pixels = np.random.default_rng(0).integers(0, 256, (4, *SIZE, 3), "uint8")
    scale, zero = output["quantization"]
    # Half as far again as the logits of the calibration images.
    logits = expected(model, calibration)
    least, most = min(logits.min(), 0), max(logits.max(), 0)
    limits = scale * (0 - zero), scale * (255 - zero)
    assert limits == pytest.approx((1.5 * least, 1.5 * most), abs=2 * scale)
    found = (answers(path, pixels).astype("float64") - zero) * scale
    assert relative(found, expected(model, preprocess_input(pixels))) < 0.1


def test_more_agreement_keeps_more_in_float16(model, converted, calibration, tmp_path):
    path = tmp_path / "model.tflite"
    right = expected(model, images())
    kept, errors = [], []
    for agreement in (0.5, 1.0):
        content = quantize(
            converted, calibration, static=False, min_agreement=agreement
        )
        path.write_bytes(content)
        assert sum(kinds(content).values()) == PRODUCTS
        kept.append(kinds(content)["float16"])
        errors.append(relative(answers(path, images()), right))
    assert kept[0] < kept[1] and errors[1] < errors[0]


def test_what_is_kept_in_float16():
    """By hand: what changes most for its size, until the estimate is small enough."""
    known = [
        Product(name, "FULLY_CONNECTED", "float32", elements, {"x": 0, name: 1})
        for name, elements in (("a", 1), ("b", 1), ("c", 100))
    ]
    errors = {"a": 1.0, "b": 9.0, "c": 10.0}
    answers = np.array([[0.0, 6.0], [2.0, 0.0]])  # gaps of 6 and 2
    allowed = {}
    for left in (20.0, 11.0, 10.0):
        noise = np.sqrt(2.0 * left)
        allowed[left] = norm.sf([6.0 / noise, 2.0 / noise]).mean()
    for left, kept in (20.0, []), (11.0, ["b"]), (10.0, ["b", "a"]):
        min_agreement = 1 - 1.5 * (allowed[left] + 1e-6)
        assert quantization._kept(known, errors, answers, min_agreement) == kept
    assert quantization._kept(known, errors, answers, 1.0) == ["b", "a", "c"]


@pytest.fixture(scope="module")
def metadata(model, converted, tmp_path_factory):
    """The metadata of a file with class names, as bytes."""
    path = tmp_path_factory.mktemp("metadata") / "model.tflite"
    names = ["tench", "goldfish", "white shark", "müßig", ""]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tflite, "_converted", lambda *_: converted)
        write_tflite(model, path, class_names=names)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt").decode().split("\n")[:-1] == names
        facts = json.loads(archive.read("keras_vit.json"))
    assert facts == {"activation": "linear", "preparation": "squash"}
    from ai_edge_litert.tools import flatbuffer_utils

    content = flatbuffer_utils.read_model(str(path))
    [entry] = [known for known in content.metadata if known.name == b"TFLITE_METADATA"]
    return bytes(bytearray(content.buffers[entry.buffer].data))


class Reader:
    """Reads a flatbuffer by the numbers of its fields."""

    def __init__(self, data, position=None):
        if position is None:
            position = flatbuffers.encode.Get(N.UOffsetTFlags.packer_type, data, 0)
        self.table = flatbuffers.table.Table(data, position)

    def place(self, number):
        return self.table.Pos + self.table.Offset(4 + 2 * number)

    def text(self, number):
        return self.table.String(self.place(number)).decode()

    def number(self, number, kind):
        return self.table.Get(kind, self.place(number))

    def inner(self, number):
        return Reader(self.table.Bytes, self.table.Indirect(self.place(number)))

    def only(self, number):
        """The only table of a vector."""
        offset = self.place(number) - self.table.Pos
        assert self.table.VectorLen(offset) == 1
        place = self.table.Indirect(self.table.Vector(offset))
        return Reader(self.table.Bytes, place)

    def floats(self, number):
        offset = self.place(number) - self.table.Pos
        start, count = self.table.Vector(offset), self.table.VectorLen(offset)
        return np.frombuffer(self.table.Bytes, "<f4", count, start).tolist()


def test_metadata_name_the_classes_and_the_range(model, metadata):
    """By the field numbers of metadata_schema.fbs."""
    assert metadata[4:8] == b"M001"
    root = Reader(metadata)
    assert root.text(0) == model.name and root.text(7) == "1.0.0"
    assert "32x48x3" in root.text(1) and "8 float32" in root.text(1)
    graph = root.only(3)
    images, output = graph.only(2), graph.only(3)
    assert (images.text(0), output.text(0)) == ("images", "logits")
    content = images.inner(3)
    assert content.number(0, N.Uint8Flags) == 2
    image = content.inner(1)
    assert image.number(0, N.Uint8Flags) == 1
    size = image.inner(1)
    width, height = (size.number(number, N.Uint32Flags) for number in (0, 1))
    assert (height, width) == SIZE
    unit = images.only(4)
    assert unit.number(0, N.Uint8Flags) == 1
    assert unit.inner(1).floats(0) == unit.inner(1).floats(1) == [127.5]
    assert images.inner(5).floats(0) == [1] and images.inner(5).floats(1) == [-1]
    assert output.inner(3).number(0, N.Uint8Flags) == 1
    file = output.only(6)
    assert file.text(0) == "labels.txt" and file.number(2, N.Uint8Flags) == 2


def test_metadata_by_the_standards_own_reader(model, metadata):
    schema = pytest.importorskip(
        "mediapipe.tasks.metadata.metadata_schema_py_generated",
        reason="pip install mediapipe",
    )
    data = metadata
    assert schema.ModelMetadata.ModelMetadataBufferHasIdentifier(data, 0)
    found = schema.ModelMetadataT.InitFromObj(
        schema.ModelMetadata.GetRootAsModelMetadata(data, 0)
    )
    assert found.name == model.name.encode()
    [graph] = found.subgraphMetadata
    [given], [output] = graph.inputTensorMetadata, graph.outputTensorMetadata
    image = given.content.contentProperties
    assert image.colorSpace == schema.ColorSpaceType.RGB
    assert (image.defaultSize.height, image.defaultSize.width) == SIZE
    [unit] = given.processUnits
    assert list(unit.options.mean) == list(unit.options.std) == [127.5]
    assert (list(given.stats.min), list(given.stats.max)) == ([-1], [1])
    [file] = output.associatedFiles
    assert file.name == b"labels.txt"
    assert file.type == schema.AssociatedFileType.TENSOR_AXIS_LABELS


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"precision": "int4"}, "one of float32, float16"),
        ({"precision": "int8"}, "pass calibration"),
        ({"precision": "int8", "calibration": images()[:, :8]}, "resize them"),
        ({"precision": "int8", "calibration": images() * 127.5}, "preprocess_input"),
        ({"precision": "dynamic", "uint8": True}, 'uint8 needs precision="int8"'),
        ({"precision": "dynamic", "min_agreement": 0.9}, "pass calibration"),
        ({"precision": "float16", "min_agreement": 0.9}, "to dynamic and int8"),
        (
            {"precision": "int8", "min_agreement": 99.5, "calibration": images()},
            "between 0 and 1",
        ),
        ({"class_names": ["cat"]}, "1 names .* 5 classes"),
    ],
)
def test_what_does_not_fit(model, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_tflite(model, tmp_path / "model.tflite", **arguments)
    assert not list(tmp_path.iterdir())


def test_agreement_needs_classes(calibration, tmp_path):
    with pytest.raises(ValueError, match="its features: leave it out"):
        write_tflite(
            made(include_top=False),
            tmp_path / "model.tflite",
            precision="dynamic",
            min_agreement=0.9,
            calibration=calibration,
        )


def test_a_model_too_large_for_the_format(model, tmp_path, monkeypatch):
    monkeypatch.setattr(tflite, "_MOST_BYTES", 1000)
    with pytest.raises(RunError, match="choose tflite-dynamic"):
        write_tflite(model, tmp_path / "model.tflite")


@keras.saving.register_keras_serializable(package="test_tflite")
class Odd(keras.layers.Layer):
    def call(self, features):
        return keras.ops.erfinv(keras.ops.tanh(features))


def test_an_operation_that_the_format_lacks_is_named(tmp_path):
    images = keras.Input((8, 8, 3))
    model = keras.Model(images, Odd()(images), name="mine")
    with pytest.raises(RunError, match="mine computes tf.Erfinv, .*SavedModel"):
        write_tflite(model, tmp_path / "model.tflite")


def test_a_missing_package_is_named(model, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"pip install '\.\[export\]'"):
        write_tflite(model, tmp_path / "model.tflite")


def test_a_failed_write_leaves_the_old_file(model, converted, tmp_path, monkeypatch):
    monkeypatch.setattr(tflite, "_converted", lambda *_: converted)
    path = tmp_path / "model.tflite"
    path.write_bytes(b"old")

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tflite, "append_files", full)
    with pytest.raises(RunError, match="No space left"):
        write_tflite(model, path, class_names=list("abcde"))
    assert path.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1
