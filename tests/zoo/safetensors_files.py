"""`.safetensors` files: right ones, made by hand, and those that do harm."""

import functools
import json
import math
import pathlib

import numpy as np

import zoo

GOLDEN = pathlib.Path(__file__).parents[1] / "goldens" / "token.npz"
SUFFIX = ".safetensors"


@functools.cache
def arrays():
    """The golden's arrays by name."""
    return dict(zoo.read(GOLDEN).arrays)


@functools.cache
def parts():
    """The header of a right file, and the bytes of its arrays."""
    table, data = {}, b""
    for name, array in arrays().items():
        place = [len(data), len(data) + array.nbytes]
        table[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": place}
        data += np.ascontiguousarray(array).tobytes()
    return table, data


def joined(text, data=b""):
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(8, "little") + text + data


def changed(**fields):
    """A right file but for the fields of one entry."""
    table, data = parts()
    return joined(json.dumps(table | {"cls": table["cls"] | fields}), data)


def added(entries, more=b""):
    """A right file with further entries, and bytes at its end."""
    table, data = parts()
    return joined(json.dumps(table | entries), data + more)


def more(name, dtype="F32", skip=0):
    """A right file with one number more, of 32 bits, after a gap."""
    at = len(parts()[1]) + skip
    entry = {"dtype": dtype, "shape": [1], "data_offsets": [at, at + 4]}
    return added({name: entry}, bytes(skip + 4))


def empty_model():
    """A model whose tokens have no numbers."""
    table, end = {}, 0
    for name, array in arrays().items():
        shape = [0 if side == 48 else side for side in array.shape]
        start, end = end, end + 4 * math.prod(shape)
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    return joined(json.dumps(table), bytes(end))


def about(metadata):
    return added({"__metadata__": metadata})


OURS = "header entry 'keras_vit'"
TWIN = '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
# Each row is a part of the message, and a function that makes the file.
FAULTS = [
    ("neither an .npz file", lambda: (2**40).to_bytes(8, "little") + b"{"),
    ("a header of 0 bytes", lambda: bytes(8) + b"{}"),
    ("a header of 3 bytes in a file of 10", lambda: b"\x03" + bytes(7) + b"{}"),
    ("damaged", lambda: joined('{"a":' + "[" * 10**5)),
    ("has a header of 1048578 bytes", lambda: joined("{" + " " * 2**20 + "}")),
    ("two arrays are called a", lambda: joined(f"{{{TWIN},{TWIN}}}")),
    ("does not fill", lambda: changed(shape=[1, 1, 47])),
    ("has shape [-1,", lambda: changed(shape=[-1, -1, 48])),
    ("has shape [1.0,", lambda: changed(shape=[1.0, 1, 48])),
    ("has shape '48'", lambda: changed(shape="48")),
    ("has shape [1, 1", lambda: changed(shape=[1] * 8 + [48])),
    (
        "has shape [9223372036854775808",
        lambda: changed(shape=[2**63, 0], data_offsets=[0, 0]),
    ),
    ("3 heads of size 16 do not make the hidden size 0", empty_model),
    ("and place [0]", lambda: changed(data_offsets=[0])),
    ("overlap", lambda: changed(data_offsets=[4, 196])),
    ("its arrays overlap or leave gaps", lambda: more("x", skip=1)),
    ("277399 bytes, not 277398", lambda: added({}, b"a")),
    ("the entry of cls is not dtype, shape and place", lambda: changed(extra=1)),
    ("cls has dtype F8_E4M3", lambda: changed(dtype="F8_E4M3")),
    ("damaged", lambda: changed(dtype=["F32"])),
    ("its metadata are not all text", lambda: about([])),
    ("are not all text", lambda: about({"a": 1})),
    (OURS, lambda: about({"keras_vit": "[" * 10**5})),
    (OURS, lambda: about({"keras_vit": "{"})),
    (OURS, lambda: about({"keras_vit": "[]"})),
    (OURS, lambda: about({"keras_vit": "{}"})),
    (r"an array is called '\ud800'", lambda: more("\ud800")),
    ("unknown blocks.111", lambda: more(f"blocks.{'1' * 900}.norm1.weight")),
    ("x has dtype int32", lambda: more("x", "I32")),
    (
        "NaN or infinity under",
        lambda: joined(json.dumps(parts()[0]), parts()[1][:-4] + b"\0\0\x80\xff"),
    ),
]


def right():
    """Files that are right, made as those that are not."""
    table, data = parts()
    yield joined(json.dumps(table), data)


def structure():
    """The bytes of a file, and where those are that say what the others mean."""
    table, data = parts()
    whole = joined(json.dumps(table), data)
    return whole, range(len(whole) - len(data) + 8)


STRUCTURES = {"released": structure}
