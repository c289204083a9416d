"""`.safetensors` and `.h5` files made to do harm are refused, in little memory."""

import contextlib
import functools
import io
import json
import math
import pathlib
import struct

import h5py
import hypothesis
import numpy as np
import pytest
from hostile import EDITS, check_refused, edit, fuzz, fuzz_slowly, read_in_little_memory
from hypothesis import strategies as st

import zoo
from zoo.files import names

GOLDEN = pathlib.Path(__file__).parents[2] / "goldens" / "token.npz"
ZEROS = bytes(192)


# .safetensors


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


def joined(text, data):
    text = text if isinstance(text, bytes) else text.encode()
    return len(text).to_bytes(8, "little") + text + data


def changed(**fields):
    """A right file but for the fields of one entry."""
    table, data = parts()
    return joined(json.dumps(table | {"cls": table["cls"] | fields}), data)


def added(entries, more=b""):
    table, data = parts()
    return joined(json.dumps(table | entries), data + more)


def place(array_bytes):
    end = len(parts()[1])
    return [end, end + array_bytes]


def twins(count):
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    entries = [f'"{number}":{entry}' for number in range(count)]
    return joined(f"{{{','.join([*entries, entries[-1]])}}}", b"")


def empty_model():
    """A model whose tokens have no numbers."""
    table, end = {}, 0
    for name, array in arrays().items():
        shape = [0 if side == 48 else side for side in array.shape]
        start, end = end, end + 4 * math.prod(shape)
        table[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    return joined(json.dumps(table), bytes(end))


SAFETENSORS = {
    "a header longer than the file": lambda: (2**40).to_bytes(8, "little") + b"{",
    "a header of 2^64 bytes": lambda: b"\xff" * 8 + b"{}",
    "a header of nothing": lambda: bytes(8) + b"{}",
    "only a length": lambda: b"\x02" + bytes(7),
    "no text": lambda: joined(b"{\xff\xfe}", b""),
    "nested lists": lambda: joined('{"a":' + "[" * 10**5, b""),
    "nested tables": lambda: joined('{"a":' * 10**5, b""),
    "a header of megabytes": lambda: twins(10**5),
    "a list": lambda: joined("[1]" + " " * 8, b""),
    "a number too long to read": lambda: joined(f'{{"a":{"9" * 10**6}}}', b""),
    "an infinite place": lambda: joined(
        json.dumps(parts()[0]).replace("[0,", "[Infinity,", 1), parts()[1]
    ),
    "a shape of NaN": lambda: changed(shape=[float("nan"), 1, 48]),
    "two arrays of one name": lambda: twins(1),
    "two arrays of one name after 10^4": lambda: twins(10**4),
    "2000 arrays": lambda: joined(
        json.dumps(
            {
                str(n): {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]}
                for n in range(2000)
            }
        ),
        bytes(2000),
    ),
    "a product too long to compute": lambda: changed(
        shape=[10**4000] * 1000, data_offsets=[0, 192]
    ),
    "10^5 axes": lambda: changed(shape=[1] * 10**5 + [48]),
    "an array of 10^30 nothings": lambda: changed(
        shape=[10**30, 0], data_offsets=[0, 0]
    ),
    "a model of nothing": empty_model,
    "a place beyond the file": lambda: changed(data_offsets=[2**62, 2**62 + 192]),
    "a place of 70 bits": lambda: changed(data_offsets=[2**70, 2**70 + 192]),
    "a place before the file": lambda: changed(data_offsets=[-192, 0]),
    "a place that ends before it begins": lambda: changed(
        shape=[-48], data_offsets=[192, 0]
    ),
    "the place of another": lambda: changed(
        data_offsets=parts()[0]["head/kernel"]["data_offsets"]
    ),
    "a place within another": lambda: changed(data_offsets=[4, 196]),
    "a gap": lambda: added(
        {"x": {"dtype": "U8", "shape": [1], "data_offsets": [n + 1 for n in place(1)]}},
        b"aa",
    ),
    "bytes that are of no array": lambda: added({}, b"a"),
    "a claim of 10^12 numbers": lambda: changed(
        shape=[10**12], data_offsets=[0, 4 * 10**12]
    ),
    "a dtype of objects": lambda: changed(dtype="O"),
    "a dtype that is a list": lambda: changed(dtype=["F32"]),
    "a dtype that is a table": lambda: changed(dtype={}),
    "metadata that are a list": lambda: added({"__metadata__": []}),
    "metadata that are numbers": lambda: added({"__metadata__": {"a": 1}}),
    "metadata of ours that are nested": lambda: added(
        {"__metadata__": {"keras_vit": "[" * 10**5}}
    ),
    "a name of 10^6 letters": lambda: added(
        {"x" * 10**6: {"dtype": "U8", "shape": [1], "data_offsets": place(1)}}, b"a"
    ),
    "half a character": lambda: added(
        {"\ud800": {"dtype": "U8", "shape": [1], "data_offsets": place(1)}}, b"a"
    ),
    "a block number too long to read": lambda: added(
        {
            f"blocks.{'1' * 900}.norm1.weight": {
                "dtype": "F32",
                "shape": [48],
                "data_offsets": place(192),
            }
        },
        ZEROS,
    ),
    "NaN": lambda: joined(json.dumps(parts()[0]), parts()[1][:-4] + b"\0\0\xc0\x7f"),
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_safetensors_are_refused_and_do_no_harm(name, tmp_path, monkeypatch):
    check_refused(SAFETENSORS[name](), "a.safetensors", tmp_path, monkeypatch)


SETTINGS = {
    "timm": '{"architecture": "vit_tiny_patch16_224", "model_args": {"num_heads": 3}}',
    "transformers": '{"model_type": "vit", "num_attention_heads": 3}',
}


@pytest.mark.parametrize("naming", ["released", "timm", "transformers"])
def test_safetensors_are_right_but_for_their_harm(naming, tmp_path):
    table, data = parts(naming)
    path = tmp_path / "a.safetensors"
    if naming != "released":
        (tmp_path / "config.json").write_text(SETTINGS[naming])
    path.write_bytes(joined(json.dumps(table), data))
    assert read_in_little_memory(path) is None


@fuzz
@hypothesis.given(st.sampled_from(["released", "timm", "transformers"]), EDITS)
def test_damaged_safetensors(tmp_path_factory, naming, edits):
    table, data = parts(naming)
    whole = joined(json.dumps(table), data)
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(edit(whole, range(len(whole) - len(data) + 8), edits))
    read_in_little_memory(path)


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 2**70),
        st.floats(),
        st.sampled_from(["F32", "BF16", "F64", "F8_E4M3", "", "cls", "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "x"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)
SIDES = st.one_of(st.integers(-1, 50), st.sampled_from([2**31, 2**63, 2**64, 10**30]))
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(
            st.sampled_from(["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "O"]),
            JSON,
        ),
        "shape": st.one_of(st.lists(SIDES, max_size=5), JSON),
        "data_offsets": st.one_of(st.lists(SIDES, min_size=1, max_size=3), JSON),
        "more": JSON,
    },
)
KEYS = st.one_of(
    st.sampled_from(sorted(arrays())),
    st.sampled_from(sorted(arrays("timm"))),
    st.sampled_from(["__metadata__", "x", ""]),
)


@fuzz
@hypothesis.given(
    st.dictionaries(KEYS, st.one_of(ENTRIES, JSON), max_size=4), st.booleans()
)
def test_invented_safetensors(tmp_path_factory, entries, twice):
    table, data = parts()
    # An entry that is known keeps the fields that are not invented.
    table = table | {
        name: {**table.get(name, {}), **entry} if isinstance(entry, dict) else entry
        for name, entry in entries.items()
    }
    text = json.dumps(table)
    if twice:
        text = text[:-1] + "," + text[1:]
    path = tmp_path_factory.getbasetemp() / "invented.safetensors"
    path.write_bytes(joined(text, data))
    read_in_little_memory(path)


@fuzz
@hypothesis.given(JSON)
def test_invented_headers(tmp_path_factory, header):
    path = tmp_path_factory.getbasetemp() / "header.safetensors"
    path.write_bytes(joined(json.dumps(header) + " " * 8, ZEROS))
    read_in_little_memory(path)


# .h5


@functools.cache
def hub_arrays():
    """The golden's arrays as keras-hub calls them."""
    return {
        names.foreign_name("keras_hub", name): array for name, array in arrays().items()
    }


CLASS_TOKEN = names.foreign_name("keras_hub", "cls")
KERNEL = names.foreign_name("keras_hub", "head/kernel")
BLOCK_NORM = names.foreign_name(
    "keras_hub", "Transformer/encoderblock_0/LayerNorm_0/bias"
)


def h5(change=None, without=(), **arguments):
    """A right file, changed while it is open."""
    stream = io.BytesIO(right_h5(**arguments))
    with h5py.File(stream, "r+", **arguments) as file:
        for name in hub_arrays().keys() & set(without):
            del file[name]
            while (name := name.rpartition("/")[0]) and len(file[name]) == 0:
                del file[name]
        if change is not None:
            change(file)
    return stream.getvalue()


@functools.cache
def right_h5(**arguments):
    stream = io.BytesIO()
    with h5py.File(stream, "w", **arguments) as file:
        for name, array in hub_arrays().items():
            file[name] = array
    return stream.getvalue()


def dataset(name=CLASS_TOKEN, shape=None, dtype="f4", **arguments):
    """A right file but for the place and kind of an array."""
    shape = hub_arrays()[name].shape if shape is None else shape

    def change(file):
        file.create_dataset(name, shape, dtype, **arguments)

    return h5(change, without=[name])


def link(target, name=KERNEL):
    return h5(lambda file: file.__setitem__(name, target), without=[name])


def virtual(file):
    layout = h5py.VirtualLayout((1, 1, 48), "f4")
    layout[:] = h5py.VirtualSource("outside.h5", "secret", (1, 1, 48))
    file.create_virtual_dataset(CLASS_TOKEN, layout)


def compact(file):
    space = h5py.h5s.create_simple((1, 1, 48))
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.COMPACT)
    group = file.require_group(CLASS_TOKEN.rpartition("/")[0])
    name = CLASS_TOKEN.rpartition("/")[2].encode()
    made = h5py.h5d.create(group.id, name, h5py.h5t.IEEE_F32LE, space, create)
    made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ones((1, 1, 48), "f4"))


def nested(depth):
    def change(file):
        group = file
        for _ in range(depth):
            group = group.create_group("a")

    return h5(change)


def cyclic(file):
    group = file.create_group("a/b")
    group["c"] = file["a"]
    group["d"] = file["/"]


def many_groups(file):
    for number in range(5000):
        file.create_group(f"groups/{number}")


def patched(data, old, new, form="<Q"):
    """Numbers in the bytes that say what the others mean, replaced."""
    old, new = (b"".join(struct.pack(form, n) for n in part) for part in (old, new))
    assert data.count(old) >= 1
    return data.replace(old, new)


@functools.cache
def kernel_place():
    with h5py.File(io.BytesIO(h5())) as file:
        return file[KERNEL].id.get_offset(), file[KERNEL].nbytes


def replaced_place(offset, size):
    old = kernel_place()
    return patched(h5(), old, (offset or old[0], size or old[1]))


H5 = {
    "nested groups": lambda: nested(1000),
    "nothing more": lambda: h5()[:8],
    "cut in the middle": lambda: h5()[: len(h5()) // 2],
    "cut at the end": lambda: h5()[:-1],
    "an array of 10^12 numbers that were never written": lambda: dataset(
        shape=(1, 1, 10**12)
    ),
    "an array of 10^9 numbers that were never written": lambda: dataset(
        shape=(1, 1, 10**9)
    ),
    "an array that was never written": dataset,
    "an array of 10^12 numbers, filled": lambda: dataset(
        shape=(1, 1, 10**12), fillvalue=1.0
    ),
    "chunks that were never written": lambda: dataset(
        shape=(1, 1, 10**12), chunks=(1, 1, 10**6)
    ),
    "a compressed bomb": lambda: dataset(
        data=np.zeros((1, 1, 10**7), "f4"), shape=(1, 1, 10**7), compression="gzip"
    ),
    "an array without an end": lambda: dataset(maxshape=(None, 1, 48), chunks=True),
    "a link to a file": lambda: link(h5py.ExternalLink("/etc/passwd", "/")),
    "a link to itself": lambda: link(h5py.SoftLink("/" + KERNEL)),
    "a link to another array": lambda: link(h5py.SoftLink("/" + CLASS_TOKEN)),
    "a link to a file that nothing needs": lambda: h5(
        lambda file: file.__setitem__("link", h5py.ExternalLink("/etc/passwd", "/"))
    ),
    "numbers of another file": lambda: dataset(external=[("/etc/passwd", 0, 192)]),
    "a virtual array": lambda: h5(virtual, without=[CLASS_TOKEN]),
    "a null array": lambda: h5(
        lambda file: file.__setitem__(CLASS_TOKEN, h5py.Empty("f4")),
        without=[CLASS_TOKEN],
    ),
    "an empty array": lambda: dataset(shape=(10**15, 0)),
    "text": lambda: dataset(dtype="S8"),
    "text of any length": lambda: dataset(dtype=h5py.string_dtype()),
    "references": lambda: dataset(dtype=h5py.ref_dtype),
    "lists of any length": lambda: dataset(dtype=h5py.vlen_dtype("f4")),
    "a structure": lambda: dataset(dtype=[("a", "f4"), ("b", "f4")]),
    "arrays in an array": lambda: dataset(dtype=np.dtype(("f4", (2,)))),
    "truths": lambda: dataset(dtype="?"),
    "complex numbers": lambda: dataset(dtype="c8"),
    "whole numbers": lambda: dataset(dtype="i4", data=np.ones((1, 1, 48), "i4")),
    "long numbers": lambda: dataset(dtype="f8", data=np.ones((1, 1, 48))),
    "an array where a group should be": lambda: h5(
        lambda file: file.__setitem__(CLASS_TOKEN.rpartition("/")[0], np.ones(3)),
        without=[name for name in hub_arrays() if name.startswith("layers/vi_t_patch")],
    ),
    "a group where an array should be": lambda: h5(
        lambda file: file.create_group(KERNEL), without=[KERNEL]
    ),
    "an array beyond the file": lambda: replaced_place(2**40, None),
    "an array before the file": lambda: replaced_place(2**64 - 2**20, None),
    "an array of another size": lambda: replaced_place(None, 2**40),
    "a side of 2^60": lambda: patched(h5(), (48, 10), (2**60, 10)),
    "a negative side": lambda: patched(h5(), (48, 10), (2**64 - 1, 10)),
    "a block number too long to read": lambda: h5(
        lambda file: file.__setitem__(
            BLOCK_NORM.replace("_0/", f"_{'1' * 990}/"),
            np.ones(48, "f4"),
        )
    ),
    "NaN": lambda: patched(h5(), hub_arrays()[KERNEL][-1, -2:], (1, np.nan), "<f"),
}


@pytest.mark.parametrize("name", H5)
def test_h5_files_are_refused_and_do_no_harm(name, tmp_path, monkeypatch):
    check_refused(H5[name](), "a.h5", tmp_path, monkeypatch)


def test_h5_files_are_right_but_for_their_harm(tmp_path):
    for content in (
        h5(),
        h5(libver="latest"),
        h5(compact, without=[CLASS_TOKEN]),
        h5(cyclic),
        h5(many_groups),
        nested(10),
        dataset(data=hub_arrays()[CLASS_TOKEN].astype(">f2"), dtype=">f2"),
        patched(h5(), kernel_place(), kernel_place()),
    ):
        path = tmp_path / "a.h5"
        path.write_bytes(content)
        assert read_in_little_memory(path) is None


@functools.cache
def h5_structure(libver):
    """The bytes of a file, and where those are that say what the others mean."""
    data = h5(libver=libver)
    with h5py.File(io.BytesIO(data)) as file:
        found = [file[name] for name in hub_arrays()]
        spans = sorted((item.id.get_offset(), item.nbytes) for item in found)
    starts = [8, *(start + size for start, size in spans)]
    stops = [*(start for start, _ in spans), len(data)]
    pairs = zip(starts, stops, strict=True)
    return data, [offset for pair in pairs for offset in range(*pair)]


@fuzz
@hypothesis.given(st.sampled_from(["earliest", "latest"]), EDITS)
def test_damaged_h5(tmp_path_factory, libver, edits):
    path = tmp_path_factory.getbasetemp() / "damaged.h5"
    path.write_bytes(edit(*h5_structure(libver), edits))
    read_in_little_memory(path)


DATASETS = st.fixed_dictionaries(
    {
        "shape": st.lists(st.sampled_from([0, 1, 3, 48, 2**31, 2**40]), max_size=4),
        "dtype": st.sampled_from(
            ["f4", ">f4", "f2", "f8", "i4", "S3", "?", "V2", "c8"]
        ),
    },
    optional={
        "chunks": st.just(True),
        "compression": st.just("gzip"),
        "external": st.just([("/etc/passwd", 0, 192)]),
    },
)


@fuzz_slowly
@hypothesis.given(
    st.dictionaries(
        st.one_of(
            st.sampled_from(sorted(hub_arrays())),
            st.text("a/.0\u20ac", min_size=1, max_size=9),
        ),
        DATASETS,
        max_size=4,
    )
)
def test_invented_h5(tmp_path_factory, datasets):
    def change(file):
        for name, arguments in datasets.items():
            # h5py itself refuses some of them.
            with contextlib.suppress(ValueError, TypeError, OSError, RuntimeError):
                file.create_dataset(name, **arguments)

    path = tmp_path_factory.getbasetemp() / "invented.h5"
    path.write_bytes(h5(change, without=datasets))
    read_in_little_memory(path)
