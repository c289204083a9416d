"""TFLite files in int8 and their metadata; see test_export_formats for float32."""

import collections
import dataclasses
import json
import re
import zipfile

import flatbuffers
import numpy as np
import pytest
from flatbuffers import number_types as N
from scipy.stats import norm
from small_models import HYBRID, PLAIN, SIZE, made
from written_exports import expected

from keras_vit import preprocess_input
from train.common.errors import RunError
from train.export import tflite
from train.export.tflite import quantization, write_tflite
from train.export.tflite.quantization import Product, products, quantize
from train.models.exports import litert

interpreter = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="pip install '.[export]'"
)
pytest.importorskip("ai_edge_quantizer")

ONE_BLOCK = dataclasses.replace(PLAIN, num_layers=1)
# Patches, six of the block, and a head.
PRODUCTS = 1 + 6 + 1


def images(number=4, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (number, *SIZE, 3))
    return preprocess_input(pixels)


def error_of(content, model, path):
    """How far a file's answers are from the model's, relative to the largest."""
    path.write_bytes(content)
    wanted = expected(model, images(), "logits")
    return (
        np.abs(litert.load(str(path)).run(images()) - wanted).max()
        / np.abs(wanted).max()
    )


@pytest.fixture(scope="module")
def model():
    return made(ONE_BLOCK)


@pytest.fixture(scope="module")
def calibration():
    return images(8, seed=1)


def float32(model):
    """A model as the bytes of a float32 file, to quantize."""
    return tflite._converted(model, "float32", dynamic_batch=False)


@pytest.fixture(scope="module")
def converted(model):
    return float32(model)


def kinds(content):
    """How many products a file computes how."""
    return collections.Counter(product.kind for product in products(content))


def test_a_float32_file_has_built_in_operations_alone(model, converted, tmp_path):
    path = tmp_path / "model.tflite"
    assert kinds(converted) == {"float32": PRODUCTS}
    assert error_of(converted, model, path) < 1e-5
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
    assert 0 < error_of(path.read_bytes(), model, path) < 0.05
    matrices = sum(np.prod(v.shape) for v in model.variables if len(v.shape) > 1)
    assert path.stat().st_size < 1.1 * matrices + 60_000


def test_int8_products_are_static_but_for_the_head(
    model, converted, calibration, tmp_path, monkeypatch
):
    monkeypatch.setattr(tflite, "_converted", lambda *_: converted)
    path = tmp_path / "model.tflite"
    computed = write_tflite(model, path, precision="int8", calibration=calibration)
    assert computed == {"static": PRODUCTS - 1, "dynamic": 1}
    assert 0 < error_of(path.read_bytes(), model, path) < 0.1


@pytest.mark.parametrize(("static", "kind"), [(False, "dynamic"), (True, "static")])
def test_convolutions_of_a_hybrid_are_quantized(static, kind, calibration, tmp_path):
    model = made(dataclasses.replace(HYBRID, num_layers=1))
    content = quantize(float32(model), calibration, static=static)
    found = {one.kind for one in products(content) if one.operation == "CONV_2D"}
    assert found == {kind}
    assert error_of(content, model, tmp_path / "model.tflite") < 0.2


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
    quantized = products(quantize(float32(model), calibration, static=True))
    dynamic = "".join(one.name for one in quantized if one.kind == "dynamic")
    # Keras before 3.16 counts the uses of a layer.
    assert {*re.findall(r"block_(\d)(?:_1)?/mlp(?:_1)?/project", dynamic)} == {"0"}


def test_uint8_takes_pixels(model, converted, calibration, tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(quantize(converted, calibration, static=True, uint8=True))
    run = interpreter.Interpreter(model_path=str(path))
    [given], [output] = run.get_input_details(), run.get_output_details()
    assert given["dtype"] == output["dtype"] == np.uint8
    scale, zero = given["quantization"]
    assert scale == pytest.approx(2 / 255) and zero in (127, 128)
    pixels = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), "uint8")
    scale, zero = output["quantization"]
    # Half as far again as the logits of the calibration images.
    logits = expected(model, calibration, "logits")
    least, most = min(logits.min(), 0), max(logits.max(), 0)
    limits = scale * (0 - zero), scale * (255 - zero)
    assert limits == pytest.approx((1.5 * least, 1.5 * most), abs=2 * scale)
    run.allocate_tensors()
    wanted = expected(model, preprocess_input(pixels[None]), "logits")[0]
    run.set_tensor(given["index"], pixels[None])
    run.invoke()
    [found] = run.get_tensor(output["index"]).astype("float64")
    assert np.abs((found - zero) * scale - wanted).max() < 0.1 * np.abs(wanted).max()


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


class Reader:
    """Reads a flatbuffer by the numbers of its fields."""

    def __init__(self, data, position):
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


def test_metadata_name_the_classes_and_the_range(
    model, converted, tmp_path, monkeypatch
):
    """By the field numbers of metadata_schema.fbs."""
    from ai_edge_litert.tools import flatbuffer_utils

    monkeypatch.setattr(tflite, "_converted", lambda *_: converted)
    names = ["tench", "goldfish", "white shark", "müßig", ""]
    path = tmp_path / "model.tflite"
    write_tflite(model, path, class_names=names)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("labels.txt").decode().split("\n")[:-1] == names
        facts = json.loads(archive.read("keras_vit.json"))
    assert facts == {"activation": "linear", "preparation": "squash"}
    content = flatbuffer_utils.read_model(str(path))
    [entry] = [known for known in content.metadata if known.name == b"TFLITE_METADATA"]
    metadata = bytes(bytearray(content.buffers[entry.buffer].data))
    assert metadata[4:8] == b"M001"
    position = flatbuffers.encode.Get(N.UOffsetTFlags.packer_type, metadata, 0)
    root = Reader(metadata, position)
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


def test_a_model_too_large_for_the_format_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr(tflite, "_MOST_BYTES", 1000)
    with pytest.raises(RunError, match="choose tflite-dynamic"):
        write_tflite(model, tmp_path / "model.tflite")
