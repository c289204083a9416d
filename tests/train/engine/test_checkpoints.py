import os
import threading

import keras
import numpy as np
import pytest
from full_disk import full_disk
from made_steps import assert_equal, values

from train.common.errors import RunError
from train.engine.checkpoints import Checkpoints
from train.models.run_directory import RunDirectory


def save(checkpoints, step, variables):
    checkpoints.save(step, variables)
    checkpoints.wait()


def filled(*numbers):
    """Returns a variable of three elements for each number."""
    return [
        keras.Variable(np.full((3,), number, "float32"), name=f"value_{index}")
        for index, number in enumerate(numbers)
    ]


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run" / "checkpoints")


def test_the_newest_two_are_kept_and_nothing_else(checkpoints):
    variables = filled(1, 2)
    assert checkpoints.steps() == [] and checkpoints.restore(variables) == 0
    assert_equal(values(variables), [[1] * 3, [2] * 3])
    for step in (5, 10, 100_000_000, 15):
        save(checkpoints, step, filled(step))
    assert checkpoints.steps() == [15, 100_000_000]
    names = sorted(os.listdir(checkpoints.folder))
    assert names == ["step-00000015.npz", "step-100000000.npz"]
    assert checkpoints.restore(variables[:1]) == 100_000_000
    assert_equal(values(variables[:1]), [[1e8] * 3])
    # In bfloat16 too, which NumPy does not have.
    half = keras.Variable([0.5, -3.0, 1.0], dtype="bfloat16", name="value_0")
    save(checkpoints, 100_000_001, [half])
    half.assign([0.0] * 3)
    checkpoints.restore([half])
    assert_equal(values([keras.ops.cast(half, "float32")]), [[0.5, -3.0, 1.0]])


def test_files_of_others_are_no_checkpoints_of_the_run(tmp_path):
    """A file manager has copied one, and a kill has left another half written."""
    run = RunDirectory(tmp_path)
    run.checkpoints.mkdir()
    names = ["step-00000008 (copy).npz", "step-8.npz", "step-000000009.npz"]
    names += ["step-last.npz", "step-00000008.npz.bak", "step-١٢٣٤٥٦٧٨.npz"]
    for name in (*names, ".step-200000000-x8k2.npz"):
        (run.checkpoints / name).touch()
    assert run.is_begun() is False and Checkpoints(run.checkpoints).steps() == []
    (run.checkpoints / "step-00000008.npz").touch()
    assert run.is_begun() and run._last_step() == 8
    assert Checkpoints(run.checkpoints).steps() == [8]


# Damage, and what is said of it


@pytest.mark.parametrize("how", ["cut", "text", "flipped"])
def test_a_damaged_file_is_named_with_what_to_do(checkpoints, how):
    save(checkpoints, 1234, filled(5))
    save(checkpoints, 1240, filled(7))
    older, path = (checkpoints.folder / f"step-0000{n}.npz" for n in (1234, 1240))
    data = path.read_bytes()
    # In the numbers, which only the checksum can tell.
    numbers = np.full(3, 7, "float32").tobytes()
    changed = {"cut": data[: len(data) // 2], "text": b"<html>"}
    changed["flipped"] = data.replace(numbers, b"\x63" + numbers[1:])
    path.write_bytes(changed[how])
    variables = filled(1)
    with pytest.raises(RunError) as refused:
        checkpoints.restore(variables)
    for part in (str(path), "delete it to go on after step 1,234", "--run_dir"):
        assert part in str(refused.value)
    assert how != "text" or "<htm" in str(refused.value)
    assert_equal(values(variables), [[1] * 3])
    path.unlink()
    assert checkpoints.restore(variables) == 1234
    older.write_bytes(b"")
    with pytest.raises(RunError, match="delete it to begin again, or pass another"):
        checkpoints.restore(variables)


def test_a_missing_or_damaged_best_is_named_with_what_to_do(checkpoints):
    variables = filled(1)
    save(checkpoints, 5, variables)
    best = checkpoints.folder / "best.npz"
    remedy = f"delete {checkpoints.folder} .*--run_dir"
    told = f"{best} is missing.*best validation: .*{remedy}"
    with pytest.raises(RunError, match=told):
        checkpoints.restore_best(variables)
    checkpoints.save_best(variables)
    checkpoints.restore_best(variables)
    best.write_bytes(best.read_bytes()[:100])
    # There is none before it to go on from.
    with pytest.raises(RunError, match=f"best.npz is damaged .*backup, or {remedy}"):
        checkpoints.restore_best(variables)


def test_another_models_file_is_refused_whole(checkpoints):
    save(checkpoints, 5, filled(1, 2))
    scale = keras.Variable(np.zeros(3, "float32"), name="value_0")
    # Fewer variables, other shapes, and the same shapes under other names.
    for others in (
        [scale],
        [scale, keras.Variable(np.zeros(4), name="value_1")],
        [scale, keras.Variable(np.zeros(3), name="offset")],
    ):
        refused = r"step-00000005.npz is of another model.*--run_dir"
        with pytest.raises(RunError, match=refused):
            checkpoints.restore(others)
        assert_equal(values([scale]), [[0] * 3])


# Values that are not finite


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_that_are_not_finite_are_not_saved(checkpoints, dtype):
    save(checkpoints, 5, filled(5))
    variables = [keras.Variable([1.0, np.inf], dtype=dtype, name="kernel")]
    refused = "kernel is not finite.*--learning_rate.*before it are kept"
    # Every later call raises the error of a save.
    for following in (
        checkpoints.steps,
        checkpoints.require_best,
        lambda: checkpoints.save_best(variables),
        lambda: checkpoints.restore(variables),
    ):
        checkpoints.save(10, variables)
        with pytest.raises(RunError, match=refused):
            following()
        assert os.listdir(checkpoints.folder) == ["step-00000005.npz"]
    checkpoints.save_best(variables)
    with pytest.raises(RunError, match=refused):
        checkpoints.wait()


def test_a_run_that_diverged_goes_on_as_it_would_have(checkpoints):
    variables = filled(0)
    np.savez(checkpoints.folder / "step-00000005.npz", **{"0000/value_0": [np.nan] * 3})
    assert checkpoints.restore(variables) == 5
    assert np.isnan(values(variables)).all()


# The disk, and the thread that writes


def test_a_failed_save_leaves_the_earlier_ones(checkpoints):
    save(checkpoints, 5, filled(5))
    before = (checkpoints.folder / "step-00000005.npz").read_bytes()
    refused = r"step-00000015.npz: File too large.*Free space.*--run_dir"
    with full_disk(len(before) - 1), pytest.raises(RunError, match=refused):
        save(checkpoints, 15, filled(15))
    [left] = checkpoints.folder.iterdir()
    assert left.read_bytes() == before


def test_a_file_has_the_variables_of_its_step_and_training_goes_on_meanwhile(
    checkpoints, monkeypatch
):
    savez, goes_on = np.savez, threading.Event()

    def slow_disk(path, **arrays):
        assert goes_on.wait(600)
        savez(path, **arrays)

    monkeypatch.setattr(np, "savez", slow_disk)
    variables = filled(1, 2)
    checkpoints.save(5, variables)
    for variable in variables:
        variable.assign(np.zeros(3))
    assert not list(checkpoints.folder.glob("step-*"))
    goes_on.set()
    assert checkpoints.restore(variables) == 5
    assert_equal(values(variables), [[1] * 3, [2] * 3])


def test_a_folder_that_cannot_be_made_or_is_gone_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="file/checkpoints.*--run_dir"):
        Checkpoints(tmp_path / "file" / "checkpoints")
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.folder.rmdir()
    with pytest.raises(RunError, match=r"step-00000001\.npz.*--run_dir"):
        save(checkpoints, 1, filled(1))
