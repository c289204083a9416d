"""Every backend trains the same model on any devices, and passes the same tests."""

import functools
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import quick_xla

from keras_vit.models.base import Model
from train.engine.checkpoints import StoredVariables

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
# On Keras's backend these tests are run by themselves.
SAME_TESTS = {
    "torch": ["test_optimizers.py"],
    "jax": [
        *("test_optimizers.py", "test_step.py", "test_jax_step.py"),
        *("test_sharded_step.py", "test_sharded_checkpoints.py"),
    ],
}
MESHES = {
    "tensorflow": ["one:whole,adam", "mirrored:whole,parts"],
    "jax": ["one:whole,dropout,adam", "mirrored:parts,dropout"],
}
# Parts of each array's largest value, after ten steps in float32: sums are in another
# order, and another backend has other kernels for softmax, norms and GELU. TensorFlow
# in other micro-batches is 1.3e-6 off itself.
SAME, OTHER = 5e-6, 1e-5
DIGITS = ["--dataset=digits", "--steps=3000", "--batch_size=16", "--checkpoint_every=5"]


def started(*command, backend="tensorflow", **environment):
    environment |= {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, code=0):
    try:
        stdout, stderr = process.communicate(timeout=900)
    finally:
        process.kill()
    assert process.returncode == code, stdout[-5000:] + stderr[-3000:]
    return stdout, stderr


def run(*command, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    # Compile quickly, as it runs a few times only.
    flags = quick_xla.flags("--xla_force_host_platform_device_count=4")
    return ended(started(*command, backend=backend, XLA_FLAGS=flags))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", sorted(SAME_TESTS.keys() - {keras.backend.backend()})
)
def test_other_backends_pass_the_same_tests(backend):
    # Names are the same on every backend.
    chosen = ["-m", "not slow", "-k", "not released_pattern"]
    files = [HERE / name for name in SAME_TESTS[backend]]
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *chosen]
    output = run(*words, backend=backend)
    assert " passed" in output and "skipped" not in output


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """Returns the folder of what a backend makes of the same batches."""

    @functools.cache
    def folder_of(backend):
        folder = tmp_path_factory.mktemp(backend)
        meshes = [HERE / "mesh_steps.py", folder, *MESHES[backend]]
        run(*meshes, backend=backend)
        return folder

    return folder_of


def checkpoint(folder):
    with np.load(folder / "step-00000010.npz") as file:
        return {key: file[key] for key in file.files}


def assert_close(found, expected, tolerance):
    arrays, wanted = checkpoint(found), checkpoint(expected)
    # Either backend can read the other's.
    assert arrays.keys() == wanted.keys()
    squares = np.zeros(2)
    for key, array in wanted.items():
        assert arrays[key].shape == array.shape
        if "key/bias" in key or "key_bias" in key or "seed_generator" in key:
            # Softmax does not see the keys' bias: its gradient is rounding alone.
            continue
        difference = arrays[key].astype("float64") - array
        assert np.abs(difference).max() <= tolerance * np.abs(array).max(), key
        squares += np.square(difference).sum(), np.square(array).sum()
    assert squares[0] ** 0.5 <= tolerance / 5 * squares[1] ** 0.5
    found, expected = np.load(f"{found}.npz"), np.load(f"{expected}.npz")
    assert expected["loss"].min() < expected["loss"][0]
    # Every image of the split, once, in its order, and the numbers of each step.
    assert len(expected["labels"]) == 40
    for key in expected.files:
        np.testing.assert_allclose(found[key], expected[key], rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "found", "other", "expected", "tolerance"),
    [
        ("tensorflow", "mirrored/whole", "tensorflow", "one/whole", SAME),
        ("tensorflow", "mirrored/parts", "tensorflow", "one/whole", SAME),
        ("jax", "mirrored/parts", "jax", "one/whole", SAME),
        # Random numbers do not depend on the devices.
        ("jax", "mirrored/dropout", "jax", "one/dropout", SAME),
        ("jax", "one/whole", "tensorflow", "one/whole", OTHER),
        ("jax", "one/adam", "tensorflow", "one/adam", OTHER),
    ],
)
def test_the_same_weights_on_any_devices(
    steps, backend, found, other, expected, tolerance
):
    assert_close(steps(backend) / found, steps(other) / expected, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "fewest", "most"), [("one", 0, 0), ("mirrored", 1, 3)]
)
def test_between_steps_only_the_next_batch_is_fetched(steps, mesh, fewest, most):
    [path] = (steps("tensorflow") / mesh / "trace").rglob("*.xplane.pb")
    trace = path.read_bytes()
    # Python asked for these one by one: no collective, no copy, nothing of metrics.
    asked = set(re.findall(rb"EagerLocalExecute: (\w+)", trace))
    names = {re.sub(rb"_\d+$", b"", name) for name in asked}
    assert names == {b"IteratorGetNext", b"__inference_step"}
    # The graph of the step reduces all gradients in a few pieces.
    pieces = set(re.findall(rb"\bCollectiveReduceV2(?:_\d+)?\b", trace))
    assert fewest <= len(pieces) <= most, pieces


@pytest.mark.slow
def test_devices_of_tensorflow_draw_numbers_of_their_own(steps):
    states = np.load(steps("tensorflow") / "mirrored" / "seeds.npy")
    assert len(states) == 2
    assert len({state.tobytes() for state in states}) == 2


# Several processes


def workers(*command, count=2):
    """Starts a command on so many workers of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    configs = [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
    return [started(*command, TF_CONFIG=config) for config in configs]


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_the_same_weights_from_several_processes(steps, tmp_path, count):
    command = HERE / "mesh_steps.py", tmp_path, "multiworker:whole,parts"
    for process in workers(*command, count=count):
        ended(process)
    for case in ("whole", "parts"):
        first = tmp_path / "multiworker-0" / case
        assert_close(first, steps("tensorflow") / "one/whole", SAME)
        for worker in range(1, count):
            other = checkpoint(tmp_path / f"multiworker-{worker}" / case)
            for key, array in checkpoint(first).items():
                if "seed_generator" not in key:
                    np.testing.assert_array_equal(other[key], array, err_msg=key)


@pytest.mark.soak
@pytest.mark.parametrize(("mesh", "devices"), [("data:2,model:2", 4), ("model:2", 2)])
def test_two_processes_with_parts_of_a_model_end_as_one(tmp_path, mesh, devices):
    """In the second case each process has half of the model."""
    words = ["--dataset=digits", "--smoke", "--dropout_rate=0", "--early_stopping=2"]
    words += ["--strategy=sharded", f"--mesh={mesh}"]

    def processes(count):
        with socket.create_server(("127.0.0.1", 0)) as one:
            address = f"127.0.0.1:{one.getsockname()[1]}"
        flag = f"--xla_force_host_platform_device_count={devices // count}"
        names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
        for number in range(count):
            joined = zip(names, (address, str(count), str(number)), strict=True)
            yield started(
                *("-m", "train.finetune", *words, f"--run_dir={tmp_path / str(count)}"),
                backend="jax",
                XLA_FLAGS=quick_xla.flags(flag),
                **(dict(joined) if count > 1 else {}),
            )

    [(told, _)] = [ended(process) for process in processes(1)]
    (first, _), (second, _) = [ended(process) for process in [*processes(2)]]
    for text in (told, first):
        assert f"on {devices} devices" in text and "test accuracy" in text
    assert "test accuracy" not in second
    one, two = (
        StoredVariables(tmp_path / count / "checkpoints" / "step-00000008.shards")
        for count in ("1", "2")
    )
    assert one.shapes == two.shapes
    for key, shape in one.shapes.items():
        index = (slice(None),) * len(shape)
        one.check(key, index)
        two.check(key, index)
        arrays = one.read(key, index), two.read(key, index)
        np.testing.assert_allclose(*arrays, rtol=0, atol=1e-6, err_msg=key)
    reports = [
        json.loads((tmp_path / count / "report.json").read_text())["test_loss"]
        for count in ("1", "2")
    ]
    assert reports[0] == pytest.approx(reports[1], abs=1e-6)
    models = [
        keras.saving.load_model(tmp_path / count / "model.keras")
        for count in ("1", "2")
    ]
    assert all(isinstance(model, Model) for model in models)
    for arrays in zip(*[model.get_weights() for model in models], strict=True):
        np.testing.assert_allclose(*arrays, rtol=0, atol=1e-6)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("model", "mesh", "parameters"),
    [
        ("ViT-H_14", "data:2,model:4", 632_045_800),
        ("ViT-H_14", "model:8", 632_045_800),
        ("giant", "data:2,model:4", 1_012_611_432),
    ],
)
def test_large_models_are_cut_into_even_parts(model, mesh, parameters):
    flags = quick_xla.flags("--xla_force_host_platform_device_count=8")
    command = HERE / "held_bytes.py", model, mesh
    told, _ = ended(started(*command, backend="jax", XLA_FLAGS=flags))
    found = json.loads(told.splitlines()[-1])
    print(model, mesh, found)
    assert found["parameters"] == parameters
    # Weights and momentum, and the state of nothing else.
    assert 8 * parameters <= found["bytes"] <= 8 * parameters + 1000
    assert len(found["held"]) == 8
    assert max(found["held"].values()) <= 1.05 * found["bytes"] / 8
    # A step needs less than the variables of a whole model.
    assert found["step"] < 0.6 * found["bytes"]


@pytest.mark.soak
def test_a_lost_worker_ends_the_run_which_goes_on(tmp_path):
    command = "-m", "train.finetune", *DIGITS, f"--run_dir={tmp_path}/run"

    def newest():
        paths = (tmp_path / "run" / "checkpoints").glob("step-*.npz")
        return max((int(path.stem[5:]) for path in paths), default=0)

    def ended_after_a_step(number):
        """Sends the second worker a signal after a step; returns what they print."""
        first, second = workers(*command)
        before = newest()
        try:
            while newest() == before and first.poll() is None:
                time.sleep(0.2)
            second.send_signal(number)
            if number == signal.SIGKILL:
                return [ended(first, code=1)]
            return [ended(process) for process in (first, second)]
        finally:
            first.kill()
            second.kill()

    [(_, stderr)] = ended_after_a_step(signal.SIGKILL)
    before, told, _ = stderr.partition("error: Another worker of this run ended")
    # TensorFlow's pool of threads may say more at the exit.
    assert told and "Traceback" not in before
    done = newest()
    # A signal to one of them stops both after the same step.
    outputs = ended_after_a_step(signal.SIGTERM)
    assert f"going on after step {done}" in outputs[0][0].replace(",", "")
    # TensorFlow's pool of threads may have the last words here, too.
    stops = [re.search(r"Stopped by SIGTERM after .*", said) for _, said in outputs]
    assert stops[0] and stops[0][0] == stops[1][0]
