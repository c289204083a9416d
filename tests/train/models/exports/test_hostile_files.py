"""Exports of others: sizes, places and fields are checked before a runtime starts."""

import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from train.common.errors import RunError
from train.models.exports import (
    exported_model,
    graph_sizes,
    litert,
    onnxruntime,
    tensorflow,
)

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
litert_runtime = pytest.importorskip("ai_edge_litert.interpreter")

from ai_edge_litert.tools import flatbuffer_utils  # noqa: E402
from tensorflow.core.protobuf import saved_model_pb2  # noqa: E402

HUGE = [10**6, 10**5]


def onnx_model(nodes, constants="", images="N,224,224,3"):
    """A model in ONNX's own textual form, whose constants may be declarations."""
    graph = f"g (float[{images}] images) => () <{constants}> {{ {nodes} }}"
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {graph}')


FILLED = "s = Constant <value = int64[2] {1000000, 100000}> () v = ConstantOfShape(s)"
LOOP = f"v = Loop(n, c) <body = inner () => () {{ {FILLED} }}>"
RANGE = "v = Range(a, b, c)"
# Nodes, constants, and the sides of images.
ONNX = {
    "a declared value": ("", "float[1000000,100000] v"),
    "declared images": ("", "", "1000000000,224,224,3"),
    "filled": ("v = ConstantOfShape(a)", "int64[2] a = {1000000, 100000}"),
    "in a loop in a branch": (f"v = If(c) <then_branch = b () => () {{ {LOOP} }}>",),
    "random": ("v = RandomNormal <shape = [1000000, 100000]> ()",),
    "tiled": ("v = Tile(images, a)", "int64[4] a = {1, 100, 100, 1}"),
    "tiled by a node": ("a = Constant <value_ints = [999999, 100000]> () "
                        "v = Tile(images, a)",),
    "tiled twice": ("u = Tile(images, a) t = Relu(u) v = Tile(t, a)",
                    "int64[4] a = {1, 1, 90, 90}"),
    "scaled": ("v = Resize(images, , a)", "float[4] a = {1, 300, 300, 1}"),
    "padded": ("v = Pad(images, a)", "int64[8] a = {0, 10000000, 0, 0, 0, 0, 0, 0}"),
    "joined": ("b = Unsqueeze(a, z) s = Concat(b, b) v = ConstantOfShape(s)",
               "int64 a = {100000}, int64[1] z = {0}"),
    "multiplied": ("s = Mul(a, b) v = Expand(images, s)",
                   "int64[4] a = {1, 2000, 2000, 3}, int64[1] b = {10}"),
    "expanded": ("v = Expand(images, a)", "int64[4] a = {200000, 1, 1, 1}"),
    "in small steps": (RANGE, "double a = {0}, double b = {1e6}, double c = {1e-6}"),
    "without end": (RANGE, "double a = {0}, double b = {inf}, double c = {1}"),
}  # fmt: skip
# Sizes as in the files of others.
SMALL_ONNX = {
    "counted": (RANGE, "int64 a = {1000000}, int64 b = {1000010}, int64 c = {1}"),
    "padded": ("v = Pad(images, a)", "int64[8] a = {0, 999, 999, 0, 0, 999, 999, 0}"),
    # As transformers writes it.
    "a token per image": (
        "shape = Shape(images) batch = Gather(shape, zero) row = Unsqueeze(batch, axis)"
        "wanted = Concat(row, minus, width) ones = ConstantOfShape(wanted)"
        "tokens = Expand(token, wanted)",
        "int64 zero = {0}, int64[1] axis = {0}, int64[1] minus = {-1}, "
        "int64[1] width = {768}, float[1,1,768] token",
    ),
    # Numbers do not grow with each operation.
    "sixty squares": (" ".join(f"v{i + 1} = Mul(v{i}, v{i})" for i in range(60)),
                      "int64[1] v0 = {3}"),
}  # fmt: skip


def in_bytes(model):
    """Turns constants into bytes, as `onnx.numpy_helper` writes them."""
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return model


def written(model, path):
    path.write_bytes(model.SerializeToString())
    return path


def check_onnx(row, path):
    onnxruntime.check_sizes(written(onnx_model(*row), path))


def check_onnx_bytes(row, path):
    onnxruntime.check_sizes(written(in_bytes(onnx_model(*row)), path))


def tflite_model(name, *constants):
    """A model of one operation, whose inputs are constants."""
    schema = flatbuffer_utils.schema_fb
    model, code, graph = schema.ModelT(), schema.OperatorCodeT(), schema.SubGraphT()
    model.version = 3
    code.builtinCode = getattr(schema.BuiltinOperator, name)
    code.version = 2 if name == "BROADCAST_TO" else 1
    code.deprecatedBuiltinCode = min(code.builtinCode, 127)
    model.operatorCodes, model.subgraphs = [code], [graph]
    model.buffers, graph.tensors = [schema.BufferT()], []
    kinds = {"int32": schema.TensorType.INT32, "float32": schema.TensorType.FLOAT32}
    for values in [*constants, np.zeros((), "float32")]:
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
    return model


def whole(*values):
    return np.array(values, "int32")


TFLITE = {
    "filled": ["FILL", whole(100_000, 100_000), np.float32(1)],
    "broadcast": ["BROADCAST_TO", np.zeros((3, 1), "float32"), whole(3, 2**30)],
    "tiled": ["TILE", np.zeros((100, 1), "float32"), whole(2**12, 2**14)],
    "counted": ["RANGE", np.float32(0), np.float32(1e6), np.float32(1e-5)],
    "padded": [
        "PAD", np.zeros((2, 3), "float32"), np.int32([[2**15, 0], [0, 2**16]])
    ],
    "scaled": [
        "RESIZE_BILINEAR", np.zeros((1, 2, 2, 3), "float32"), whole(50_000, 50_000)
    ],
}  # fmt: skip
SMALL_TFLITE = ["FILL", whole(1000, 1000), np.float32(1)]


def check_tflite(row, path):
    content = flatbuffer_utils.convert_object_to_bytearray(tflite_model(*row))
    path.write_bytes(content)
    litert.check_sizes(path)


def scaled(side):
    return tf.image.resize(tf.zeros([1, 2, 2, 3]), [side, side])


def small():
    padded = tf.pad(scaled(500), [[0, 0], [9, 9], [9, 9], [0, 0]])
    return tf.tile(padded, [8, 1, 1, 1])


SAVED_MODEL = {
    "declared": lambda: tf.raw_ops.Placeholder(dtype=tf.float32, shape=HUGE),
    "constant": lambda: tf.shape(tf.constant(1.0, shape=HUGE)),
    "filled": lambda: tf.fill(HUGE, 1.0),
    "broadcast": lambda: tf.broadcast_to(tf.ones([]), HUGE),
    "tiled": lambda: tf.tile(tf.ones([100, 1]), [2**12, 2**14]),
    "tiled twice": lambda: tf.tile(tf.tile(tf.ones([9]), [2**16]), [2**16]),
    "counted": lambda: tf.range(0.0, 1e6, 1e-6),
    "padded": lambda: tf.pad(tf.ones([2, 3]), [[2**15, 0], [0, 2**16]]),
    "scaled": lambda: tf.shape(scaled(50_000)),
    "random": lambda: tf.random.stateless_uniform(HUGE, [1, 2]),
    "of many": lambda: tf.fill(tf.stack([tf.constant(10**6), 10**5]), 1.0),
    "joined": lambda: tf.fill(tf.concat([tf.constant([10**6]), [10**5]], 0), 1.0),
}


def message_of(function):
    """The message of a SavedModel with a function's operations, in any order."""
    graph = tf.function(function, []).get_concrete_function().graph.as_graph_def()
    model = saved_model_pb2.SavedModel()
    model.meta_graphs.add().graph_def.node.extend(reversed(graph.node))
    return model


def check_saved_model(function, path):
    tensorflow.check_sizes(message_of(function))


def cases(**tables):
    for kind, (check, table) in tables.items():
        for name, content in table.items():
            yield pytest.param(check, content, id=f"{kind}: {name}")


@pytest.mark.parametrize(
    ("check", "content"),
    cases(
        onnx=(check_onnx, ONNX),
        onnx_bytes=(check_onnx_bytes, ONNX),
        tflite=(check_tflite, TFLITE),
        saved_model=(check_saved_model, SAVED_MODEL),
    ),
)
def test_sizes_that_a_graph_declares_or_computes_are_bounded(check, content, tmp_path):
    with pytest.raises(ValueError, match="it would compute .* numbers at once"):
        check(content, tmp_path / "model")


@pytest.mark.parametrize(
    ("check", "content"),
    cases(
        onnx=(check_onnx, SMALL_ONNX),
        tflite=(check_tflite, {"filled": SMALL_TFLITE}),
        saved_model=(check_saved_model, {"scaled": small}),
    ),
)
def test_small_sizes_pass(check, content, tmp_path):
    check(content, tmp_path / "model")


@pytest.mark.parametrize("kind", [tf.resource.as_datatype_enum, 777])
def test_constants_without_numbers_are_left_to_tensorflow(kind):
    model = message_of(SAVED_MODEL["filled"])
    for node in model.meta_graphs[0].graph_def.node:
        if node.op == "Const":
            node.attr["value"].tensor.dtype = kind
    tensorflow.check_sizes(model)


def test_integers_and_floats_are_sizes_together():
    with pytest.raises(ValueError, match="at once"):
        graph_sizes.check_size([2**63] * 20 + [1.5])


def test_paddings_of_tensorflow_are_put_in_the_order_of_onnx():
    sizes = graph_sizes.Sizes()
    sizes.shapes["a"], sizes.constants["b"] = [10, 20], [1, 2, 3, 4]
    sizes.add_of_tensorflow("Pad", ["a", "b"], ["c"])
    assert sizes.shapes["c"] == [13, 27]


def huge_tflite(folder):
    model = tflite_model("FILL", whole(2, 2), np.float32(1))
    model.subgraphs[0].tensors[-1].shape = HUGE
    path = folder / "model.tflite"
    path.write_bytes(flatbuffer_utils.convert_object_to_bytearray(model))
    return path


def huge_saved_model(folder):
    answer = tf.function(lambda: {"logits": tf.fill(HUGE, 1.0)}, [])
    tf.saved_model.save(tf.train.Checkpoint(), str(folder), answer)
    return folder


def huge_onnx(folder):
    return written(onnx_model(*ONNX["a declared value"]), folder / "model.onnx")


@pytest.mark.parametrize("write", [huge_onnx, huge_tflite, huge_saved_model])
def test_a_huge_tensor_is_refused_before_its_runtime_takes_memory(
    write, tmp_path, monkeypatch
):
    path = write(tmp_path)
    monkeypatch.setattr(runtime, "InferenceSession", None)
    monkeypatch.setattr(litert_runtime.Interpreter, "allocate_tensors", None)
    monkeypatch.setattr(tf.saved_model, "load", None)
    with pytest.raises(RunError, match="cannot be used .*would compute 1,000,000 x"):
        exported_model.load(path)


def test_fields_of_an_onnx_file_are_counted_before_they_are_kept(tmp_path, monkeypatch):
    """Five million of them in an attribute took 440 MB."""
    file = tmp_path / "model.onnx"
    file.write_bytes(b"\x08\x01" * (2**20 + 1))
    for read in (onnxruntime.files, onnxruntime.check_sizes):
        with pytest.raises(ValueError, match="more than 1,048,576 fields"):
            read(file)
    monkeypatch.setattr(onnxruntime.limits, "ONNX_FIELDS", 1000)
    model = onnx_model("v = Relu(images)")
    model.graph.node[0].attribute.add(name="x").ints.extend([1] * 100_000)
    written(model, file)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 1,000 fields"):
        onnxruntime.check_sizes(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_damaged_onnx_files_have_no_known_weights(tmp_path):
    file = tmp_path / "model.onnx"
    for content in (b"\x3a\xff\x01a", b"\x3a" + b"\xff" * 12, b"\x3b"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="ends too early|does not end|of type"):
            onnxruntime.files(file)


@pytest.mark.parametrize("ending", [".tflite", ".onnx"])
def test_damaged_files_are_named(ending, tmp_path):
    path = tmp_path / f"model{ending}"
    path.write_bytes(b"damaged " * 100)
    with pytest.raises(RunError, match=rf"model{ending} cannot be used \("):
        exported_model.load(path)


def test_the_digest_is_of_weights_in_other_files(tmp_path):
    proto = in_bytes(onnx_model("", "float[2] a = {1, 2}, float[2] b = {3, 4}"))
    file, options = tmp_path / "model.onnx", {"all_tensors_to_one_file": False}
    onnx.save_model(
        proto, file, save_as_external_data=True, size_threshold=0, **options
    )
    files = exported_model.files_of(file)
    assert len(files) == 3 and files[0] == file
    known = exported_model.digest_of(file)
    for one in files[1:]:
        content = one.read_bytes()
        one.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert exported_model.digest_of(file) != known
        one.write_bytes(content)
    assert exported_model.digest_of(file) == known


@pytest.mark.parametrize(
    "location", ["../secret", "{secret}", "link", "sub/../../secret", "folder/secret"]
)
def test_weights_outside_of_the_folder_are_refused_before_they_are_read(
    location, tmp_path, monkeypatch
):
    for name in ("outside", "own"):
        (tmp_path / name).mkdir()
    (secret := tmp_path / "outside" / "secret").write_bytes(bytes(4))
    (tmp_path / "own" / "link").symlink_to(secret)
    (tmp_path / "own" / "folder").symlink_to(secret.parent)
    location = location.format(secret=secret)
    model = onnx_model("")
    weight = model.graph.initializer.add(name="w", data_type=1, dims=[1])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    file = written(model, tmp_path / "own" / "model.onnx")
    monkeypatch.setattr(runtime, "InferenceSession", None)
    with pytest.raises(RunError, match=f"weights at '{location}', which is not in its"):
        exported_model.load(file)
