"""Exported files with what they say of their model, run without Keras."""

import json
import pkgutil
import shutil
import tracemalloc
import warnings
import zipfile

import keras
import numpy as np
import pytest
from small_models import made, shared

from keras_vit import Predictor
from train.common.errors import RunError
from train.export.formats import FORMATS
from train.models.exports import (
    description,
    exported_model,
    graph_sizes,
    litert,
    onnxruntime,
    writing,
)

pytest.importorskip("tensorflow")
pytest.importorskip("ai_edge_litert")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="an export needs TensorFlow"
)
NAMES = ("cat", "été", "white shark", "4", "")
KINDS = ("saved_model", "tflite", "onnx")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (3, 32, 48, 3)).astype("float32")


def write(kind, model, folder, names=NAMES):
    """Writes an export as train.export does, and returns its folder."""
    row = FORMATS[kind]
    folder.mkdir(exist_ok=True)
    (folder / row.file).parent.mkdir(exist_ok=True)
    options = {"precision": row.precision} if "precision" in row.takes else {}
    writer = pkgutil.resolve_name(row.runtime.writer)
    writer(model, folder / row.file, class_names=names, **options)
    return folder


@pytest.fixture(scope="module", params=KINDS)
def sigmoid(request, tmp_path_factory):
    """A kind, an export with a sigmoid and central crop, and its model."""
    model = made(classifier_activation="sigmoid")
    model.layers[-1].preparation = "central crop"
    folder = tmp_path_factory.mktemp("exports") / request.param
    return request.param, write(request.param, model, folder), model


def test_an_export_says_all_that_answers_need(sigmoid):
    kind, folder, model = sigmoid
    path = exported_model.find(str(folder))
    assert path == folder / FORMATS[kind].file == exported_model.find(path)
    found = exported_model.load(path)
    assert found.image_shape == (32, 48, 3) and found.size == 5
    assert found.class_names == NAMES
    assert (found.activation, found.preparation) == ("sigmoid", "central crop")
    outputs = found.run(IMAGES)
    if found.output == "logits":
        outputs = 1 / (1 + np.exp(-outputs))
    else:
        assert (kind, found.output) == ("onnx", "probabilities")
    np.testing.assert_allclose(outputs, model(IMAGES), atol=2e-5)
    assert found.one_by_one == (kind == "tflite")
    if kind == "saved_model":
        body, _ = writing.body_and_head(model)
        np.testing.assert_allclose(found.features(IMAGES), body(IMAGES), atol=2e-5)
    else:
        assert found.features is None


def test_the_digest_is_of_the_bytes(sigmoid, tmp_path):
    kind, folder, _ = sigmoid
    path = exported_model.find(folder)
    known = exported_model.digest_of(path)
    assert known == exported_model.digest_of(path)
    some = exported_model.files_of(path)[-1]
    content = some.read_bytes()
    some.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert exported_model.digest_of(path) != known
    some.write_bytes(content)


@pytest.fixture
def onnx_file(tmp_path):
    folder = write("onnx", shared(), tmp_path / "plain", names=None)
    return folder / FORMATS["onnx"].file


def test_names_beside_the_file(onnx_file):
    assert exported_model.load(onnx_file).class_names is None
    (onnx_file.parent / "class_names.txt").write_text("a\nb\nc\nd\ne\n")
    assert exported_model.load(onnx_file).class_names == tuple("abcde")
    (onnx_file.parent / "class_names.txt").write_text("a\nb\n")
    with pytest.raises(RunError, match="has 5 classes and 2 class names"):
        exported_model.load(onnx_file)


def test_features_have_no_classes(tmp_path):
    model = shared("without head")
    folder = write("onnx", model, tmp_path / "features", names=None)
    (folder / "class_names.txt").write_text("a\n")
    found = exported_model.load(exported_model.find(folder))
    assert (found.output, found.size, found.class_names) == ("features", 24, None)


@pytest.mark.parametrize("kind", ["tflite", "onnx"])
def test_outputs_for_each_token_are_refused_by_name(kind, tmp_path):
    model = shared("all tokens")
    folder = write(kind, model, tmp_path / "tokens", names=None)
    with pytest.raises(
        RunError, match=r"tokens/.* gives outputs of shape \(25, 24\) fo"
    ):
        exported_model.load(exported_model.find(folder))


def test_folders_of_several_exports_and_of_others(onnx_file, tmp_path):
    assert exported_model.find("vit-ti16/augreg-imagenet21k") is None
    assert exported_model.find(tmp_path) is None
    second = onnx_file.with_name("model-float16.onnx")
    second.write_bytes(onnx_file.read_bytes())
    with pytest.raises(
        RunError, match=r"has several exports, model-float16\.onnx, model\.onnx: give"
    ):
        exported_model.find(onnx_file.parent)
    # A run, whose model is meant.
    (onnx_file.parent / "model.keras").touch()
    assert exported_model.find(onnx_file.parent) is None
    with pytest.raises(RunError, match="There is no file .*none.tflite"):
        exported_model.find("none.tflite")


def test_the_newest_version_that_is_served(tmp_path):
    for version in ("2", "10", "not"):
        folder = tmp_path / "saved_model" / version
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").touch()
    assert exported_model.find(tmp_path).name == "10"
    assert exported_model.find(tmp_path / "saved_model").name == "10"


@pytest.mark.parametrize("ending", [".tflite", ".onnx"])
def test_damaged_files(ending, tmp_path):
    path = tmp_path / f"model{ending}"
    path.write_bytes(b"damaged " * 100)
    with pytest.raises(RunError, match=rf"model{ending} cannot be used \("):
        exported_model.load(path)


@pytest.mark.parametrize(
    ("name", "value"), [("preparation", "new"), ("activation", "tanh")]
)
def test_facts_that_are_not_known(name, value, onnx_file):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(onnx_file)
    for entry in model.metadata_props:
        if entry.key == name:
            entry.value = value
    onnx.save(model, onnx_file)
    with pytest.raises(RunError, match=f"not as keras-vit export writes it.*{value}"):
        exported_model.load(onnx_file)


def test_a_missing_runtime_is_named(onnx_file, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RunError, match="needs onnxruntime, which is not installed"):
        exported_model.load(onnx_file)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_packed_texts_of_a_tflite_file_are_bounded(tmp_path):
    path = write("tflite", made(), tmp_path / "x") / FORMATS["tflite"].file
    for name in (description.LABELS, description.FACTS):
        bomb = tmp_path / f"{name}.tflite"
        shutil.copyfile(path, bomb)
        with zipfile.ZipFile(bomb, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, bytes(2**25))
        tracemalloc.start()
        with pytest.raises(RunError, match="has more than"):
            exported_model.load(bomb)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**26


@pytest.mark.parametrize("size", ["20000,20000", "1,100000", "0,0"])
def test_images_of_an_export_beyond_the_limits_are_refused(tmp_path, size):
    import onnx

    path = write("onnx", made(), tmp_path / "x") / FORMATS["onnx"].file
    proto = onnx.load(path)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "image_size", size
    onnx.save(proto, path)
    with pytest.raises(RunError, match="its images"):
        exported_model.load(path)


@pytest.mark.parametrize(
    "beside", ["model.keras", "checkpoints", "model.json", "model.safetensors"]
)
def test_a_saved_model_laid_into_another_model_is_refused(tmp_path, beside):
    (tmp_path / "saved_model.pb").touch()
    assert exported_model.find(tmp_path) == tmp_path
    (tmp_path / beside).touch()
    with pytest.raises(RunError, match=f"two kinds, {beside} and saved_model.pb"):
        exported_model.find(tmp_path)


def test_the_digest_is_of_weights_in_any_file(onnx_file):
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(onnx_file)
    # As others write them: in a file each, or in one of another name.
    for options in (
        {"all_tensors_to_one_file": False},
        {"all_tensors_to_one_file": True, "location": "weights.bin"},
    ):
        file = onnx_file.with_name(f"{len(options)}.onnx")
        file.parent.mkdir(exist_ok=True)
        onnx.save_model(
            onnx.ModelProto.FromString(proto.SerializeToString()),
            file,
            save_as_external_data=True,
            size_threshold=0,
            **options,
        )
        files = exported_model.files_of(file)
        assert len(files) > 1 and files[0] == file
        known = exported_model.digest_of(file)
        for one in files[1:]:
            content = one.read_bytes()
            one.write_bytes(bytes([content[0] ^ 1]) + content[1:])
            assert exported_model.digest_of(file) != known
            one.write_bytes(content)
        assert exported_model.digest_of(file) == known


def test_weights_in_graphs_in_graphs_are_found(tmp_path):
    onnx = pytest.importorskip("onnx")
    values = onnx.numpy_helper.from_array(np.ones((5, 5), "float32"))
    constant = onnx.helper.make_node("Constant", [], ["c"], value=values)
    output = onnx.helper.make_tensor_value_info("c", 1, [5, 5])
    inner = onnx.helper.make_graph([constant], "inner", [], [output])
    branches = {"then_branch": inner, "else_branch": inner}
    node = onnx.helper.make_node("If", ["condition"], ["y"], **branches)
    proto = onnx.helper.make_model(onnx.helper.make_graph([node], "outer", [], []))
    file = tmp_path / "model.onnx"
    onnx.save(proto, file)
    assert onnxruntime.locations(file) == set()
    options = {"location": "weights.bin", "convert_attribute": True}
    onnx.save_model(
        proto, file, save_as_external_data=True, size_threshold=0, **options
    )
    assert onnxruntime.locations(file) == {"weights.bin"}


@pytest.mark.parametrize(
    "location", ["../secret", "{secret}", "link", "sub/../../secret", "folder/secret"]
)
def test_weights_outside_of_the_folder_are_refused_before_they_are_read(
    location, onnx_file, tmp_path, monkeypatch
):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    outside = tmp_path / "outside"
    outside.mkdir()
    (secret := outside / "secret").write_bytes(bytes(4))
    folder = onnx_file.parent
    (folder / "link").symlink_to(secret)
    (folder / "folder").symlink_to(outside)
    proto = onnx.load(onnx_file)
    location = location.format(secret=secret)
    weight = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=1)
    weight.external_data.add(key="location", value=location)
    proto.graph.initializer.append(weight)
    onnx_file.write_bytes(proto.SerializeToString())
    monkeypatch.setattr(runtime, "InferenceSession", None)
    with pytest.raises(RunError, match=f"weights at '{location}', which is not in its"):
        exported_model.load(onnx_file)


HUGE = [10**6, 10**5]


def of_initializer(onnx, graph):
    graph.initializer.append(onnx.TensorProto(name="w", data_type=1, dims=HUGE))


def of_images(onnx, graph):
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**9


def of_value(onnx, graph):
    graph.value_info.append(onnx.helper.make_tensor_value_info("v", 1, HUGE))


def filled(onnx, graph):
    shape = onnx.numpy_helper.from_array(np.array(HUGE, "int64"), "shape")
    graph.initializer.append(shape)
    graph.node.append(onnx.helper.make_node("ConstantOfShape", ["shape"], ["v"]))


def repeated(onnx, graph):
    node = onnx.helper.make_node("Constant", [], ["counts"], value_ints=HUGE)
    tile = onnx.helper.make_node("Tile", [graph.input[0].name, "counts"], ["v"])
    graph.node.extend([node, tile])


def filled_within(onnx):
    shape = onnx.helper.make_tensor("shape", 7, [2], HUGE)
    nodes = [
        onnx.helper.make_node("Constant", [], ["shape"], value=shape),
        onnx.helper.make_node("ConstantOfShape", ["shape"], ["v"]),
    ]
    return onnx.helper.make_graph(nodes, "inner", [], [])


def filled_in_a_branch(onnx, graph):
    inner = filled_within(onnx)
    graph.node.append(onnx.helper.make_node("If", ["c"], ["v"], then_branch=inner))


def filled_in_a_loop(onnx, graph):
    inner = filled_within(onnx)
    graph.node.append(onnx.helper.make_node("Loop", ["n", "c"], ["v"], body=inner))


def filled_in_a_loop_in_a_branch(onnx, graph):
    filled_in_a_loop(onnx, around := onnx.GraphProto(name="around"))
    graph.node.append(onnx.helper.make_node("If", ["c"], ["v"], then_branch=around))


def counted(onnx, graph):
    for name, value in (("start", 0), ("stop", 1e11), ("step", 1)):
        tensor = onnx.numpy_helper.from_array(np.array(value, "float32"), name)
        graph.initializer.append(tensor)
    graph.node.append(onnx.helper.make_node("Range", ["start", "stop", "step"], ["v"]))


def random_numbers(onnx, graph):
    graph.node.append(onnx.helper.make_node("RandomNormal", [], ["v"], shape=HUGE))


@pytest.mark.parametrize(
    "change",
    [
        of_initializer, of_images, of_value, filled, repeated, filled_in_a_branch,
        filled_in_a_loop, filled_in_a_loop_in_a_branch, counted, random_numbers,
    ],
)  # fmt: skip
def test_sizes_in_a_graph_are_bounded_before_the_runtime_takes_memory(
    change, onnx_file, monkeypatch
):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    proto = onnx.load(onnx_file)
    change(onnx, proto.graph)
    onnx_file.write_bytes(proto.SerializeToString())
    monkeypatch.setattr(runtime, "InferenceSession", None)
    with pytest.raises(RunError, match="would compute .* numbers at once"):
        exported_model.load(onnx_file)


def graph_of(onnx, nodes, constants, sides=(None, 224, 224, 3)):
    images = onnx.helper.make_tensor_value_info("images", 1, sides)
    tensors = [
        onnx.numpy_helper.from_array(np.array(value), name)
        for name, value in constants.items()
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(*node) for node in nodes], "g", [images], [], tensors
    )
    return onnx.helper.make_model(graph).SerializeToString()


SIZES = {
    "tiled": ([("Tile", ["images", "a"], ["v"])], {"a": [1, 100, 100, 1]}),
    "tiled twice": (
        [("Tile", ["images", "a"], ["u"]), ("Relu", ["u"], ["t"])]
        + [("Tile", ["t", "a"], ["v"])],
        {"a": [1, 1, 90, 90]},
    ),
    "scaled": (
        [("Resize", ["images", "", "a"], ["v"])],
        {"a": np.float32([1, 300, 300, 1])},
    ),
    "padded": (
        [("Pad", ["images", "a"], ["v"])],
        {"a": [0, 10**7, 0, 0, 0, 0, 0, 0]},
    ),
    "put together": (
        [("Unsqueeze", ["a", "z"], ["b"]), ("Concat", ["b", "b"], ["s"])]
        + [("ConstantOfShape", ["s"], ["v"])],
        {"a": 10**5, "z": [0]},
    ),
    "multiplied": (
        [("Mul", ["a", "b"], ["s"]), ("Expand", ["images", "s"], ["v"])],
        {"a": [1, 2000, 2000, 3], "b": [10]},
    ),
    "as wide as the images": (
        [("Expand", ["images", "a"], ["v"])],
        {"a": [200_000, 1, 1, 1]},
    ),
    "small steps": (
        [("Range", ["a", "b", "c"], ["v"])],
        {"a": 0.0, "b": 1e6, "c": 1e-6},
    ),
    "endless": (
        [("Range", ["a", "b", "c"], ["v"])],
        {"a": 0.0, "b": float("inf"), "c": 1.0},
    ),
}


@pytest.mark.parametrize("nodes, constants", SIZES.values(), ids=SIZES)
def test_sizes_that_a_graph_computes_of_constants_are_bounded(
    nodes, constants, tmp_path
):
    onnx = pytest.importorskip("onnx")
    file = tmp_path / "model.onnx"
    file.write_bytes(graph_of(onnx, nodes, constants))
    with pytest.raises(ValueError, match="it would compute .* numbers at once"):
        onnxruntime.check_sizes(file)


def test_sizes_in_graphs_of_others_pass(tmp_path):
    onnx = pytest.importorskip("onnx")
    nodes = [
        # Numbers from 10^6 to 10^6 + 10, and a margin of 1000 pixels.
        ("Range", ["start", "stop", "one"], ["counts"]),
        ("Pad", ["images", "margins"], ["padded"]),
        # Class tokens and positions of as many images as come, as transformers writes.
        ("Shape", ["images"], ["shape"]),
        ("Gather", ["shape", "zero"], ["batch"]),
        ("Unsqueeze", ["batch", "axis"], ["row"]),
        ("Concat", ["row", "minus", "width"], ["wanted"]),
        ("ConstantOfShape", ["wanted"], ["ones"]),
        ("Expand", ["token", "wanted"], ["tokens"]),
    ]
    constants = {
        "start": 10**6, "stop": 10**6 + 10, "one": 1, "zero": 0, "axis": [0],
        "margins": [0, 1000, 1000, 0, 0, 1000, 1000, 0], "minus": [-1],
        "width": [768], "token": np.ones((1, 1, 768), "float32"),
    }  # fmt: skip
    file = tmp_path / "model.onnx"
    file.write_bytes(graph_of(onnx, nodes, constants))
    onnxruntime.check_sizes(file)


def test_numbers_of_a_graph_do_not_grow_with_each_operation(tmp_path):
    onnx = pytest.importorskip("onnx")
    nodes = [("Mul", [f"v{i}", f"v{i}"], [f"v{i + 1}"]) for i in range(60)]
    file = tmp_path / "model.onnx"
    file.write_bytes(graph_of(onnx, nodes, {"v0": [3]}))
    onnxruntime.check_sizes(file)


def test_fields_of_an_onnx_file_are_bounded(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x08\x01" * (2**20 + 1))
    for read in (onnxruntime.files, onnxruntime.check_sizes):
        with pytest.raises(ValueError, match="more than 1,048,576 fields"):
            read(file)


def test_fields_of_an_onnx_attribute_are_counted_before_they_are_kept(
    tmp_path, monkeypatch
):
    """Five million of them took 440 MB."""
    monkeypatch.setattr(onnxruntime.limits, "ONNX_FIELDS", 1000)
    attribute = b"\x18\x01" * 100_000
    parts = b"\x2a" + varint(len(attribute)) + attribute
    node = b"\x0a" + varint(len(parts)) + parts
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x3a" + varint(len(node)) + node)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 1,000 fields"):
        onnxruntime.check_sizes(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def test_sizes_of_integers_and_floats_are_compared():
    with pytest.raises(ValueError, match="at once"):
        graph_sizes.check_size([2**63] * 20 + [1.5])


def with_operation(path, name, constants, declared):
    """Writes a TFLite file of one operation, whose inputs are constants."""
    tools = pytest.importorskip("ai_edge_litert.tools.flatbuffer_utils")
    schema = tools.schema_fb
    model, code, graph = schema.ModelT(), schema.OperatorCodeT(), schema.SubGraphT()
    model.version = 3
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.version = 2 if name == "BROADCAST_TO" else 1
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    model.operatorCodes, model.subgraphs = [code], [graph]
    model.buffers, graph.tensors = [schema.BufferT()], []
    kinds = {"int32": schema.TensorType.INT32, "float32": schema.TensorType.FLOAT32}
    for values in [*constants, np.zeros(declared, "float32")]:
        buffer, tensor = schema.BufferT(), schema.TensorT()
        buffer.data = np.frombuffer(np.array(values).tobytes(), "uint8")
        tensor.shape, tensor.type = list(values.shape), kinds[str(values.dtype)]
        tensor.buffer = len(model.buffers)
        model.buffers.append(buffer)
        graph.tensors.append(tensor)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = range(len(constants)), [len(constants)]
    graph.operators, graph.inputs, graph.outputs = [operator], [], operator.outputs
    model.buffers[-1].data = None
    path.write_bytes(tools.convert_object_to_bytearray(model))


def whole(*values):
    return np.array(values, "int32")


TFLITE_SIZES = {
    "FILL": [whole(100_000, 100_000), np.float32(1)],
    "BROADCAST_TO": [np.zeros((3, 1), "float32"), whole(3, 2**30)],
    "TILE": [np.zeros((100, 1), "float32"), whole(2**12, 2**14)],
    "RANGE": [np.float32(0), np.float32(1e6), np.float32(1e-5)],
    "PAD": [np.zeros((2, 3), "float32"), np.array([[2**15, 0], [0, 2**16]], "int32")],
    "RESIZE_BILINEAR": [np.zeros((1, 2, 2, 3), "float32"), whole(50_000, 50_000)],
}


@pytest.mark.parametrize("name", TFLITE_SIZES)
def test_sizes_of_tflite_operations_are_refused_before_memory_is_taken(
    name, tmp_path, monkeypatch
):
    path = tmp_path / "model.tflite"
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    monkeypatch.setattr(interpreter, "allocate_tensors", None)
    with_operation(path, name, TFLITE_SIZES[name], declared=())
    with pytest.raises(RunError, match="would compute .* numbers at once"):
        exported_model.load(path)


def test_small_sizes_of_tflite_operations_pass(tmp_path):
    path = tmp_path / "model.tflite"
    with_operation(path, "FILL", [whole(1000, 1000), np.float32(1)], declared=())
    litert.check_sizes(path)


def test_a_huge_tensor_of_a_tflite_file_is_refused_before_memory_is_taken(
    tmp_path, monkeypatch
):
    tools = pytest.importorskip("ai_edge_litert.tools.flatbuffer_utils")
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    path = tmp_path / "model.tflite"
    with_operation(path, "FILL", [whole(2, 2), np.float32(1)], declared=())
    model = tools.read_model(str(path))
    model.subgraphs[0].tensors[-1].shape = [20_000, 20_000, 3]
    path.write_bytes(tools.convert_object_to_bytearray(model))
    monkeypatch.setattr(interpreter, "allocate_tensors", None)
    with pytest.raises(RunError, match="would compute 20,000 x 20,000 x 3 numbers"):
        exported_model.load(path)


def test_damaged_files_have_no_locations(tmp_path):
    file = tmp_path / "model.onnx"
    for content in (b"\x3a\xff\x01a", b"\x3a" + b"\xff" * 12, b"\x3b"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="ends too early|does not end|of type"):
            onnxruntime.locations(file)


@pytest.mark.parametrize("names", ["[1, 2, 3, 4, 5]", '[["a"], "b"]', "7", '{"a": 1}'])
def test_class_names_that_are_no_texts_are_refused(names, onnx_file):
    onnx = pytest.importorskip("onnx")
    proto = onnx.load(onnx_file)
    onnx.helper.set_model_props(proto, {"class_names": names})
    onnx.save(proto, onnx_file)
    with pytest.raises(RunError, match="class_names are not a list of texts.*export"):
        exported_model.load(onnx_file)


@pytest.mark.parametrize("facts", [[], {"image_size": 32}, {"activation": ["softmax"]}])
def test_facts_that_are_no_texts_are_refused(facts, tmp_path):
    folder = write("tflite", shared(), tmp_path / "plain")
    path = folder / FORMATS["tflite"].file
    with zipfile.ZipFile(path, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a second file of this name
        archive.writestr(description.FACTS, json.dumps(facts))
    with pytest.raises(RunError, match="its facts are not a table of texts"):
        exported_model.load(path)


@pytest.mark.parametrize("shape", [(3, 48, 48, 3), (3, 32, 48, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_images_that_the_graph_does_not_take_are_a_clear_error(kind, shape, tmp_path):
    folder = write(kind, shared(), tmp_path / kind)
    path = exported_model.find(folder)
    found = exported_model.load(path)
    with pytest.raises(RunError) as caught:
        found.run(np.zeros(shape, "float32"))
    message = str(caught.value)
    assert str(path) in message and str(shape[1:]) in message
    assert message.endswith("export it again.") and "\n" not in message


def test_onnx_runtime_is_told_to_write_no_telemetry(onnx_file, monkeypatch):
    import onnxruntime

    calls = []
    session = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "disable_telemetry_events", lambda: calls.append("disabled")
    )
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda *args, **options: calls.append("session") or session(*args, **options),
    )
    exported_model.load(onnx_file)
    Predictor(shared(), engine="onnxruntime")(IMAGES)
    assert calls == ["disabled", "session"] * 2
