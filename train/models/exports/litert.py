"""LiteRT: loads TFLite files, whose sizes are checked before it takes memory."""

import importlib.metadata
import json
import mmap
import os
import zipfile

import numpy as np

from train.models.exports import graph_sizes
from train.models.exports.description import FACTS, LABELS, ExportedModel, Facts
from zoo.common import limits
from zoo.common.limits import check_image_size
from zoo.common.regular_files import open_regular

# Values are read of tensors of at most this many bytes.
_SMALL = 256
# TFLite's operations have these names in ONNX.
_NAMES = {
    "BROADCAST_TO": "Expand", "CAST": "Cast", "CONCATENATION": "Concat",
    "EXPAND_DIMS": "Unsqueeze", "FILL": "ConstantOfShape", "MIRROR_PAD": "Pad",
    "MUL": "Mul", "NEG": "Neg", "PACK": "Concat", "PAD": "Pad", "PADV2": "Pad",
    "RANGE": "Range", "RELU": "Relu", "RESHAPE": "Reshape",
    "RESIZE_BILINEAR": "Resize", "RESIZE_NEAREST_NEIGHBOR": "Resize",
    "SQRT": "Sqrt", "SQUEEZE": "Squeeze", "TILE": "Tile",
}  # fmt: skip


def load(path: str, threads: int | None = None) -> ExportedModel:
    """Loads a TFLite file; one of a fixed batch size gets the images one by one."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    # Check before memory is taken for tensors of the sizes that the file declares.
    check_sizes(path)
    for tensor in interpreter.get_input_details():
        check_image_size(int(side) for side in tensor["shape"][1:3])
    interpreter.allocate_tensors()
    [source] = interpreter.get_input_details()
    [target] = interpreter.get_output_details()
    one_by_one = int(source["shape_signature"][0]) != -1

    def of_batch(images: np.ndarray) -> np.ndarray:
        if tuple(interpreter.get_input_details()[0]["shape"]) != images.shape:
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        if source["dtype"] == np.uint8:
            scale, zero = source["quantization"]
            images = np.clip(np.round(images / scale) + zero, 0, 255).astype("uint8")
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        answers = interpreter.get_tensor(target["index"])
        if target["dtype"] == np.uint8:
            scale, zero = map(np.float32, target["quantization"])
            answers = (answers.astype("float32") - zero) * scale
        return answers

    def run(images: np.ndarray) -> np.ndarray:
        if not one_by_one:
            return of_batch(images)
        return np.concatenate([of_batch(image[None]) for image in images])

    [signature] = interpreter.get_signature_list().values() or [{"outputs": [""]}]
    names, said = None, {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if LABELS in archive.namelist():
                names = _lines(_unpacked(archive, LABELS, limits.TEXT_BYTES))
            if FACTS in archive.namelist():
                said = json.loads(_unpacked(archive, FACTS, limits.NOTE_BYTES))
    version = importlib.metadata.version("ai-edge-litert")
    return ExportedModel(
        run,
        f"LiteRT {version}",
        image_shape=tuple(map(int, source["shape"][1:])),
        output_shape=tuple(map(int, target["shape"])),
        output=signature["outputs"][0],
        one_by_one=one_by_one,
        class_names=names,
        **vars(Facts.of_texts(said)),
    )


def _unpacked(archive, name, most):
    """Returns the bytes of a text in a zip archive, of at most `most`."""
    with archive.open(name) as member:
        content = member.read(most + 1)
    if len(content) > most:
        raise ValueError(f"its {name} has more than {most:,} bytes")
    return content


def _lines(content):
    # An editor may drop the last line break, or add a byte order mark.
    return tuple(content.decode("utf-8-sig").removesuffix("\n").split("\n"))


def check_sizes(path: str | os.PathLike) -> None:
    """Raises a `ValueError` for tensors of far more numbers than any model has.

    Known are the sizes that the file declares, and those of what operations fill,
    repeat or pad by constants. Sizes that a graph computes of its images are not.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    schema = flatbuffer_utils.schema_fb
    with open_regular(path) as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    model = schema.Model.GetRootAs(content)
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}
    types = {
        schema.TensorType.FLOAT32: "<f4",
        schema.TensorType.INT32: "<i4",
        schema.TensorType.INT64: "<i8",
    }
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    operations = [
        _NAMES.get(names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode())))
        for code in codes
    ]
    for number in range(model.SubgraphsLength()):
        graph, sizes = model.Subgraphs(number), graph_sizes.Sizes()
        for index in range(graph.TensorsLength()):
            tensor = graph.Tensors(index)
            shape = sizes.shapes[index] = _integers(tensor.ShapeAsNumpy())
            graph_sizes.check_size(shape)
            buffer = model.Buffers(tensor.Buffer())
            kind = types.get(tensor.Type())
            if kind and 0 < buffer.DataLength() <= _SMALL:
                values = np.frombuffer(buffer.DataAsNumpy().tobytes(), kind)
                sizes.constants[index] = values.tolist()
        for index in range(graph.OperatorsLength()):
            operator = graph.Operators(index)
            if operation := operations[operator.OpcodeIndex()]:
                sizes.add_of_tensorflow(
                    operation,
                    _integers(operator.InputsAsNumpy()),
                    _integers(operator.OutputsAsNumpy()),
                )


def _integers(numbers):
    # The reader gives 0 for a list that is not there.
    return [] if isinstance(numbers, int) else list(map(int, numbers))
