"""The trainer under the JAX backend, on one device and on four."""

import collections
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import quick_xla
from jax_steps import save_steps

from train.common import command_line
from train.engine.devices import alone

ROOT = pathlib.Path(__file__).parents[3]
CHECKS = pathlib.Path(__file__).with_name("jax_checks.py")
# Of each array's largest value, after ten steps in float32: sums in another order,
# and in TensorFlow other kernels for softmax, norms and GELU. TensorFlow in other
# micro-batches is 1.3e-6 off itself.
AMONG_JAX = 5e-6
TO_TENSORFLOW = 1e-5

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None,
    reason="JAX is not installed: pip install jax",
)


def run(*command, devices=1, code=0, **more):
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        # What is run a few times is compiled quickly.
        "XLA_FLAGS": quick_xla.flags(
            f"--xla_force_host_platform_device_count={devices}"
        ),
        "PYTHONPATH": str(ROOT),
        **more,
    }
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Ten steps with each backend, on one device and on four, and two runs."""
    folder = tmp_path_factory.mktemp("steps")
    # The same step is compiled once.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    for name in ("1", "4", "tensorflow"):
        (folder / name).mkdir()
    assert "what_cannot_be_is_told" in run(CHECKS, folder, devices=4, **cache).stdout
    save_steps(alone(), folder / "tensorflow", ["whole", "adam"])
    for name, count in (("1", 1), ("4", 4), ("tensorflow", 1)):
        for path in (folder / name).glob("*.npz"):
            assert np.load(path)["devices"] == count
    return folder


def checkpoint(folder, step=10):
    with np.load(folder / f"step-{step:08d}.npz") as file:
        return {key: file[key] for key in file.files}


def assert_close(steps, one, other, tolerance):
    found, expected = checkpoint(steps / one), checkpoint(steps / other)
    # Either backend can read the other's.
    assert found.keys() == expected.keys()
    assert {key: found[key].shape for key in found} == {
        key: expected[key].shape for key in expected
    }
    for key, array in expected.items():
        if "key/bias" in key or "key_bias" in key or "seed_generator" in key:
            # Softmax does not see the keys' bias: its gradient is rounding alone.
            continue
        difference = np.abs(found[key].astype("float64") - array).max()
        assert difference <= tolerance * np.abs(array).max(), (key, difference)
    found, expected = (np.load(steps / f"{name}.npz") for name in (one, other))
    assert expected["loss"].min() < expected["loss"][0]
    for key in expected.files:
        if key != "devices":
            np.testing.assert_allclose(
                found[key], expected[key], rtol=0, atol=1e-5, err_msg=key
            )
    # Every image of the split, once, in its order.
    np.testing.assert_array_equal(found["labels"], expected["labels"])
    assert len(found["labels"]) == 40


@needs_jax
@pytest.mark.slow
def test_the_same_weights_on_one_device_and_in_parts_on_four(steps):
    assert_close(steps, "4/parts", "1/whole", AMONG_JAX)


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("case", ["whole", "adam"])
def test_the_same_weights_as_tensorflow(steps, case):
    assert_close(steps, f"1/{case}", f"tensorflow/{case}", TO_TENSORFLOW)


@needs_jax
@pytest.mark.slow
def test_random_numbers_do_not_depend_on_the_devices(steps):
    assert_close(steps, "4/dropout", "1/dropout", AMONG_JAX)
    dropped, whole = checkpoint(steps / "1/dropout"), checkpoint(steps / "1/whole")
    assert np.abs(dropped["0000/embedding/kernel"]).sum() > 0
    assert (dropped["0000/embedding/kernel"] != whole["0000/embedding/kernel"]).any()


@needs_jax
@pytest.mark.slow
def test_the_command_goes_on_to_the_bit(steps):
    stdout = (steps / "whole.txt").read_text()
    assert "on 4 devices" in stdout and "on 128 test images" in stdout
    assert (steps / "whole" / "weights.npz").is_file()
    assert "going on after step 4" in (steps / "resumed.txt").read_text()
    whole, resumed = (
        checkpoint(steps / name / "checkpoints", 8) for name in ("whole", "resumed")
    )
    assert whole.keys() == resumed.keys()
    for key, array in resumed.items():
        np.testing.assert_array_equal(array, whole[key], err_msg=key)
    reports = [
        json.loads((steps / name / "report.json").read_text())
        for name in ("whole", "resumed")
    ]
    assert reports[0]["test_loss"] == reports[1]["test_loss"]


@needs_jax
@pytest.mark.slow
def test_input_logs_validation_and_checkpoints_hide_behind_a_slow_device(tmp_path):
    # Validation and test have four batches each. The device is idle before the first of
    # each kind, before the step after the checkpoint, and where the last is waited for;
    # one more of each for a processor that was busy elsewhere.
    limits = {"step": (12, 9), "log": (12, 9), "input": (1, 1)}
    limits |= {"validation": (8, 5), "answers": (8, 5)}
    # Batches of some 0.1 seconds, and of some 1 second for a busy machine.
    for rounds in (6_000_000, 60_000_000):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        run(CHECKS.with_name("slow_device.py"), folder, rounds)
        counts = collections.Counter((folder / "events.txt").read_text().splitlines())
        for name, (total, _) in limits.items():
            assert counts[f"{name} idle"] + counts[f"{name} busy"] == total, counts
        if counts["file behind step"] == 2 and all(
            counts[f"{name} busy"] >= least for name, (_, least) in limits.items()
        ):
            return
    pytest.fail(str(counts))


def test_jax_that_is_not_installed_is_asked_for(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"pip install jax"):
        command_line.need_tensorflow_or_jax("The trainer")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    command_line.need_tensorflow_or_jax("The trainer")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    with pytest.raises(SystemExit, match="'torch': unset it. Or set it to jax"):
        command_line.need_tensorflow_or_jax("The trainer")
