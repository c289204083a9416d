import concurrent.futures
import gc
import os
import pathlib
import tracemalloc
import zipfile

import numpy as np
import pytest
from hostile import model

import zoo

GOLDENS = pathlib.Path(__file__).parents[2] / "goldens"


@pytest.fixture
def arrays():
    with np.load(GOLDENS / "token.npz") as file:
        return dict(file)


@pytest.fixture
def path(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    return tmp_path / "a.npz"


def test_an_array_is_read_each_time_and_shapes_are_known_before(
    path, arrays, monkeypatch
):
    checkpoint = zoo.read(path)
    with monkeypatch.context() as patch:
        patch.setattr("zoo.containers.npz.Npz.read_into", None)
        assert checkpoint.shapes == {key: array.shape for key, array in arrays.items()}
        assert checkpoint.classes == 10
        assert len(checkpoint.arrays) == len(arrays)
        assert "cls" in checkpoint.arrays
    found = checkpoint.arrays
    first = found["cls"]
    first += 1.0
    np.testing.assert_array_equal(found["cls"], arrays["cls"])
    with pytest.raises(KeyError):
        found["absent"]
    with pytest.raises(TypeError):
        found["cls"] = first


def test_compressed_files_and_those_in_fortrans_order(path, arrays):
    np.savez_compressed(path, **arrays)
    fortran = {key: np.asfortranarray(array) for key, array in arrays.items()}
    np.savez(path.with_name("fortran.npz"), **fortran)
    for file in (path, path.with_name("fortran.npz")):
        np.testing.assert_equal(dict(zoo.read(file).arrays), arrays)


def test_the_file_may_be_written_over_or_deleted(path, arrays):
    before = zoo.read(path)
    zoo.write(path, before.arrays)
    zoo.write(path, {key: array + 1.0 for key, array in arrays.items()})
    np.testing.assert_array_equal(before.arrays["cls"], arrays["cls"])
    np.testing.assert_array_equal(zoo.read(path).arrays["cls"], arrays["cls"] + 1.0)
    path.unlink()
    np.testing.assert_array_equal(before.arrays["cls"], arrays["cls"])


@pytest.mark.parametrize("content", [b"", b"PK" + bytes(10**6)])
def test_a_file_changed_in_place_is_refused(path, content):
    checkpoint = zoo.read(path)
    path.write_bytes(content)
    os.utime(path, (1e9, 1e9))
    with pytest.raises(zoo.CheckpointError, match="a.npz was changed.*read it again"):
        checkpoint.arrays["head/kernel"]


def test_a_bug_is_not_called_damage(path, monkeypatch):
    monkeypatch.delattr(zipfile.ZipFile, "infolist")
    with pytest.raises(AttributeError, match="infolist"):
        zoo.read(path)


def test_threads_may_read_at_once(path, arrays):
    found = zoo.read(path).arrays

    def same(key):
        return np.array_equal(found[key], arrays[key])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(same, 20 * [*arrays]))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_the_file_is_closed_with_the_last_of_its_arrays(path):
    def is_open():
        gc.collect()
        links = pathlib.Path("/proc/self/fd").iterdir()
        return path in [link.resolve() for link in links]

    arrays = zoo.read(path).arrays
    assert is_open()
    del arrays
    assert not is_open()
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(zoo.CheckpointError):
        zoo.read(path)
    assert not is_open()


def peak_of(path):
    """Returns the most memory that reading one array after the other takes."""
    tracemalloc.start()
    for array in zoo.read(path).arrays.values():
        array.sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_is_that_of_the_largest_array(path):
    whole, stacked, half = {}, {}, {}
    for name, array in model(1024).items():
        names = {name.replace("block_0", f"block_{block}") for block in range(6)}
        whole |= dict.fromkeys(names, array)
        half |= dict.fromkeys(names, (array.view("u4") >> 16).astype("u2").view("V2"))
        stack = np.stack(len(names) * [array]) if len(names) > 1 else array
        stacked[name.replace("block_0", "block")] = stack
    total = sum(array.nbytes for array in whole.values())
    assert total > 1e8
    for arrays in (whole, stacked, half):
        np.savez(path, **arrays)
        assert peak_of(path) < 0.25 * total
