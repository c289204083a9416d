"""`.npz` files: right ones, made by hand, and those that are made to do harm."""

import functools
import io
import pathlib
import stat
import struct
import warnings
import zipfile

import numpy as np
from hostile import model

GOLDEN = pathlib.Path(__file__).parents[1] / "goldens" / "token.npz"
SUFFIX = ".npz"
DEFLATED = zipfile.ZIP_DEFLATED
STACKED = "Transformer/encoderblock/LayerNorm_0/scale"
HUGE = 10**12


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


def named(name, content=None):
    """The golden with one member more, or another one."""
    return archive(members() | {name: npy(array()) if content is None else content})


def cls(content):
    """The golden with another class token."""
    return named("cls.npy", content)


def lying(**header):
    return cls(npy(array(), **header))


def header(descr, shape="(1, 1, 48)", size=192):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"
    return cls(literal(text, size))


def patched(data, offset, form, *values):
    data = bytearray(data)
    struct.pack_into(form, data, offset, *values)
    return bytes(data)


def directory(data, name="cls.npy"):
    """The offset of a member's entry in the directory at the end."""
    start = data.index(b"PK\x01\x02")
    return data.index(name.encode(), start) - 46


def entry(at, form, value):
    """The golden with another number in the directory's entry of the class token."""
    data = whole()
    return patched(data, directory(data) + at, form, value)


def zip64(data, size=None, compressed=None, offset=None):
    """Sizes and an offset in an entry's extra field, where they have 64 bits."""
    start, extra = directory(data), b""
    for at, value in ((24, size), (20, compressed), (42, offset)):
        if value is not None:
            data = patched(data, start + at, "<L", 0xFFFFFFFF)
            extra += struct.pack("<Q", value)
    extra = struct.pack("<HH", 1, len(extra)) + extra
    data = patched(data, start + 30, "<H", len(extra))
    end = start + 46 + len("cls.npy")
    data = data[:end] + extra + data[end:]
    size = struct.unpack_from("<L", data, len(data) - 10)[0]
    return patched(data, len(data) - 10, "<L", size + len(extra))


def special(kind):
    """A member that says it is a link or a pipe."""
    data = cls(b"../../../../etc/passwd")
    start = directory(data)
    data = patched(data, start + 5, "<B", 3)  # made on Unix
    return patched(data, start + 38, "<L", (kind | 0o777) << 16)


class Bomb:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("exploded"),))


def pickled(dtype=object):
    stream = io.BytesIO()
    value = np.array([Bomb()], object)
    if dtype is not object:
        value = np.array([(1.0, Bomb())], dtype)
    np.save(stream, value, allow_pickle=True)
    return cls(stream.getvalue())


def bomb(claimed=None):
    """Zeros in a thousandth of their size; or the claim of even more."""
    size = claimed or 5 * 10**7
    head = npy(np.empty(0, "float32"), shape=(1, 1, size // 4))
    zeros = head + bytes(10**5 if claimed else size)
    data = archive(members() | {"cls.npy": zeros}, DEFLATED)
    return zip64(data, size=len(head) + claimed) if claimed else data


def header_bomb():
    spaces = 5 * 10**7
    content = b"\x93NUMPY\x02\x00" + struct.pack("<L", spaces) + b" " * spaces
    return archive(members() | {"cls.npy": content}, DEFLATED)


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
    numbers = array("head/kernel").astype(dtype)
    numbers[-1, -1] = number
    stream = io.BytesIO()
    np.save(stream, np.asarray(numbers, order=order))
    return archive(members() | {"head/kernel.npy": stream.getvalue()}, compression)


def bfloat16_nan():
    bits = (array("head/kernel").view("uint32") >> 16).astype("uint16")
    bits[0, 0] = 0x7FC0
    return named("head/kernel.npy", npy(bits.view("V2")))


def stacked(content):
    """The golden with stacked blocks in place of its own."""
    kept = {k: v for k, v in members().items() if "encoderblock" not in k}
    return archive(kept | {f"{STACKED}.npy": content})


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
    sizes = struct.pack("<4H2LH", 0, 0, count, count, len(entries), len(data), 0)
    return data + entries + b"PK\x05\x06" + sizes


def gridded(grid):
    return named("Transformer/posembed_input/grid_size.npy", npy(grid))


def crowded(count):
    """A directory of members without names, whose end says that there is one."""
    entry, data = b"PK\x01\x02" + bytes(42), whole()
    start = zipfile.ZipFile(io.BytesIO(data)).start_dir
    size = struct.pack("<LL", count * len(entry), start)
    end = b"PK\x05\x06" + bytes(4) + struct.pack("<HH", 1, 1) + size + b"\0\0"
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


def version_3():
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array(), version=(3, 0))
    return cls(stream.getvalue())


def with_end(form, *values, at):
    """The golden with other numbers at its very end."""
    data = whole()
    return patched(data, len(data) + at, form, *values)


FAULTS = {
    "pickled": pickled,
    "pickled inside a structure": lambda: pickled([("a", "<f4"), ("b", "O")]),
    "a claim of 10^12 numbers": lambda: lying(shape=(1, 1, HUGE)),
    "a stored member that claims 10^12 bytes": lambda: zip64(
        lying(shape=(1, 1, HUGE // 4)), 128 + HUGE, 128 + HUGE
    ),
    "one number more": lambda: lying(shape=(1, 1, 49)),
    "one number less": lambda: lying(shape=(1, 1, 47)),
    "half as many long numbers": lambda: lying(shape=(1, 1, 24), descr="<f8"),
    "half precision that is not": lambda: lying(descr="<f2"),
    "a bomb that claims 10^12 bytes": lambda: bomb(HUGE),
    "a bomb": bomb,
    "a bomb that is just one": lambda: squeezed(11),
    "a header bomb": header_bomb,
    "10^15 blocks of nothing": lambda: stacked(
        npy(np.empty(0, "<f4"), shape=(10**15, 0))
    ),
    "10^15 blocks of no bytes": lambda: stacked(
        literal(
            f"{{'descr': '|V0', 'fortran_order': False, 'shape': ({10**15}, 48)}}\n"
        )
    ),
    "10^5 blocks": lambda: stacked(npy(np.zeros((10**5, 1), "float16"))),
    "500 arrays": lambda: replicated(500),
    "10,001 arrays": lambda: replicated(10_001),
    "more members than are counted": lambda: crowded(200_000),
    "a few more members than are counted": lambda: crowded(10_001),
    "a grid of 10^6 numbers": lambda: gridded(np.ones(10**6, "int32")),
    "a grid of one number": lambda: gridded(np.array([16], "int32")),
    "a grid without a number": lambda: gridded(np.int32(16)),
    "a grid in a row": lambda: gridded(np.array([[4, 4]], "int32")),
    "a grid of no patches": lambda: gridded(np.array([-4, -4], "int32")),
    "a grid of another size": lambda: gridded(np.array([3, 5], "int32")),
    "a grid that is no integers": lambda: gridded(np.zeros(48, "float32")),
    "a name above the folder": lambda: named("../evil.npy"),
    "an absolute name": lambda: named("/tmp/evil.npy"),
    "a name on a drive": lambda: named("C:\\evil.npy"),
    "a name of a folder": lambda: named("folder/", b""),
    "no name": lambda: named(".npy"),
    "a name of lines": lambda: named("a\nb\x1b[2J\u202e.npy"),
    "a number too long to read": lambda: named(
        f"Transformer/encoderblock_{'1' * 5000}/LayerNorm_0/bias.npy"
    ),
    "a member that is no array": lambda: named("readme.txt", b"hello"),
    "a member that is text": lambda: cls(b"hello"),
    "a symbolic link": lambda: special(stat.S_IFLNK),
    "a pipe": lambda: special(stat.S_IFIFO),
    "encrypted": lambda: entry(8, "<H", 0x1),
    "strongly encrypted": lambda: entry(8, "<H", 0x40),
    "patched data": lambda: entry(8, "<H", 0x20),
    "another compression": lambda: archive(members(), zipfile.ZIP_LZMA),
    "a later format of arrays": version_3,
    "the same key twice": twice,
    "two sizes": lambda: entry(20, "<L", 7),
    "members that overlap": overlapping,
    "an offset beyond the file": lambda: zip64(whole(), offset=2**20),
    "an offset of 63 bits": lambda: zip64(whole(), offset=2**63 - 1),
    "an offset of 64 bits": lambda: zip64(whole(), offset=2**64 - 100),
    "a size of 64 bits": lambda: zip64(whole(), 2**64 - 1, 2**64 - 1),
    "an extra field cut short": lambda: entry(24, "<L", 0xFFFFFFFF),
    "a version of the future": lambda: entry(6, "<H", 99),
    "a directory larger than the file": lambda: with_end("<L", 0xFFFFFFF0, at=-10),
    "cut in the middle": lambda: whole()[: len(whole()) // 2],
    "cut at the end": lambda: whole()[:-1],
    "a beginning": lambda: whole()[:4],
    "only an end": lambda: whole()[-22:],
    "an empty archive": lambda: b"PK\x05\x06" + bytes(18),
    "nothing": lambda: b"",
    "a page": lambda: b"<html>",
    "a pickle": lambda: b"\x80\x04K\x01.",
    "an array alone": lambda: b"\x93NUMPY\x01",
    "a file of Keras": lambda: archive({"metadata.json": b"{}", "config.json": b"{}"}),
    "a pickle of PyTorch": lambda: archive(
        {"archive/data.pkl": b"\x80\x02}q\x00.", "archive/data/0": b""}
    ),
    "a comment with another end": lambda: (
        with_end("<H", 22, at=-2) + b"PK\x05\x06" + bytes(18)
    ),
    **{
        name: lambda text=text: cls(literal(text))
        for name, text in {
            "a header that is no dict": "[]",
            "unhashable keys": "{[]: 1}",
            "keys of two types": "{1: 2, 'a': 3}",
            "a header that calls": "__import__('pathlib').Path('exploded').touch()",
            "nested parentheses": "(" * 9000,
            "nested signs": "-" * 9000 + "1",
        }.items()
    },
    "a header cut short": lambda: cls(literal("{}")[:9]),
    "long numbers": lambda: header("'<f4'", f"({'9' * 5000},)"),
    "negative sides": lambda: header("'<f4'", "(-1, -1, 48)"),
    "a shape of truths": lambda: header("'<f4'", "(True, 1.0, 48)"),
    "no descr": lambda: header("None"),
    "an empty descr": lambda: header("()"),
    "a descr of one": lambda: header("('<f4',)"),
    "a descr of nothing": lambda: header("[]"),
    "a descr of fields of nothing": lambda: header("[()]"),
    "a structure that looks like bfloat16": lambda: header(
        "[('a', '|i1'), ('b', '|i1')]", size=96
    ),
    "arrays in an array": lambda: header("('<f2', (1,))", size=96),
    "a huge item": lambda: header("'|V1000000000000'", "(1,)"),
    **{
        f"an array of {dtype}": lambda dtype=dtype: cls(
            npy(np.zeros((1, 1, 48), dtype))
        )
        for dtype in ("float64", "int32", "complex64", "U3")
    },
    "NaN": lambda: value(np.nan),
    "infinity": lambda: value(-np.inf),
    "NaN, big-endian": lambda: value(np.nan, ">f4"),
    "NaN in half precision": lambda: value(np.nan, "float16"),
    "NaN in bfloat16": bfloat16_nan,
    "NaN in Fortran's order": lambda: value(np.nan, order="F"),
    "NaN, compressed": lambda: value(np.nan, compression=DEFLATED),
}
# Parts of what is said of some.
TOLD = {
    "the same key twice": "two arrays are called cls",
    "an array of float64": "cls has dtype",
    "an array of int32": "cls has dtype",
    "an array of complex64": "cls has dtype",
    "an array of U3": "cls has dtype",
    "pickled": "pickled Python objects",
    "a bomb that is just one": "bytes hold",
    "10,001 arrays": "it has 10001 members",
    "more members than are counted": "its directory has 9200000 bytes",
    "a few more members than are counted": "it has 10001 members",
    "a grid of 10^6 numbers": "grid_size",
    "a grid of one number": "grid_size",
    "a grid without a number": "grid_size",
    "a grid in a row": "grid_size",
    "a grid of no patches": "grid",
    "a grid of another size": "grid",
    "a grid that is no integers": "unknown Transformer/posembed_input/grid_size",
    "a member that is no array": "readme.txt",
    "another compression": "compression 14",
    "a later format of arrays": "cls has array format (3, 0)",
    "two sizes": "has two sizes",
    "members that overlap": "embedding/bias.npy overlaps another array",
    "cut in the middle": "damaged or cut",
    "cut at the end": "damaged or cut",
    "a beginning": "damaged or cut",
    "nothing": "is empty",
    "a page": "neither an .npz file nor .safetensors or .h5",
    "a pickle": "is a pickle, which can run code",
    "an array alone": "neither an .npz",
    "a file of Keras": "keras.saving.load_model reads it",
    "a pickle of PyTorch": "a pickle of PyTorch",
    "NaN": "NaN or infinity",
    "infinity": "NaN or infinity",
    "NaN, big-endian": "NaN or infinity",
    "NaN in half precision": "NaN or infinity",
    "NaN in bfloat16": "NaN or infinity",
    "NaN in Fortran's order": "NaN or infinity",
    "NaN, compressed": "NaN or infinity",
}


def right():
    """Files that are right, made as those that are not."""
    good = npy(array())
    yield from (cls(good), header("'<f4'"), entry(8, "<H", 0), value(1.0))
    yield archive(members(), DEFLATED)
    yield zip64(whole(), len(good), len(good))
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
