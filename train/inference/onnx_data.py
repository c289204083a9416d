"""The files beside an ONNX file in which it says that its weights lie.

They are found in its bytes: running such a file does not need the package onnx.
"""

import mmap
import pathlib

from train.common.errors import RunError
from zoo.regular_files import check, open_regular

# Messages of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto with the numbers of
# their fields that hold others; an entry is one of the external data of a tensor.
_FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse",
    },
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}  # fmt: skip
_KEY, _VALUE = 1, 2
# Bytes of a field by its type, where that says it.
_FIXED = {1: 8, 5: 4}


def locations(path):
    """Returns the places of a file's external weights, relative to its folder.

    Args:
        path: path of an `.onnx` file.

    Returns:
        Set of str, empty where all weights are in the file.

    Raises:
        ValueError: it is no ONNX file.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        # Not closed here, which an error's traceback to a part of it would prevent.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {place for place in _found(memoryview(content), "model") if place}


def files(path):
    """Returns the paths of the files of a file's external weights, sorted.

    Args:
        path: path of an `.onnx` file.

    Raises:
        RunError: it names files outside of its folder, by their path or by a link.
        ValueError: it is no ONNX file.
        OSError: one of the files cannot be read.
    """
    folder, found = pathlib.Path(path).parent, []
    for location in sorted(locations(path)):
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
        found.append(place)
    return found


def _found(message, kind):
    """Yields the places that a message has, of the messages in it too."""
    # Not recursive: graphs in graphs may be as deep as a file likes.
    waiting = [(message, kind)]
    while waiting:
        message, kind = waiting.pop()
        if kind == "entry":
            texts = {number: bytes(value) for number, value in _fields(message)}
            if texts.get(_KEY) == b"location":
                yield texts.get(_VALUE, b"").decode("utf-8")
            continue
        for number, value in _fields(message):
            if inner := _FIELDS[kind].get(number):
                waiting.append((value, inner))


def _fields(message):
    """Yields (number, bytes) of the fields of a message that have a length."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, at = _number(message, at)
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
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
    raise ValueError("a number that does not end")
