"""ONNX Runtime: loads ONNX files.

What a file says of sizes, and of other files in which its weights lie, is found in its
bytes before the runtime takes memory or opens these: the package onnx is not needed.
"""

import itertools
import json
import math
import mmap
import os
import pathlib

import numpy as np

from train.common.errors import RunError
from train.models.exports import graph_sizes
from train.models.exports.description import ExportedModel, Facts, texts
from zoo.common import limits
from zoo.common.regular_files import check, open_regular
from zoo.runtimes import onnx_session

# https://github.com/onnx/onnx/blob/main/onnx/onnx.proto has these messages, with the
# numbers of fields that hold other messages. An "entry" is external data of a tensor.
_FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {
        1: "node", 5: "tensor", 15: "sparse", 11: "value", 12: "value", 13: "value",
    },
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "value": {2: "type"},
    "type": {1: "array"},
    "array": {2: "shape"},
    "shape": {},
    "entry": {},
}  # fmt: skip
_KEY, _VALUE = 1, 2
# Small tensors have numbers of these types, and of these fields where not in raw bytes.
_NUMBERS = {1: "<f4", 6: "<i4", 7: "<i8", 11: "<f8"}
_PACKED_FLOATS = {4: "<f4", 10: "<f8"}
_PACKED_INTEGERS = (5, 7)
_MOST_AXES = 16
# The type of these fields says how many bytes they have.
_FIXED = {1: 8, 5: 4}


def load(path: str, threads: int | None = None) -> ExportedModel:
    """Loads an ONNX file."""
    import onnxruntime

    files(path)  # refuses those outside of its folder
    check_sizes(path)
    session = onnx_session(path, threads or 0)
    [source], [target] = session.get_inputs(), session.get_outputs()
    metadata = session.get_modelmeta().custom_metadata_map

    def run(images: np.ndarray) -> np.ndarray:
        [answers] = session.run(None, {source.name: images})
        return answers

    names, facts = metadata.get("class_names"), Facts.of_texts(metadata)
    return ExportedModel(
        run,
        f"ONNX Runtime {onnxruntime.__version__}",
        (*(facts.image_size or source.shape[1:3]), *source.shape[3:]),
        tuple(target.shape),
        target.name,
        class_names=None if names is None else texts(json.loads(names)),
        **vars(facts),
    )


def check_sizes(path: str | os.PathLike) -> None:
    """Raises a `ValueError` for tensors of far more numbers than any model has.

    Known are the sizes of weights, inputs and outputs, and those of what operations
    fill, repeat or pad by constants. Sizes that a graph computes of its images are not.
    """
    nodes, sizes = [], graph_sizes.Sizes()
    for kind, fields in _messages(path):
        if kind == "tensor":
            shape = _integers(fields, 1)
            graph_sizes.check_size(shape)
            for name in _texts(fields, 8):
                sizes.keep(name, shape, _values(fields))
        elif kind == "shape":
            graph_sizes.check_size(_sides(fields))
        elif kind == "value":
            for name in _texts(fields, 1):
                sizes.keep(name, _declared(fields), None)
        elif kind == "attribute" and b"shape" in _texts(fields, 1):
            graph_sizes.check_size(_integers(fields, 8))
        elif kind == "node":
            nodes.append(_node(fields))
    # Messages were read from the last one on.
    for node in reversed(nodes):
        sizes.add(*node)


def _node(fields):
    """Returns the arguments of `graph_sizes.Sizes.add`."""
    operation = b"".join(_texts(fields, 4)[-1:]).decode("utf-8", "replace")
    attributes, shape = {}, None
    for attribute in _parts(fields, 5):
        inner = list(itertools.islice(_fields(attribute), limits.ONNX_FIELDS))
        values = _integers(inner, 8) or _integers(inner, 3)
        for tensor in _parts(inner, 5):
            parts = list(itertools.islice(_fields(tensor), 16 * _MOST_AXES))
            values, shape = _values(parts), _integers(parts, 1)
        for name in _texts(inner, 1):
            attributes[name.decode("utf-8", "replace")] = values
    return operation, _texts(fields, 1), _texts(fields, 2), attributes, shape


def _declared(fields):
    """Returns the shape of a value, None where it has none."""
    for number in (2, 1, 2):
        fields = [
            inner
            for value in _parts(fields, number)
            for inner in itertools.islice(_fields(value), limits.ONNX_FIELDS)
        ]
    return _sides(fields) or None


def _sides(fields):
    """Returns the sides of a shape, those that are not known as 1."""
    return [next(iter(_integers(_fields(dim), 1)), 1) for dim in _parts(fields, 1)]


def _values(fields):
    """Returns the numbers of a small tensor, None of a large one."""
    kind = _NUMBERS.get(next(iter(_integers(fields, 2)), None))
    kinds = {**_PACKED_FLOATS, 9: kind}
    numbers, size = [], 0
    for number, value in fields:
        size += len(value) if _is_bytes(value) and number != 8 else 1
        if size > 16 * _MOST_AXES:
            return None
        if number in _PACKED_INTEGERS:
            numbers += _integers([(number, value)], number)
        elif _is_bytes(value) and kinds.get(number):
            dtype = np.dtype(kinds[number])
            usable = len(value) // dtype.itemsize * dtype.itemsize
            numbers += np.frombuffer(value[:usable], dtype).tolist()
    return [0 if math.isnan(value) else value for value in numbers]


def _texts(fields, wanted):
    return [bytes(value[:999]) for value in _parts(fields, wanted)]


def _integers(fields, wanted):
    """Returns the signed numbers of a field, which has one each or all in a row."""
    numbers = []
    for number, value in fields:
        if number == wanted and _is_bytes(value):
            at = 0
            while at < len(value) and len(numbers) <= _MOST_AXES:
                one, at = _number(value, at)
                numbers.append(one)
        elif number == wanted:
            numbers.append(value)
    return [one - 2**64 if one >= 2**63 else one for one in numbers]


def _parts(fields, wanted):
    """Returns the messages, texts or packed numbers of a field."""
    return [value for number, value in fields if number == wanted and _is_bytes(value)]


def _is_bytes(value):
    return isinstance(value, memoryview)


def files(path: str | os.PathLike) -> list[pathlib.Path]:
    """Returns the paths of the files of a file's external weights, sorted.

    Raises a `RunError` where it names files outside of its folder, by their path or by
    a link, and a `ValueError` where it is no ONNX file.
    """
    folder, paths, locations = pathlib.Path(path).parent, [], set()
    for kind, fields in _messages(path):
        texts = {number: value for number, value in fields if _is_bytes(value)}
        if kind == "entry" and texts.get(_KEY) == b"location":
            locations.add(bytes(texts.get(_VALUE, b"")).decode("utf-8"))
    for location in sorted(locations - {""}):
        named, place = pathlib.PurePath(location), folder / location
        # By this name ONNX Runtime reads the memory of the process.
        is_memory = "_ORT_MEM_ADDR_" in location
        is_within = place.resolve().is_relative_to(folder.resolve())
        if is_memory or named.is_absolute() or ".." in named.parts or not is_within:
            raise RunError(
                f"The model {path} has weights at {location[:99]!r}, which is not in "
                "its folder and is never read: save the model with its weights in one "
                "file, or in files beside it."
            )
        check(place)
        paths.append(place)
    return paths


def _messages(path):
    """Yields the kind and the fields of all messages of a file."""
    with open_regular(path) as file:
        # Do not close it: an error's traceback may still refer to a part of it.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Do not recurse: graphs in graphs may be as deep as a file likes.
    waiting, left = [(memoryview(content), "model")], limits.ONNX_FIELDS
    while waiting:
        message, kind = waiting.pop()
        fields = list(itertools.islice(_fields(message), left + 1))
        left -= len(fields)
        if left < 0:
            raise ValueError(f"it has more than {limits.ONNX_FIELDS:,} fields")
        yield kind, fields
        for number, value in fields:
            if _is_bytes(value) and (inner := _FIELDS[kind].get(number)):
                waiting.append((value, inner))


def _fields(message):
    """Yields (number, bytes or int) of the fields of a message, but for floats."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _number(message, at)
            yield number, value
        elif kind in _FIXED:
            at += _FIXED[kind]
        elif kind == 2:
            length, at = _number(message, at)
            yield number, message[at : at + length]
            at += length
        else:
            raise ValueError(f"a field of type {kind}, which ONNX does not have")
    if at > len(message):
        raise ValueError("a message that ends too early")


def _number(message, at):
    """Returns a number of variable length, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number that does not end")
