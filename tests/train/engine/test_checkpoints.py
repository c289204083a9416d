import errno
import os
import random
import threading

import keras
import numpy as np
import pytest

import keras_vit
from train.common.errors import RunError
from train.engine.checkpoints import Checkpoints
from train.engine.optimizers import MomentumSGD
from train.engine.tensorflow_backend import TensorFlowTrainer
from train.models.run_directory import RunDirectory


def save(checkpoints, step, variables):
    checkpoints.save(step, variables)
    checkpoints.wait()


def save_best(checkpoints, variables):
    checkpoints.save_best(variables)
    checkpoints.wait()


def test_bfloat16_survives(tmp_path):
    variable = keras.Variable([0.1, -3.0], dtype="bfloat16", name="velocity")
    before = keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, [variable])
    variable.assign([0.0, 0.0])
    assert checkpoints.restore([variable]) == 1
    after = keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
    np.testing.assert_array_equal(after, before)
    assert variable.dtype == "bfloat16"


def trainer_of(seed=0, hidden_size=8):
    """A trainer with all that a checkpoint must hold: momentum, dropout's seeds."""
    keras.utils.set_random_seed(seed)
    config = keras_vit.ViTConfig(
        hidden_size=hidden_size, num_layers=1, num_heads=2, mlp_dim=16, patch_size=4
    )
    model = keras_vit.VisionTransformer(
        config, image_size=8, classes=3, dropout_rate=0.3
    )
    model.get_layer("head").kernel.assign_add(
        np.random.default_rng(0).normal(size=(hidden_size, 3))
    )
    return TensorFlowTrainer(model, MomentumSGD(0.1), micro_batches=2)


def train(trainer, steps, seed):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        images = rng.uniform(-1, 1, (4, 8, 8, 3)).astype("float32")
        trainer.step(images, rng.integers(0, 3, 4).astype("int32"))
    return [variable.numpy() for variable in trainer.variables]


def values(*numbers):
    return [
        keras.Variable(np.full((3,), number, "float32"), name=f"value_{index}")
        for index, number in enumerate(numbers)
    ]


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "run" / "checkpoints")


def test_a_restored_run_goes_on_to_the_bit(checkpoints):
    trainer = trainer_of()
    saved = train(trainer, 2, seed=1)
    save(checkpoints, 2, trainer.variables)
    expected = train(trainer, 2, seed=2)

    # In the same process, where Keras has given the generators other numbers.
    other = trainer_of(seed=9)
    assert checkpoints.restore(other.variables) == 2
    for variable, value in zip(other.variables, saved, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value, variable.path)
    for one, two in zip(train(other, 2, seed=2), expected, strict=True):
        np.testing.assert_array_equal(one, two)

    paths = [variable.path for variable in trainer.variables]
    assert any("seed_generator_state" in path for path in paths)
    assert any("velocity" in path for path in paths)
    assert any("iteration" in path for path in paths)
    assert int(other.optimizer.iterations) == 4


def test_without_checkpoints_nothing_changes(checkpoints):
    variables = values(1, 2)
    assert checkpoints.steps() == [] and checkpoints.restore(variables) == 0
    np.testing.assert_array_equal(variables[1].numpy(), [2, 2, 2])


def test_keeps_the_newest_two_and_nothing_else(checkpoints):
    for step in (5, 10, 100_000_000, 15):
        save(checkpoints, step, values(step))
    assert checkpoints.steps() == [15, 100_000_000]
    names = sorted(os.listdir(checkpoints.folder))
    assert names == ["step-00000015.npz", "step-100000000.npz"]
    variables = values(0)
    assert checkpoints.restore(variables) == 100_000_000
    np.testing.assert_array_equal(variables[0].numpy(), [1e8] * 3)


def test_files_of_others_are_no_checkpoints_of_the_run(tmp_path):
    """A file manager has copied one, and somebody has renamed another."""
    run = RunDirectory(tmp_path)
    run.checkpoints.mkdir()
    names = ["step-00000008 (copy).npz", "step-8.npz", "step-000000009.npz"]
    names += [
        "step-last.npz",
        "step-.npz",
        "step-00000008.npz.bak",
        "step-١٢٣٤٥٦٧٨.npz",
    ]
    for name in names:
        (run.checkpoints / name).touch()
    assert run.is_begun() is False and Checkpoints(run.checkpoints).steps() == []
    assert run._last_step() == 0
    (run.checkpoints / "step-00000008.npz").touch()
    assert run.is_begun() and run._last_step() == 8
    assert Checkpoints(run.checkpoints).steps() == [8]


def test_what_a_kill_left_half_written_is_ignored(checkpoints):
    save(checkpoints, 5, values(5))
    (checkpoints.folder / ".step-00000010-x8k2.npz").write_bytes(b"PK half")
    assert checkpoints.restore(values(0)) == 5


def damage(path, how):
    data = path.read_bytes()
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_bytes(b"<html>no checkpoint</html>")
    elif how == "flipped":
        # In the numbers, which only the checksum can tell.
        place = data.index(np.full(3, 7, "float32").tobytes())
        path.write_bytes(data[:place] + b"\x01" + data[place + 1 :])
    elif how == "compression":
        place = data.index(b"PK\x01\x02") + 10
        path.write_bytes(data[:place] + b"\x63" + data[place + 1 :])


@pytest.mark.parametrize("how", ["cut", "empty", "text", "flipped", "compression"])
def test_a_damaged_file_is_named(checkpoints, how):
    save(checkpoints, 5, values(5))
    save(checkpoints, 10, values(7))
    path = checkpoints.folder / "step-00000010.npz"
    damage(path, how)
    variables = values(1)
    with pytest.raises(RunError) as caught:
        checkpoints.restore(variables)
    message = str(caught.value)
    assert str(path) in message and "delete it" in message and "--run_dir" in message
    np.testing.assert_array_equal(variables[0].numpy(), [1, 1, 1])
    path.unlink()
    assert checkpoints.restore(variables) == 5


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_that_are_not_finite_are_not_saved(checkpoints, number, dtype):
    save(checkpoints, 5, values(5))
    variables = [keras.Variable([1.0, number], dtype=dtype, name="kernel")]
    for write, step in ((save, [10]), (save_best, [])):
        with pytest.raises(RunError) as caught:
            write(checkpoints, *step, variables)
        message = str(caught.value)
        assert "kernel is not finite" in message and "--learning_rate" in message
        assert "before it are kept" in message
    assert os.listdir(checkpoints.folder) == ["step-00000005.npz"]


def test_a_missing_or_damaged_best_is_told_with_what_helps(checkpoints):
    variables = values(1)
    save(checkpoints, 5, variables)
    with pytest.raises(RunError) as caught:
        checkpoints.restore_best(variables)
    message = str(caught.value)
    best = checkpoints.folder / "best.npz"
    assert f"{best} is missing" in message and "best validation" in message
    assert f"delete {checkpoints.folder} " in message and "--run_dir" in message
    save_best(checkpoints, variables)
    checkpoints.restore_best(variables)
    damage(best, "cut")
    with pytest.raises(RunError) as caught:
        checkpoints.restore_best(variables)
    message = str(caught.value)
    # Without it there is none before to go on from.
    assert "best.npz is damaged" in message and "the one before" not in message
    assert f"delete {checkpoints.folder} " in message


def large(number):
    """Of more than zipfile reads at once: a header is parsed before the checksum."""
    return [keras.Variable(np.full((1100,), number, "float32"), name="large")]


def check_flips(checkpoints, bits):
    """Each is one clear error, or was in what a zip archive says besides."""
    save(checkpoints, 5, large(5))
    save(checkpoints, 10, large(7))
    path = checkpoints.folder / "step-00000010.npz"
    data = path.read_bytes()
    variables = large(1)
    refused = 0
    for bit in bits(data):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            checkpoints.restore(variables)
        except RunError as error:
            message = str(error)
            assert str(path) in message and "--run_dir" in message
            assert len(message) < 1000 and message.isprintable()
            refused += 1
        else:
            np.testing.assert_array_equal(variables[0].numpy(), [7] * 1100)
    for size in range(0, len(data), 97):
        path.write_bytes(data[:size])
        with pytest.raises(RunError, match="damaged"):
            checkpoints.restore(variables)
    return refused


def test_flipped_bits_and_files_cut_short(checkpoints):
    def bits(data):
        # NumPy reads the header of an array as Python.
        start = data.index(b"{'descr'")
        header = range(8 * start, 8 * (start + 60))
        return [*random.Random(0).sample(range(8 * len(data)), 150), *header]

    assert check_flips(checkpoints, bits) > 150 + 480 - 20


@pytest.mark.soak
def test_every_flipped_bit(checkpoints):
    assert check_flips(checkpoints, lambda data: range(8 * len(data))) > 35_000


def test_the_remedy_is_one(checkpoints):
    save(checkpoints, 5, values(5))
    save_best(checkpoints, values(5))
    for path in (checkpoints.folder / "step-00000005.npz", checkpoints._best):
        damage(path, "cut")
    with pytest.raises(RunError, match="delete it to begin again, or pass another"):
        checkpoints.restore(values(1))
    with pytest.raises(RunError, match="best.npz is damaged .*copy it from a backup"):
        checkpoints.restore_best(values(1))
    save(checkpoints, 1234, values(5))
    save(checkpoints, 1240, values(5))
    damage(checkpoints.folder / "step-00001240.npz", "text")
    with pytest.raises(RunError, match=r"<htm.*delete it to go on after step 1,234"):
        checkpoints.restore(values(1))


def test_a_run_that_diverged_goes_on_as_it_would_have(checkpoints):
    save(checkpoints, 5, values(0, 0))
    path = checkpoints.folder / "step-00000005.npz"
    with np.load(path) as file:
        changed = zip(file.files, (np.nan, np.inf), strict=True)
        np.savez(path, **{key: file[key] + number for key, number in changed})
    variables = values(1, 2)
    assert checkpoints.restore(variables) == 5
    assert np.isnan(variables[0].numpy()).all() and np.isinf(variables[1].numpy()).all()


def test_nothing_is_unpickled(checkpoints, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    variables = values(5)
    save(checkpoints, 5, variables)
    path = checkpoints.folder / "step-00000005.npz"
    with np.load(path) as file:
        (key,) = file.files
    np.savez(path, **{key: np.array([Trap()] * 3, dtype=object)})
    with pytest.raises(RunError, match="damaged.*pickled"):
        checkpoints.restore(variables)
    assert not (tmp_path / "sprung").exists()
    with np.load(path, allow_pickle=True) as file:
        assert len(file[key]) == 3
    assert (tmp_path / "sprung").exists(), "the trap would have sprung"


def test_another_models_file_is_refused_whole(checkpoints):
    save(checkpoints, 5, trainer_of().variables)
    other = trainer_of(hidden_size=12)
    before = [variable.numpy() for variable in other.variables]
    with pytest.raises(RunError) as caught:
        checkpoints.restore(other.variables)
    message = str(caught.value)
    assert "step-00000005.npz" in message and "another model" in message
    assert "--run_dir" in message
    for variable, value in zip(other.variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_the_same_shapes_under_other_names_are_another_model(checkpoints):
    save(checkpoints, 5, [keras.Variable(np.zeros(3), name="scale")])
    with pytest.raises(RunError, match="another model"):
        checkpoints.restore([keras.Variable(np.zeros(3), name="offset")])


def test_a_failed_save_leaves_the_earlier_ones(checkpoints, monkeypatch):
    for step in (5, 10):
        save(checkpoints, step, values(step))
    before = {path: path.read_bytes() for path in checkpoints.folder.iterdir()}

    def full_disk(path, **arrays):
        path.write_bytes(b"PK half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(RunError) as caught:
        save(checkpoints, 15, values(15))
    message = str(caught.value)
    assert "step-00000015.npz" in message and "No space left" in message
    assert "Free space" in message and "--run_dir" in message
    after = {path: path.read_bytes() for path in checkpoints.folder.iterdir()}
    assert after == before


def test_a_file_has_the_variables_of_its_step_and_training_goes_on_meanwhile(
    checkpoints, monkeypatch
):
    savez, goes_on = np.savez, threading.Event()

    def slow_disk(path, **arrays):
        assert goes_on.wait(600)
        savez(path, **arrays)

    monkeypatch.setattr(np, "savez", slow_disk)
    variables = trainer_of().variables
    before = [variable.numpy() for variable in variables]
    checkpoints.save(5, variables)
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    assert not list(checkpoints.folder.glob("step-*"))
    goes_on.set()
    assert checkpoints.steps() == [5]
    assert checkpoints.restore(variables) == 5
    for variable, value in zip(variables, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_a_failed_save_is_raised_by_whatever_comes_next(checkpoints):
    for following in (
        checkpoints.steps,
        checkpoints.require_best,
        lambda: checkpoints.save(6, values(6)),
        lambda: checkpoints.restore(values(6)),
    ):
        checkpoints.save(5, values(np.nan))
        with pytest.raises(RunError, match=r"step-00000005\.npz was not written"):
            following()
        assert checkpoints.steps() == []


def test_a_folder_that_cannot_be_made_or_is_gone_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="file/checkpoints.*--run_dir"):
        Checkpoints(tmp_path / "file" / "checkpoints")
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.folder.rmdir()
    with pytest.raises(RunError, match=r"step-00000001\.npz.*--run_dir"):
        save(checkpoints, 1, values(1))
