"""`.npz` files: right ones, made by hand, and those that are made to do harm."""

import functools
import io
import pathlib
import struct
import warnings
import zipfile

import numpy as np
from hostile import model

GOLDEN = pathlib.Path(__file__).parents[1] / "goldens" / "token.npz"
SUFFIX = ".npz"
DEFLATED = zipfile.ZIP_DEFLATED
GRID = "Transformer/posembed_input/grid_size"
ONES = np.ones((1, 1, 48), "f4")
SCALE = "Transformer/encoderblock/LayerNorm_0/scale"


@functools.cache
def members():
    """The golden's members by name."""
    with zipfile.ZipFile(GOLDEN) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(contents, compression=zipfile.ZIP_STORED):
    """A zip file of a dict of name to bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression, compresslevel=1) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return stream.getvalue()


@functools.cache
def whole():
    return archive(members())


def npy(array, **header):
    """An array as a .npy file whose header may lie."""
    stream = io.BytesIO()
    true = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(stream, {**true, **header})
    return stream.getvalue() + array.tobytes()


def literal(text, size=0):
    """A .npy file whose header is any text."""
    text = text.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(size)


def with_member(name, content, compression=zipfile.ZIP_STORED):
    """The golden with one member more, or another one; its bytes, or an array."""
    content = content if isinstance(content, bytes) else npy(content)
    return archive(members() | {f"{name}.npy": content}, compression)


def cls(content):
    """The golden with another class token."""
    return with_member("cls", content)


def header(descr, shape="(1, 1, 48)", size=192):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"
    return cls(literal(text, size))


def entry(at, form, value):
    """The golden with another number in the directory's entry of the class token."""
    data = bytearray(whole())
    start = data.index(b"cls.npy", data.index(b"PK\x01\x02")) - 46
    struct.pack_into(form, data, start + at, value)
    return bytes(data)


def damaged():
    """The golden with another last byte of its first array."""
    data = bytearray(whole())
    data[data.index(b"PK\x03\x04", 4) - 1] ^= 1
    return bytes(data)


class Bomb:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("exploded"),))


def saved(array, **options):
    """An array as NumPy saves it."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, **options)
    return stream.getvalue()


def overlapping():
    """A member whose compressed bytes end within the next one, otherwise right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", DEFLATED) as file:
        for name, content in members().items():
            file.writestr(name, content)
        first, second, *_ = file.infolist()
        first.compress_size += second.compress_size
    return stream.getvalue()


def value(number, dtype="float32", order="C", compression=zipfile.ZIP_STORED):
    """The golden with one number in another dtype and order."""
    numbers = np.ones((48, 10), "f4")
    numbers[-1, -1] = number
    if dtype == "bfloat16":
        numbers = (numbers.view("uint32") >> 16).astype("uint16").view("V2")
    else:
        numbers = np.asarray(numbers.astype(dtype), order=order)
    return with_member("head/kernel", saved(numbers), compression)


def many(count):
    """An archive of one array under many names."""
    return archive(dict.fromkeys(map(str, range(count)), npy(np.zeros(1, "float32"))))


def crowded(count):
    """A directory of members without names, whose end says that there is one."""
    entry, data = b"PK\x01\x02" + bytes(42), whole()
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    numbers = (0, 0, 1, 1, count * len(entry), start, 0)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", *numbers)
    return data[:start] + entry * count + end


def squeezed(ratio):
    """A file that unpacks to so many times its size."""
    numbers = np.random.default_rng(0).random(2**16, "float32").tobytes()
    zeros = npy(np.zeros(ratio * 2**16, "float32"))
    return archive({"a.npy": zeros, "b.npy": numbers}, DEFLATED)


def twice():
    """The golden with another class token after its own."""
    stream = io.BytesIO(whole())
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "a") as file:
        warnings.simplefilter("ignore")
        file.writestr("cls.npy", members()["head/bias.npy"])
    return stream.getvalue()


NAN = "NaN or infinity under 'head/kernel'"
# Each row is a part of the message, and a function that makes the file.
FAULTS = [
    ("pickled Python objects", lambda: cls(saved(np.array([Bomb()], object)))),
    (
        "cls has 320 bytes, not 4000000000128",
        lambda: cls(npy(ONES, shape=(1, 1, 10**12))),
    ),
    ("320 bytes, not 316", lambda: cls(npy(ONES, shape=(1, 1, 47)))),
    ("bytes hold", lambda: squeezed(11)),
    ("cls is empty", lambda: header("'<f4'", f"({10**15}, 0)", 0)),
    (f"unknown {SCALE}", lambda: with_member(SCALE, np.zeros((1001, 48), "f2"))),
    ("and 501 more", lambda: many(500)),
    ("grid_size", lambda: with_member(GRID, np.ones(10**6, "i4"))),
    ("grid_size", lambda: with_member(GRID, np.array([16]))),
    ("grid_size", lambda: with_member(GRID, np.array([[4, 4]]))),
    ("a grid of", lambda: with_member(GRID, np.array([-4, -4]))),
    ("a grid of (3, 5)", lambda: with_member(GRID, np.array([3, 5]))),
    (f"unknown {GRID}", lambda: with_member(GRID, np.zeros(48, "f4"))),
    ("unknown ../evil", lambda: with_member("../evil", ONES)),
    (r"'a\nb\x", lambda: with_member("a\nb\x1b[2J\u202e", ONES)),
    ("an array is called '1111", lambda: with_member(997 * "1", ONES)),
    ("holds 'cls', which is not an array", lambda: cls(b"hello")),
    ("encrypted", lambda: entry(8, "<H", 0x1)),
    ("compression 14", lambda: archive(members(), zipfile.ZIP_LZMA)),
    ("cls has array format (3, 0)", lambda: cls(saved(ONES, version=(3, 0)))),
    ("two arrays are called cls", twice),
    ("embedding/kernel has another CRC-32", damaged),
    ("cls has two sizes", lambda: entry(20, "<L", 7)),
    ("embedding/bias.npy overlaps another array", overlapping),
    ("damaged or cut", lambda: entry(42, "<L", 2**31)),
    ("damaged or cut", lambda: whole()[:-1]),
    ("is empty", lambda: b""),
    ("missing embedding/kernel", lambda: archive({})),
    ("neither an .npz file nor .safetensors or .h5", lambda: b"<html>"),
    ("is a pickle, which can run code", lambda: b"\x80\x04K\x01."),
    ("keras.saving.load_model reads it", lambda: archive({"config.json": b"{}"})),
    ("a pickle of PyTorch", lambda: archive({"archive/data.pkl": b""})),
    ("malformed", lambda: cls(literal("open('exploded', 'w')"))),
    ("damaged or cut", lambda: cls(literal("-" * 9000 + "1"))),
    ("damaged or cut", lambda: header("'<f4'", "(-1, -1, 48)")),
    ("cls holds", lambda: header("[('a', '|i1'), ('b', '|i1')]", size=96)),
    ("cls holds", lambda: header("('<f2', (1,))", size=96)),
    ("cls has dtype float64", lambda: cls(npy(ONES.astype("f8")))),
    ("cls has dtype int32", lambda: cls(npy(ONES.astype("i4")))),
    (NAN, lambda: value(np.nan)),
    (NAN, lambda: value(-np.inf, ">f4")),
    (NAN, lambda: value(np.nan, "float16")),
    (NAN, lambda: value(np.nan, "bfloat16")),
    (NAN, lambda: value(np.nan, order="F")),
    (NAN, lambda: value(np.nan, compression=DEFLATED)),
]


def right():
    """Files that are right, made as those that are not."""
    yield from (cls(npy(ONES)), header("'<f4'"), entry(8, "<H", 0), value(1.0))
    yield archive(members(), DEFLATED)
    yield value(1.0, ">f4", "F", DEFLATED)


@functools.cache
def structure(compression):
    """The bytes of a file, and where those are that say what the others mean."""
    arrays = model().items()
    data = archive({f"{key}.npy": npy(array) for key, array in arrays}, compression)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        starts = [info.header_offset for info in file.infolist()]
    spans = [range(start, start + 200) for start in starts]
    spans.append(range(data.index(b"PK\x01\x02"), len(data)))
    return data, [offset for span in spans for offset in span]


STRUCTURES = {
    "stored": lambda: structure(zipfile.ZIP_STORED),
    "compressed": lambda: structure(DEFLATED),
}
