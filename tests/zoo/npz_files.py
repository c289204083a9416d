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


def array(key="cls"):
    return np.load(io.BytesIO(members()[f"{key}.npy"])).copy()


def with_member(name, content, compression=zipfile.ZIP_STORED):
    """The golden with one member more, or another one; its bytes, or an array."""
    content = content if isinstance(content, bytes) else npy(content)
    return archive(members() | {f"{name}.npy": content}, compression)


def cls(content):
    """The golden with another class token."""
    return with_member("cls", content)


def lying(**header):
    return cls(npy(array(), **header))


def header(descr, shape="(1, 1, 48)", size=192):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"
    return cls(literal(text, size))


def patched(data, offset, form, *values):
    data = bytearray(data)
    struct.pack_into(form, data, offset, *values)
    return bytes(data)


def entry(at, form, value):
    """The golden with another number in the directory's entry of the class token."""
    data = whole()
    start = data.index(b"cls.npy", data.index(b"PK\x01\x02")) - 46
    return patched(data, start + at, form, value)


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
    numbers = array("head/kernel")
    numbers[-1, -1] = number
    if dtype == "bfloat16":
        numbers = (numbers.view("uint32") >> 16).astype("uint16").view("V2")
        return with_member("head/kernel", npy(numbers))
    numbers = np.asarray(numbers.astype(dtype), order=order)
    return with_member("head/kernel", saved(numbers), compression)


def end(count, size, start):
    """The end of an archive: members, bytes of the directory, and where it begins."""
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, 0)


def replicated(count):
    """An archive of one array under many names, made faster than zipfile does."""
    one = archive({"00000.npy": npy(np.zeros(1, "float32"))})
    start = zipfile.ZipFile(io.BytesIO(one)).start_dir
    member, entry = one[:start], one[start:-22]
    names = [b"%05d" % number for number in range(count)]
    data = b"".join(member.replace(b"00000", name) for name in names)
    entries = b"".join(
        patched(entry.replace(b"00000", name), 42, "<L", number * start)
        for number, name in enumerate(names)
    )
    return data + entries + end(count, len(entries), len(data))


def crowded(count):
    """A directory of members without names, whose end says that there is one."""
    entry, data = b"PK\x01\x02" + bytes(42), whole()
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    return data[:start] + entry * count + end(1, count * len(entry), start)


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
# {fault: (how its file is made, a part of what is said of it)}
FAULTS = {
    "pickled": (
        lambda: cls(saved(np.array([Bomb()], object))),
        "pickled Python objects",
    ),
    "a claim of 10^12 numbers": (
        lambda: lying(shape=(1, 1, 10**12)),
        "cls has 320 bytes, not 4000000000128",
    ),
    "one number less": (lambda: lying(shape=(1, 1, 47)), "320 bytes, not 316"),
    "a bomb": (lambda: squeezed(11), "bytes hold"),
    "10^15 nothings": (lambda: header("'<f4'", f"({10**15}, 0)", 0), "cls is empty"),
    "1001 stacked blocks": (
        lambda: with_member(SCALE, np.zeros((1001, 48), "f2")),
        f"unknown {SCALE}",
    ),
    "500 arrays": (lambda: replicated(500), "and 501 more"),
    "a directory of 2^21 bytes": (lambda: crowded(45_591), "has 2097186 bytes"),
    "10,001 members, one counted": (lambda: crowded(10_001), "it has 10001 members"),
    "a grid of 10^6": (lambda: with_member(GRID, np.ones(10**6, "i4")), "grid_size"),
    "a grid of one number": (lambda: with_member(GRID, np.array([16])), "grid_size"),
    "a grid in a row": (lambda: with_member(GRID, np.array([[4, 4]])), "grid_size"),
    "a negative grid": (lambda: with_member(GRID, np.array([-4, -4])), "a grid of"),
    "a grid of 15": (lambda: with_member(GRID, np.array([3, 5])), "a grid of (3, 5)"),
    "a grid of floats": (lambda: with_member(GRID, np.zeros(48, "f4")), "unknown"),
    "a name above the folder": (
        lambda: with_member("../evil", array()),
        "unknown ../evil",
    ),
    "a name of lines": (lambda: with_member("a\nb\x1b[2J\u202e", array()), r"'a\nb\x"),
    "a name of 1001 letters": (
        lambda: with_member(997 * "1", array()),
        "an array is called '1111",
    ),
    "text": (lambda: cls(b"hello"), "holds 'cls', which is not an array"),
    "encrypted": (lambda: entry(8, "<H", 0x1), "encrypted"),
    "another compression": (
        lambda: archive(members(), zipfile.ZIP_LZMA),
        "compression 14",
    ),
    "a later format of arrays": (
        lambda: cls(saved(array(), version=(3, 0))),
        "cls has array format (3, 0)",
    ),
    "the same key twice": (twice, "two arrays are called cls"),
    "two sizes": (lambda: entry(20, "<L", 7), "cls has two sizes"),
    "members that overlap": (overlapping, "embedding/bias.npy overlaps another array"),
    "an offset beyond the file": (lambda: entry(42, "<L", 2**31), "damaged or cut"),
    "cut at the end": (lambda: whole()[:-1], "damaged or cut"),
    "nothing": (lambda: b"", "is empty"),
    "an empty archive": (lambda: archive({}), "missing embedding/kernel"),
    "a page": (lambda: b"<html>", "neither an .npz file nor .safetensors or .h5"),
    "a pickle": (lambda: b"\x80\x04K\x01.", "is a pickle, which can run code"),
    "a file of Keras": (
        lambda: archive({"metadata.json": b"{}", "config.json": b"{}"}),
        "keras.saving.load_model reads it",
    ),
    "a pickle of PyTorch": (
        lambda: archive({"archive/data.pkl": b"", "archive/data/0": b""}),
        "a pickle of PyTorch",
    ),
    "a header that calls": (
        lambda: cls(literal("__import__('pathlib').Path('exploded').touch()")),
        "malformed",
    ),
    "nested signs": (lambda: cls(literal("-" * 9000 + "1")), "damaged or cut"),
    "negative sides": (lambda: header("'<f4'", "(-1, -1, 48)"), "damaged or cut"),
    "fields that look like bfloat16": (
        lambda: header("[('a', '|i1'), ('b', '|i1')]", size=96),
        "cls holds",
    ),
    "arrays in an array": (lambda: header("('<f2', (1,))", size=96), "cls holds"),
    "float64": (lambda: cls(npy(np.zeros((1, 1, 48)))), "cls has dtype float64"),
    "int32": (lambda: cls(npy(np.zeros((1, 1, 48), "i4"))), "cls has dtype int32"),
    "NaN": (lambda: value(np.nan), NAN),
    "infinity, big-endian": (lambda: value(-np.inf, ">f4"), NAN),
    "NaN in float16": (lambda: value(np.nan, "float16"), NAN),
    "NaN in bfloat16": (lambda: value(np.nan, "bfloat16"), NAN),
    "NaN in Fortran's order": (lambda: value(np.nan, order="F"), NAN),
    "NaN, compressed": (lambda: value(np.nan, compression=DEFLATED), NAN),
}


def right():
    """Files that are right, made as those that are not."""
    yield from (cls(npy(array())), header("'<f4'"), entry(8, "<H", 0), value(1.0))
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
