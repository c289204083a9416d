"""Files made to do harm: each is refused, in little memory, nothing written.

Each format has a module of files that are right, wrong and damaged at random.
"""

import json
import zipfile

import h5_files
import hypothesis
import npz_files
import numpy as np
import pytest
import safetensors_files
from hostile import EDITS, check_refused, edit, fuzz, read_in_little_memory
from hypothesis import strategies as st

import zoo
from zoo.containers import npz

FORMATS = {kind.SUFFIX: kind for kind in (npz_files, safetensors_files, h5_files)}


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    """Writes a file and returns its path, the same each time."""
    folder = tmp_path_factory.mktemp("damaged")

    def write(content, suffix):
        file = folder / f"file{suffix}"
        file.write_bytes(content)
        return file

    return write


@pytest.mark.parametrize(
    ("suffix", "told", "make"),
    [(suffix, *fault) for suffix, kind in FORMATS.items() for fault in kind.FAULTS],
)
def test_a_fault_is_refused_and_does_no_harm(suffix, told, make, tmp_path, monkeypatch):
    assert told in check_refused(make(), f"a{suffix}", tmp_path, monkeypatch)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_files_are_right_but_for_their_fault(suffix, path):
    for content in FORMATS[suffix].right():
        assert read_in_little_memory(path(content, suffix)) is None


@pytest.mark.parametrize("naming", safetensors_files.SETTINGS)
def test_names_of_libraries_are_right_but_for_their_fault(naming, tmp_path):
    content, _ = safetensors_files.structure(naming)
    (tmp_path / "config.json").write_text(safetensors_files.SETTINGS[naming])
    (tmp_path / "model.safetensors").write_bytes(content)
    assert read_in_little_memory(tmp_path / "model.safetensors") is None


@pytest.mark.parametrize(
    ("suffix", "name"),
    [(suffix, name) for suffix, kind in FORMATS.items() for name in kind.STRUCTURES],
)
def test_damage_anywhere_is_refused_or_reads_well(suffix, name, path):
    structure = FORMATS[suffix].STRUCTURES[name]()

    @fuzz
    @hypothesis.given(EDITS)
    def damaged(edits):
        read_in_little_memory(path(edit(*structure, edits), suffix))

    damaged()


# Bounds of `.npz`


@pytest.mark.parametrize(
    ("count", "told"),
    [(45_591, "its directory has 2097186 bytes"), (10_001, "it has 10001 members")],
)
def test_members_that_would_fill_the_memory_are_not_read(
    count, told, path, monkeypatch
):
    def read_directory(self):
        raise AssertionError("members are read")

    file = path(npz_files.crowded(count), ".npz")
    monkeypatch.setattr(zipfile.ZipInfo, "_decodeExtra", read_directory, False)
    assert told in read_in_little_memory(file)


def test_the_most_that_a_file_may_hold(path):
    assert len(npz.Npz(path(npz_files.replicated(10_000), ".npz")).keys) == 10_000
    assert npz.Npz(path(npz_files.squeezed(7), ".npz")).keys == ["a", "b"]


def test_stages_without_end():
    names = [f"block{stage}/unit1/conv1/kernel" for stage in range(1, 1002)]
    shapes = dict.fromkeys(names, (1, 1, 1, 1))
    measured = zoo.network.released_names.measure(shapes)
    assert measured == ({}, ["there are 1001 blocks"])


def test_arrays_without_end_are_not_counted_for_each_key(path, monkeypatch):
    class Keys(list):
        def count(self, _):
            raise AssertionError("once for each key is too slow")

    keys = npz.Npz.keys
    monkeypatch.setattr(npz.Npz, "keys", property(lambda file: Keys(keys.fget(file))))
    assert read_in_little_memory(path(npz_files.whole(), ".npz")) is None


# Invented files


@fuzz
@hypothesis.given(
    st.sampled_from(sorted(npz_files.members())),
    EDITS,
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
)
def test_damaged_arrays_under_a_right_checksum(path, name, edits, compression):
    members = npz_files.members()
    contents = members | {name: edit(members[name], range(140), edits)}
    # Compressing all of them would take most of the time.
    if compression == zipfile.ZIP_DEFLATED:
        contents = {key: contents[key] for key in ("head/bias.npy", "cls.npy", name)}
    read_in_little_memory(path(npz_files.archive(contents, compression), ".npz"))


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 2**70),
        st.floats(),
        st.sampled_from(["<f4", "|V2", "|O", "F32", "BF16", "", "cls", "\ud800"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["descr", "shape", "dtype", "data_offsets", "__metadata__", "x"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=6,
)
HEADERS = st.fixed_dictionaries(
    {
        "descr": st.one_of(st.sampled_from(["<f4", "|V2"]), VALUES),
        "fortran_order": st.one_of(st.booleans(), VALUES),
        "shape": st.one_of(st.lists(st.integers(-1, 2**40)).map(tuple), VALUES),
    },
    optional={"more": VALUES},
)
PREFIXES = st.sampled_from(["", "opt/target/", "params/", "params/img/", "opt/"])
NAMES = st.one_of(
    st.builds(str.__add__, PREFIXES, st.sampled_from(sorted(npz_files.members()))),
    st.binary(min_size=1, max_size=30)
    .map(lambda name: name.decode("latin1"))
    .filter(lambda name: name[0] != "\0"),  # which zipfile cannot write
)
SHAPES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@fuzz
@hypothesis.given(
    st.dictionaries(NAMES, SHAPES, max_size=8), st.one_of(HEADERS, VALUES)
)
def test_invented_arrays_of_npz(path, shapes, header):
    arrays = {
        name: npz_files.npy(np.ones(shape, "float32")) for name, shape in shapes.items()
    }
    arrays |= {"cls.npy": npz_files.literal(repr(header), 192)} if header else {}
    read_in_little_memory(path(npz_files.archive(npz_files.members() | arrays), ".npz"))


SIDES = st.one_of(st.integers(-1, 50), st.sampled_from([2**31, 2**63, 2**64, 10**30]))
DTYPES = st.sampled_from(["F64", "F32", "F16", "BF16", "I64", "U8", "BOOL", "O"])
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(DTYPES, VALUES),
        "shape": st.one_of(st.lists(SIDES, max_size=5), VALUES),
        "data_offsets": st.one_of(st.lists(SIDES, min_size=1, max_size=3), VALUES),
        "more": VALUES,
    },
)
KEYS = st.one_of(
    st.sampled_from(sorted(safetensors_files.arrays())),
    st.sampled_from(sorted(safetensors_files.arrays("timm"))),
    st.sampled_from(["__metadata__", "x", ""]),
)


@fuzz
@hypothesis.given(
    st.dictionaries(KEYS, st.one_of(ENTRIES, VALUES), max_size=4), st.booleans()
)
def test_invented_entries_of_safetensors(path, entries, twice):
    table, data = safetensors_files.parts()
    # An entry that is known keeps the fields that are not invented.
    table = table | {
        name: {**table.get(name, {}), **entry} if isinstance(entry, dict) else entry
        for name, entry in entries.items()
    }
    text = json.dumps(table)
    if twice:
        text = text[:-1] + "," + text[1:]
    read_in_little_memory(path(safetensors_files.joined(text, data), ".safetensors"))
