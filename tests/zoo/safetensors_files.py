"""`.safetensors` files: right ones, made by hand, and those that do harm."""

import functools
import json
import math
import pathlib

import numpy as np

import zoo
from zoo.libraries import names

GOLDEN = pathlib.Path(__file__).parents[1] / "goldens" / "token.npz"
SUFFIX = ".safetensors"
SETTINGS = {
    "timm": '{"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": 3}}',
    "transformers": '{"model_type": "vit", "num_attention_heads": 3}',
}


@functools.cache
def arrays(naming="released"):
    """The golden's arrays by the names of a library."""
    checkpoint = zoo.read(GOLDEN)
    if naming == "released":
        return dict(checkpoint.arrays)
    return names.from_released(naming, checkpoint.arrays, checkpoint.num_heads)


@functools.cache
def parts(naming="released"):
    """The header of a right file, and the bytes of its arrays."""
    table, data = {}, b""
    for name, array in arrays(naming).items():
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


def byte(name, skip=0):
    """A right file with one array more, of a byte."""
    at = len(parts()[1]) + skip
    entry = {"dtype": "U8", "shape": [1], "data_offsets": [at, at + 1]}
    return added({name: entry}, bytes(1 + skip))


def numbered():
    """A right file with an array whose block has too long a number."""
    name, end = f"blocks.{'1' * 900}.norm1.weight", len(parts()[1])
    entry = {"dtype": "F32", "shape": [48], "data_offsets": [end, end + 192]}
    return added({name: entry}, bytes(192))


def twins(count):
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    entries = [f'"{number}":{entry}' for number in range(count)]
    return joined(f"{{{','.join([*entries, entries[-1]])}}}")


def many(count):
    table = {
        str(number): {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]}
        for number in range(count)
    }
    return joined(json.dumps(table), bytes(count))


def empty_model():
    """A model whose tokens have no numbers."""
    table, end = {}, 0
    for name, array in arrays().items():
        shape = [0 if side == 48 else side for side in array.shape]
        start, end = end, end + 4 * math.prod(shape)
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    return joined(json.dumps(table), bytes(end))


def infinite_place():
    text = json.dumps(parts()[0]).replace("[0,", "[Infinity,", 1)
    return joined(text, parts()[1])


def value(number):
    """A right file but for the last number of its last array."""
    data = parts()[1][:-4] + np.float32(number).tobytes()
    return joined(json.dumps(parts()[0]), data)


def about(metadata):
    return added({"__metadata__": metadata})


FAULTS = {
    "a header longer than the file": lambda: (2**40).to_bytes(8, "little") + b"{",
    "a header of 2^64 bytes": lambda: b"\xff" * 8 + b"{}",
    "a header of nothing": lambda: bytes(8) + b"{}",
    "only a length": lambda: b"\x02" + bytes(7),
    "no text": lambda: joined(b"{\xff\xfe}"),
    "nested lists": lambda: joined('{"a":' + "[" * 10**5),
    "nested tables": lambda: joined('{"a":' * 10**5),
    "a header of megabytes": lambda: twins(10**5),
    "a list": lambda: joined("[1]" + " " * 8),
    "a number too long to read": lambda: joined(f'{{"a":{"9" * 10**6}}}'),
    "an infinite place": infinite_place,
    "two arrays of one name": lambda: twins(1),
    "two arrays of one name after 10^4": lambda: twins(10**4),
    "2000 arrays": lambda: many(2000),
    "a shape of NaN": lambda: changed(shape=[float("nan"), 1, 48]),
    "a shape of another size": lambda: changed(shape=[1, 1, 47]),
    "a negative shape": lambda: changed(shape=[-1, 1, 48]),
    "a shape of fractions": lambda: changed(shape=[1.0, 1, 48]),
    "a shape that is text": lambda: changed(shape="48"),
    "a product too long to compute": lambda: changed(shape=[10**4000] * 1000),
    "10^5 axes": lambda: changed(shape=[1] * 10**5 + [48]),
    "an array of 10^30 nothings": lambda: changed(
        shape=[10**30, 0], data_offsets=[0, 0]
    ),
    "a model of nothing": empty_model,
    "one place": lambda: changed(data_offsets=[0]),
    "a place beyond the file": lambda: changed(data_offsets=[2**62, 2**62 + 192]),
    "a place of 70 bits": lambda: changed(data_offsets=[2**70, 2**70 + 192]),
    "a place before the file": lambda: changed(data_offsets=[-192, 0]),
    "a place partly before the file": lambda: changed(data_offsets=[-4, 188]),
    "a place that ends before it begins": lambda: changed(
        shape=[-48], data_offsets=[192, 0]
    ),
    "the place of another": lambda: changed(
        data_offsets=parts()[0]["head/kernel"]["data_offsets"]
    ),
    "a place within another": lambda: changed(data_offsets=[4, 196]),
    "a gap": lambda: byte("x", skip=1),
    "bytes that are of no array": lambda: added({}, b"a"),
    "a claim of 10^12 numbers": lambda: changed(
        shape=[10**12], data_offsets=[0, 4 * 10**12]
    ),
    "a field that is not known": lambda: changed(extra=1),
    "half precision that is not": lambda: changed(dtype="F16"),
    "a dtype that is not read": lambda: changed(dtype="F8_E4M3"),
    "a dtype of objects": lambda: changed(dtype="O"),
    "a dtype that is a list": lambda: changed(dtype=["F32"]),
    "a dtype that is a table": lambda: changed(dtype={}),
    "metadata that are a list": lambda: about([]),
    "metadata that are numbers": lambda: about({"a": 1}),
    "metadata of ours that are nested": lambda: about({"keras_vit": "[" * 10**5}),
    "metadata of ours that are cut": lambda: about({"keras_vit": "{"}),
    "metadata of ours that are a list": lambda: about({"keras_vit": "[]"}),
    "metadata of ours that say nothing": lambda: about(
        {"keras_vit": '{"semantics": {}}'}
    ),
    "metadata of ours that say too much": lambda: about({"keras_vit": '{"a": 1}'}),
    "a name of 10^6 letters": lambda: byte("x" * 10**6),
    "half a character": lambda: byte("\ud800"),
    "a block number too long to read": numbered,
    "NaN": lambda: value(np.nan),
    "infinity": lambda: value(np.inf),
    "less than every number": lambda: value(-np.inf),
}
# Parts of what is said of some.
TOLD = {
    "two arrays of one name": "two arrays are called 0",
    "a shape of another size": "damaged",
    "a negative shape": "damaged",
    "a shape of fractions": "damaged",
    "a shape that is text": "damaged",
    "one place": "damaged",
    "a place beyond the file": "damaged",
    "a place partly before the file": "damaged",
    "a place within another": "damaged",
    "a field that is not known": "damaged",
    "half precision that is not": "damaged",
    "a dtype that is not read": "cls has dtype F8_E4M3",
    "metadata of ours that are cut": "header entry 'keras_vit'",
    "metadata of ours that are a list": "header entry 'keras_vit'",
    "metadata of ours that say nothing": "header entry 'keras_vit'",
    "metadata of ours that say too much": "header entry 'keras_vit'",
    "NaN": "NaN or infinity under",
    "infinity": "NaN or infinity under",
    "less than every number": "NaN or infinity under",
}


def right():
    """Files that are right, made as those that are not."""
    table, data = parts()
    yield joined(json.dumps(table), data)


def structure(naming):
    """The bytes of a file, and where those are that say what the others mean."""
    table, data = parts(naming)
    whole = joined(json.dumps(table), data)
    return whole, range(len(whole) - len(data) + 8)


STRUCTURES = {
    naming: functools.partial(structure, naming)
    for naming in ("released", "timm", "transformers")
}
