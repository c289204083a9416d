"""Checkpoints in parts; `test_same_steps.py` runs this file on four devices."""

import functools
import os

import keras
import numpy as np
import pytest
from full_disk import full_disk
from made_steps import IS_JAX, values

from train.common.errors import RunError
from train.engine import devices
from train.engine.checkpoints import Checkpoints, StoredVariables
from train.models.run_directory import RunDirectory

pytestmark = pytest.mark.skipif(not IS_JAX, reason="the backend is not JAX")
SHAPES = {"kernel": (8, 12), "bias": (8,), "table": (1, 5, 4), "step": ()}


@functools.cache
def given(mesh):
    return devices.start(*(("sharded", mesh) if ":" in mesh else (mesh,)))


def made(mesh, seed=None, dtype="float32"):
    """Returns variables on a mesh, random ones with a seed, else zeros."""
    rng = np.random.default_rng(seed)
    with given(mesh).strategy.scope():
        return [
            keras.Variable(
                np.zeros(shape) if seed is None else rng.normal(size=shape),
                dtype=dtype,
                name=name,
            )
            for name, shape in SHAPES.items()
        ]


def save(checkpoints, step, variables):
    checkpoints.save(step, variables)
    checkpoints.wait()


def assert_same(found, expected):
    for one, other in zip(values(found), values(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("before", ["data:2,model:2", "model:4", "one"])
def test_any_mesh_reads_what_another_wrote(tmp_path, before, dtype):
    written = made(before, seed=1, dtype=dtype)
    save(given(before).checkpoints(tmp_path), 5, written)
    ending = ".npz" if before == "one" else ".shards"
    assert os.listdir(tmp_path) == [f"step-00000005{ending}"]
    for after in ("data:2,model:2", "model:4", "data:4", "one", "mirrored"):
        variables = made(after, dtype=dtype)
        layouts = [variable.value.sharding for variable in variables]
        assert given(after).checkpoints(tmp_path).restore(variables) == 5
        assert_same(variables, written)
        assert [variable.value.sharding for variable in variables] == layouts


def test_each_part_is_written_once_by_the_device_that_holds_it(tmp_path):
    variables = made("data:2,model:2", seed=1)
    save(given("data:2,model:2").checkpoints(tmp_path), 5, variables)
    folder = tmp_path / "step-00000005.shards"
    sizes = {}
    for device in range(4):
        with np.load(folder / f"device-{device}-of-4.npz") as file:
            sizes[device] = sum(file[name].size for name in file.files)
    # A quarter of the kernel, half of the table, and what is not cut.
    assert sizes == {0: 24 + 10 + 8 + 1, 1: 24 + 10, 2: 24, 3: 24}


def test_the_newest_two_and_the_newest_best_are_kept(tmp_path):
    checkpoints = given("model:4").checkpoints(tmp_path)
    for number in range(1, 5):
        save(checkpoints, number, made("model:4", seed=number))
        checkpoints.save_best(made("model:4", seed=number + 10))
    assert checkpoints.steps() == [3, 4]
    steps = ["step-00000003.shards", "step-00000004.shards"]
    assert sorted(os.listdir(tmp_path)) == ["best-00000004.shards", *steps]
    # Another process goes on, on one device, and again in parts.
    one = given("one").checkpoints(tmp_path)
    variables = made("one")
    one.restore_best(variables)
    assert_same(variables, made("one", seed=14))
    one.save_best(made("one", seed=20))
    one.wait()
    assert sorted(os.listdir(tmp_path)) == ["best.npz", *steps]
    again = given("model:4").checkpoints(tmp_path)
    variables = made("model:4")
    again.restore_best(variables)
    assert_same(variables, made("model:4", seed=20))
    again.save_best(variables)
    again.wait()
    assert sorted(os.listdir(tmp_path)) == ["best-00000001.shards", *steps]


@pytest.mark.parametrize("how", ["flipped", "cut", "missing", "renamed"])
def test_damage_is_named_with_what_to_do(tmp_path, how):
    checkpoints = given("model:4").checkpoints(tmp_path)
    for step in (4, 8):
        save(checkpoints, step, made("model:4", seed=step))
    path = tmp_path / "step-00000008.shards" / "device-2-of-4.npz"
    data = path.read_bytes()
    if how == "flipped":
        [kernel, *_] = made("one", seed=8)
        number = np.asarray(kernel)[0, 6:7].tobytes()
        assert data.count(number) == 1
        path.write_bytes(data.replace(number, b"\x63" + number[1:]))
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "missing":
        path.unlink()
    else:
        # As many numbers, of which some are there twice and others are not.
        assert b"@0:8,6:9" in data
        path.write_bytes(data.replace(b"@0:8,6:9", b"@0:8,5:8"))
    for mesh in ("model:4", "one"):
        variables = made(mesh)
        with pytest.raises(RunError) as refused:
            given(mesh).checkpoints(tmp_path).restore(variables)
        for part in ("step-00000008.shards is damaged", "go on after step 4", "--run_"):
            assert part in str(refused.value), str(refused.value)
        # Nothing is assigned.
        assert_same(variables, made(mesh))


def test_another_model_is_refused_whole(tmp_path):
    checkpoints = given("model:4").checkpoints(tmp_path)
    save(checkpoints, 5, made("model:4", seed=1))
    variables = made("model:4")
    with given("model:4").strategy.scope():
        larger = keras.Variable(np.zeros((8, 16)), name="kernel")
    for others in (variables[:-1], [larger, *variables[1:]]):
        with pytest.raises(RunError, match="00000005.shards is of another model"):
            checkpoints.restore(others)
    assert_same(variables, made("model:4"))


def test_what_cannot_be_saved_leaves_the_checkpoints_before(tmp_path):
    checkpoints = given("model:4").checkpoints(tmp_path)
    save(checkpoints, 5, made("model:4", seed=1))
    with full_disk(100), pytest.raises(RunError, match="File too large.*Free space"):
        save(checkpoints, 10, made("model:4", seed=2))
    assert os.listdir(tmp_path) == ["step-00000005.shards"]
    variables = made("model:4", seed=2)
    variables[0].assign(np.full((8, 12), np.inf))
    checkpoints.save(10, variables)
    refused = r"step-00000010.shards was not written, for .*kernel.* is not finite"
    with pytest.raises(RunError, match=refused):
        checkpoints.steps()
    assert os.listdir(tmp_path) == ["step-00000005.shards"]


def test_what_a_kill_left_is_removed_and_not_read(tmp_path):
    run = RunDirectory(tmp_path)
    save(given("model:4").checkpoints(run.checkpoints), 5, made("model:4", seed=1))
    whole = run.checkpoints / "step-00000005.shards"
    left = run.checkpoints / ".step-00000009.shards.tmp"
    whole.rename(left)
    assert not run.is_begun() and Checkpoints(run.checkpoints).steps() == []
    with run.locked():
        assert os.listdir(run.checkpoints) == []


def test_what_a_kill_left_of_other_devices_is_no_part_of_a_checkpoint(tmp_path):
    left = tmp_path / ".step-00000005.shards.tmp"
    left.mkdir()
    (left / "device-7-of-8.npz").write_bytes(b"of another mesh")
    variables = made("model:4", seed=1)
    checkpoints = given("model:4").checkpoints(tmp_path)
    save(checkpoints, 5, variables)
    assert checkpoints.restore(variables) == 5


def test_a_device_reads_its_parts_alone(tmp_path):
    checkpoints = given("model:4").checkpoints(tmp_path)
    save(checkpoints, 5, made("model:4", seed=1))
    stored = StoredVariables(tmp_path / "step-00000005.shards")
    index = (slice(0, 8), slice(3, 6))
    stored.check("0000/kernel", index)
    assert list(stored._checked) == ["0000/kernel@0:8,3:6"]
    kernel = np.asarray(made("one", seed=1)[0])
    np.testing.assert_array_equal(stored.read("0000/kernel", index), kernel[:, 3:6])
    # Names of files come from outside.
    for name in ("0000/kernel@0:٣", "0000/kernel@9:1", "a@" + "9" * 50 + ":1", "a"):
        file = tmp_path / "step-00000005.shards" / "device-1-of-4.npz"
        np.savez(file, **{name: np.zeros(1)})
        with pytest.raises(RunError, match="is damaged"):
            checkpoints.restore(made("model:4"))
