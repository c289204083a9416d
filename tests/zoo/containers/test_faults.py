"""Files made to do harm: each is refused, in little memory, nothing written.

Each format has a module of files that are right, wrong and damaged at random.
"""

import zipfile

import h5_files
import hypothesis
import npz_files
import pytest
import safetensors_files
from hostile import EDITS, VALUES, check_refused, edit, fuzz, read_in_little_memory
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
        # To write over a file would wait for the disk.
        file.unlink(missing_ok=True)
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


@fuzz
@hypothesis.given(st.sampled_from(["dtype", "shape", "data_offsets"]), VALUES)
def test_an_entry_of_safetensors_may_say_anything(path, field, value):
    content = safetensors_files.changed(**{field: value})
    read_in_little_memory(path(content, ".safetensors"))


@fuzz
@hypothesis.given(st.sampled_from(["descr", "fortran_order", "shape"]), VALUES)
def test_a_header_of_npz_may_say_anything(path, field, value):
    header = {"descr": "<f4", "fortran_order": False, "shape": (1, 1, 48)}
    content = npz_files.literal(repr(header | {field: value}) + "\n", 192)
    read_in_little_memory(path(npz_files.cls(content), ".npz"))


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
    assert len(npz.Npz(path(npz_files.many(10_000), ".npz")).keys) == 10_000
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
