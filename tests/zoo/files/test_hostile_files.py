"""`.npz` files made to do harm: each is refused, in little memory, nothing written."""

import functools
import io
import pathlib
import stat
import struct
import zipfile

import hypothesis
import numpy as np
import pytest
from hostile import EDITS, check_refused, edit, fuzz, model, read
from hypothesis import strategies as st

import zoo

GOLDEN = pathlib.Path(__file__).parents[2] / "goldens" / "token.npz"
POSITION = "Transformer/posembed_input/pos_embedding"
STACKED = "Transformer/encoderblock/LayerNorm_0/scale"


@functools.cache
def members():
    """The golden's members by name."""
    with zipfile.ZipFile(GOLDEN) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(contents, compression=zipfile.ZIP_STORED):
    """A zip file of pairs or a dict of name to bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression, compresslevel=1) as file:
        for name, content in dict(contents).items():
            file.writestr(name, content)
    return stream.getvalue()


def changed(**contents):
    return archive(members() | contents)


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


def directory(data, name):
    """The offset of a member's entry in the directory at the end."""
    start = data.index(b"PK\x01\x02")
    return data.index(name.encode(), start) - 46


def patched(data, offset, form, *values):
    data = bytearray(data)
    struct.pack_into(form, data, offset, *values)
    return bytes(data)


def zip64(data, name, size=None, compressed=None, offset=None):
    """Sizes and an offset in an entry's extra field, where they have 64 bits."""
    entry = directory(data, name)
    extra = b""
    for at, value in ((24, size), (20, compressed), (42, offset)):
        if value is not None:
            data = patched(data, entry + at, "<L", 0xFFFFFFFF)
            extra += struct.pack("<Q", value)
    extra = struct.pack("<HH", 1, len(extra)) + extra
    data = patched(data, entry + 30, "<H", len(extra))
    end = entry + 46 + len(name)
    data = data[:end] + extra + data[end:]
    size = struct.unpack_from("<L", data, len(data) - 10)[0]
    return patched(data, len(data) - 10, "<L", size + len(extra))


def with_flags(flags):
    data = changed()
    return patched(data, directory(data, "cls.npy") + 8, "<H", flags)


def special(kind):
    """A member that says it is a link, a pipe or a device."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in members().items():
            info = zipfile.ZipInfo(name)
            if name == "cls.npy":
                info.create_system = 3
                info.external_attr = (kind | 0o777) << 16
                content = b"../../../../etc/passwd"
            file.writestr(info, content)
    return stream.getvalue()


class Bomb:
    def __reduce__(self):
        return (pathlib.Path.touch, (pathlib.Path("exploded"),))


def pickled(dtype=object):
    stream = io.BytesIO()
    value = np.array([Bomb()], object)
    if dtype is not object:
        value = np.array([(1.0, Bomb())], dtype)
    np.save(stream, value, allow_pickle=True)
    return changed(**{"cls.npy": stream.getvalue()})


def bomb(claimed=None):
    """Zeros in a thousandth of their size; or the claim of even more."""
    shape = (1, 1, (claimed or 5 * 10**7) // 4)
    head = npy(np.empty(0, "float32"), shape=shape)
    data = head + bytes(10**5 if claimed else 5 * 10**7)
    data = archive(members() | {"cls.npy": data}, zipfile.ZIP_DEFLATED)
    return zip64(data, "cls.npy", size=len(head) + claimed) if claimed else data


def overlapping():
    """A member whose compressed bytes end within the next one, otherwise right."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members().items():
            file.writestr(name, content)
        first, second, *_ = file.infolist()
        first.compress_size += second.compress_size
    return stream.getvalue()


def value(number, dtype="float32", order="C", compression=zipfile.ZIP_STORED):
    numbers = array("head/kernel").astype(dtype)
    numbers[-1, -1] = number
    stream = io.BytesIO()
    np.save(stream, np.asarray(numbers, order=order))
    contents = members() | {"head/kernel.npy": stream.getvalue()}
    return archive(contents, compression)


def bfloat16_nan():
    bits = (array("head/kernel").view("uint32") >> 16).astype("uint16")
    bits[0, 0] = 0x7FC0
    return changed(**{"head/kernel.npy": npy(bits.view("V2"))})


def without_blocks(**contents):
    kept = {k: v for k, v in members().items() if "encoderblock" not in k}
    return archive(kept | contents)


def header(descr, shape="(1, 1, 48)", size=192):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n"
    return changed(**{"cls.npy": literal(text, size)})


def many(count):
    small = npy(np.zeros(1, "float32"))
    return archive({f"{number}.npy": small for number in range(count)})


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


def gridded(array):
    return changed(**{"Transformer/posembed_input/grid_size.npy": npy(array)})


def crowded(count):
    """A directory of members without names, whose end says that there is one."""
    entry = b"PK\x01\x02" + bytes(42)
    start = zipfile.ZipFile(io.BytesIO(changed())).start_dir
    data = changed()[:start] + entry * count
    size = struct.pack("<LL", count * len(entry), start)
    return data + b"PK\x05\x06" + bytes(4) + struct.pack("<HH", 1, 1) + size + b"\0\0"


def squeezed(ratio):
    """A file that unpacks to so many times its size."""
    numbers = np.random.default_rng(0).random(2**16, "float32").tobytes()
    zeros = npy(np.zeros(ratio * 2**16, "float32"))
    return archive({"a.npy": zeros, "b.npy": numbers}, zipfile.ZIP_DEFLATED)


HOSTILE = {
    "pickled": pickled,
    "pickled inside a structure": lambda: pickled([("a", "<f4"), ("b", "O")]),
    "a claim of 10^12 numbers": lambda: changed(
        **{"cls.npy": npy(array(), shape=(1, 1, 10**12))}
    ),
    "a stored member that claims 10^12 bytes": lambda: zip64(
        changed(**{"cls.npy": npy(array(), shape=(1, 1, 10**12 // 4))}),
        "cls.npy",
        128 + 10**12,
        128 + 10**12,
    ),
    "a bomb that claims 10^12 bytes": lambda: bomb(10**12),
    "a bomb": bomb,
    "a header bomb": lambda: archive(
        members()
        | {
            "cls.npy": b"\x93NUMPY\x02\x00"
            + struct.pack("<L", 5 * 10**7)
            + b" " * (5 * 10**7)
        },
        zipfile.ZIP_DEFLATED,
    ),
    "10^15 blocks of nothing": lambda: without_blocks(
        **{f"{STACKED}.npy": npy(np.empty(0, "<f4"), shape=(10**15, 0))}
    ),
    "10^15 blocks of no bytes": lambda: without_blocks(
        **{
            f"{STACKED}.npy": literal(
                "{'descr': '|V0', 'fortran_order': False, "
                "'shape': (1000000000000000, 48)}\n"
            )
        }
    ),
    "10^5 blocks": lambda: without_blocks(
        **{f"{STACKED}.npy": npy(np.zeros((10**5, 1), "float16"))}
    ),
    "500 arrays": lambda: many(500),
    "10,001 arrays": lambda: replicated(10_001),
    "more members than are counted": lambda: crowded(200_000),
    "a few more members than are counted": lambda: crowded(10_001),
    "a bomb that is just one": lambda: squeezed(11),
    "a grid of 10^6 numbers": lambda: gridded(np.ones(10**6, "int32")),
    "a grid of one number": lambda: gridded(np.array([16], "int32")),
    "a grid without a number": lambda: gridded(np.int32(16)),
    "a grid in a row": lambda: gridded(np.array([[4, 4]], "int32")),
    "a grid of no patches": lambda: gridded(np.array([-4, -4], "int32")),
    "a name above the folder": lambda: changed(**{"../evil.npy": npy(array())}),
    "an absolute name": lambda: changed(**{"/tmp/evil.npy": npy(array())}),
    "a name on a drive": lambda: changed(**{"C:\\evil.npy": npy(array())}),
    "a name of a folder": lambda: changed(**{"folder/": b""}),
    "no name": lambda: changed(**{".npy": npy(array())}),
    "a name of lines": lambda: changed(**{"a\nb\x1b[2J\u202e.npy": npy(array())}),
    "a number too long to read": lambda: changed(
        **{f"Transformer/encoderblock_{'1' * 5000}/LayerNorm_0/bias.npy": npy(array())}
    ),
    "a symbolic link": lambda: special(stat.S_IFLNK),
    "a pipe": lambda: special(stat.S_IFIFO),
    "encrypted": lambda: with_flags(0x1),
    "strongly encrypted": lambda: with_flags(0x40),
    "patched data": lambda: with_flags(0x20),
    "an offset beyond the file": lambda: zip64(
        changed(), "cls.npy", offset=len(changed()) * 2
    ),
    "an offset of 63 bits": lambda: zip64(changed(), "cls.npy", offset=2**63 - 1),
    "an offset of 64 bits": lambda: zip64(changed(), "cls.npy", offset=2**64 - 100),
    "a size of 64 bits": lambda: zip64(changed(), "cls.npy", 2**64 - 1, 2**64 - 1),
    "an extra field cut short": lambda: patched(
        changed(), directory(changed(), "cls.npy") + 24, "<L", 0xFFFFFFFF
    ),
    "a version of the future": lambda: patched(
        changed(), directory(changed(), "cls.npy") + 6, "<H", 99
    ),
    "a directory larger than the file": lambda: patched(
        changed(), len(changed()) - 10, "<L", 0xFFFFFFF0
    ),
    "cut in the middle": lambda: GOLDEN.read_bytes()[: GOLDEN.stat().st_size // 2],
    "only an end": lambda: GOLDEN.read_bytes()[-22:],
    "an empty archive": lambda: b"PK\x05\x06" + bytes(18),
    "a comment with another end": lambda: (
        patched(changed(), len(changed()) - 2, "<H", 22) + b"PK\x05\x06" + bytes(18)
    ),
    "a header that is no dict": lambda: changed(**{"cls.npy": literal("[]")}),
    "unhashable keys": lambda: changed(**{"cls.npy": literal("{[]: 1}")}),
    "keys of two types": lambda: changed(**{"cls.npy": literal("{1: 2, 'a': 3}")}),
    "a header that calls": lambda: changed(
        **{"cls.npy": literal("__import__('pathlib').Path('exploded').touch()")}
    ),
    "nested parentheses": lambda: changed(**{"cls.npy": literal("(" * 9000)}),
    "nested signs": lambda: changed(**{"cls.npy": literal("-" * 9000 + "1")}),
    "a header cut short": lambda: changed(**{"cls.npy": literal("{}")[:9]}),
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
    "NaN": lambda: value(np.nan),
    "infinity": lambda: value(-np.inf),
    "NaN, big-endian": lambda: value(np.nan, ">f4"),
    "NaN in half precision": lambda: value(np.nan, "float16"),
    "NaN in bfloat16": bfloat16_nan,
    "NaN in Fortran's order": lambda: value(np.nan, order="F"),
    "NaN, compressed": lambda: value(np.nan, compression=zipfile.ZIP_DEFLATED),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_and_does_no_harm(name, tmp_path, monkeypatch):
    check_refused(HOSTILE[name](), "a.npz", tmp_path, monkeypatch)


def test_members_that_overlap(tmp_path, monkeypatch):
    message = check_refused(overlapping(), "a.npz", tmp_path, monkeypatch)
    assert "embedding/bias.npy overlaps another array" in message


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: crowded(200_000), "its directory has 9200000 bytes"),
        (lambda: crowded(10_001), "it has 10001 members"),
        (lambda: replicated(10_001), "it has 10001 members"),
        (lambda: squeezed(11), "bytes hold"),
    ],
)
def test_what_would_fill_the_memory_is_not_begun(
    content, reason, tmp_path, monkeypatch
):
    def read_directory(self):
        raise AssertionError("members are read")

    data = content()
    if "hold" not in reason:
        monkeypatch.setattr(zipfile.ZipInfo, "_decodeExtra", read_directory, False)
    assert reason in check_refused(data, "a.npz", tmp_path, monkeypatch)


def test_the_most_arrays_that_a_file_may_have(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(replicated(10_000))
    assert len(zoo.files.npz.Npz(path).keys) == 10_000


def test_a_file_of_ten_times_its_size_is_no_bomb(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(squeezed(7))
    assert zoo.files.npz.Npz(path).keys == ["a", "b"]


def test_the_files_are_right_but_for_their_harm(tmp_path):
    path = tmp_path / "a.npz"
    good = npy(array())
    for content in (
        changed(),
        archive(members(), zipfile.ZIP_DEFLATED),
        changed(**{"cls.npy": good}),
        header("'<f4'"),
        zip64(changed(), "cls.npy", len(good), len(good)),
        with_flags(0x0),
        value(1.0),
        value(1.0, ">f4", "F", zipfile.ZIP_DEFLATED),
    ):
        path.write_bytes(content)
        assert read(path) is None


def test_stages_without_end():
    names = [f"block{stage}/unit1/conv1/kernel" for stage in range(1, 15_001)]
    sizes, problems = zoo.released_names.measure(dict.fromkeys(names, (1, 1, 1, 1)))
    assert sizes == {}
    assert problems == ["there are 15000 blocks"]


def test_arrays_without_end(monkeypatch):
    class Keys(list):
        def count(self, _):
            raise AssertionError("once for each key is too slow")

    path, keys = GOLDEN, zoo.files.npz.Npz.keys
    monkeypatch.setattr(
        zoo.files.npz.Npz, "keys", property(lambda file: Keys(keys.fget(file)))
    )
    assert read(path) is None


# Random damage


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


@fuzz
@hypothesis.given(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]), EDITS)
def test_damaged_archives(tmp_path_factory, compression, edits):
    path = tmp_path_factory.getbasetemp() / "archive.npz"
    path.write_bytes(edit(*structure(compression), edits))
    read(path)


@fuzz
@hypothesis.given(
    st.sampled_from(sorted(members())),
    EDITS,
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_damaged_arrays_under_a_right_checksum(
    tmp_path_factory, name, edits, compression
):
    damaged = edit(members()[name], range(140), edits)
    # Compressing all of them would take most of the time.
    contents = members() | {name: damaged}
    if compression == zipfile.ZIP_DEFLATED:
        contents = {key: contents[key] for key in ("head/bias.npy", "cls.npy", name)}
    path = tmp_path_factory.getbasetemp() / "array.npz"
    path.write_bytes(archive(contents, compression))
    read(path)


WORDS = ["descr", "shape", "fortran_order", "<f4", "<f2", "|V2", "|O", "|V0", "f8"]
LEAVES = st.one_of(
    st.sampled_from(WORDS), st.integers(-2, 2**70), st.booleans(), st.none()
)
LITERALS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(LEAVES, inner, max_size=3),
    ),
    max_leaves=6,
)
HEADERS = st.fixed_dictionaries(
    {
        "descr": st.one_of(st.sampled_from(["<f4", "|V2"]), LITERALS),
        "fortran_order": st.one_of(st.booleans(), LITERALS),
        "shape": st.one_of(st.lists(st.integers(-1, 2**40)).map(tuple), LITERALS),
    },
    optional={"more": LITERALS},
)


@fuzz
@hypothesis.given(st.one_of(HEADERS, LITERALS))
def test_invented_headers(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "header.npz"
    path.write_bytes(changed(**{"cls.npy": literal(repr(content), 192)}))
    read(path)


@fuzz
@hypothesis.given(
    st.dictionaries(
        st.one_of(
            st.sampled_from(sorted(members())),
            st.sampled_from(["opt/target/", "params/", "params/img/", "opt/"]).flatmap(
                lambda prefix: st.sampled_from([prefix + name for name in members()])
            ),
            st.binary(min_size=1, max_size=30)
            .map(lambda name: name.decode("latin1"))
            .filter(lambda name: name[0] != "\0"),  # which zipfile cannot write
        ),
        st.lists(st.integers(0, 3), max_size=4).map(tuple),
        max_size=8,
    )
)
def test_invented_names_and_shapes(tmp_path_factory, shapes):
    path = tmp_path_factory.getbasetemp() / "names.npz"
    arrays = {name: npy(np.ones(shape, "float32")) for name, shape in shapes.items()}
    path.write_bytes(archive(members() | arrays))
    read(path)
