"""One device, several, and several processes train the same model."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error

import numpy as np
import pytest
import tensorflow as tf

from train.common.errors import RunError
from train.engine import tensorflow_backend
from train.engine.tensorflow_backend import TensorFlowDevices

ROOT = pathlib.Path(__file__).parents[3]
STEPS = pathlib.Path(__file__).with_name("tensorflow_steps.py")
# Sums in another order: after five steps of the whole, in float32.
TOLERANCE = 1e-6

DIGITS = ["--dataset=digits", "--steps=30", "--batch_size=16", "--checkpoint_every=5"]


def started(command, **environment):
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", **environment}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process, code=0):
    try:
        stdout, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == code, stderr[-3000:]
    return stdout, stderr


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def workers(command, count=2):
    """Starts a command on so many workers of this machine."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    return [
        started(
            command,
            TF_CONFIG=json.dumps(
                {
                    "cluster": {"worker": addresses},
                    "task": {"type": "worker", "index": index},
                }
            ),
        )
        for index in range(count)
    ]


def weights(file):
    return np.concatenate(
        [file[key].astype("float64").ravel() for key in file.files if key.isdigit()]
    )


def assert_same(path, expected):
    file = np.load(path)
    difference = np.linalg.norm(weights(file) - weights(expected))
    assert difference <= TOLERANCE * np.linalg.norm(weights(expected))
    for name in ("losses", "norms", "accuracies", "probabilities", "loss"):
        np.testing.assert_allclose(
            file[name], expected[name], rtol=0, atol=1e-5, err_msg=name
        )
    # Every image of the split, once, in its order.
    np.testing.assert_array_equal(file["labels"], expected["labels"])


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """What one and two devices make of the same batches."""
    folder = tmp_path_factory.mktemp("steps")
    ended(started([STEPS, folder, 2]))
    whole = np.load(folder / "0-1-1.npz")
    assert len(whole["labels"]) == 40
    assert whole["losses"].min() < whole["losses"][0]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", ["2-1", "2-2"])
def test_the_same_weights(steps, case):
    assert_same(steps / f"0-{case}.npz", np.load(steps / "0-1-1.npz"))


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "fewest", "most"), [(1, 0, 0), (2, 1, 3)])
def test_between_steps_only_the_next_batch_is_fetched(steps, devices, fewest, most):
    [path] = (steps / f"trace-{devices}").rglob("*.xplane.pb")
    trace = path.read_bytes()
    # What Python asked for, one by one: no collective, no copy, nothing of metrics.
    asked = set(re.findall(rb"EagerLocalExecute: (\w+)", trace))
    assert {re.sub(rb"_\d+$", b"", name) for name in asked} == {
        b"IteratorGetNext",
        b"__inference_step",
    }
    # Those in the graph of the step: all gradients are in a few pieces.
    pieces = set(re.findall(rb"\bCollectiveReduceV2(?:_\d+)?\b", trace))
    assert fewest <= len(pieces) <= most, pieces


@pytest.mark.slow
def test_devices_draw_numbers_of_their_own(steps):
    states = np.load(steps / "seeds.npz")["seed_states"]
    assert len(states) == 2
    assert len({state.tobytes() for state in states}) == 2


@pytest.mark.soak
@pytest.mark.parametrize("count", [2, 4])
def test_the_same_weights_from_several_processes(steps, tmp_path, count):
    for process in workers([STEPS, tmp_path, "worker"], count):
        ended(process)
    for parts in (1, 4):
        first, *others = (np.load(tmp_path / f"{i}-{parts}.npz") for i in range(count))
        for other in others:
            np.testing.assert_array_equal(weights(first), weights(other))
        assert_same(tmp_path / f"0-{parts}.npz", np.load(steps / "0-1-1.npz"))


@pytest.mark.soak
def test_a_lost_worker_ends_the_run_which_goes_on(tmp_path):
    flags = [*DIGITS, f"--run_dir={tmp_path}/run", "--steps=3000"]
    checkpoints = tmp_path / "run" / "checkpoints"
    first, second = workers(["-m", "train.finetune", *flags])
    try:
        while not list(checkpoints.glob("step-*.npz")) and first.poll() is None:
            time.sleep(0.2)
        second.send_signal(signal.SIGKILL)
        _, stderr = ended(first, code=1)
    finally:
        first.kill()
        second.kill()
    before, told, _ = stderr.partition("error: Another worker of this run ended")
    # What TensorFlow's pool of threads may say at the exit comes after it.
    assert told and "Traceback" not in before
    done = max(int(path.stem[5:]) for path in checkpoints.glob("step-*.npz"))

    # Again: a signal to one of them stops both after the same step.
    first, second = workers(["-m", "train.finetune", *flags])
    try:
        newest = done
        while newest == done and first.poll() is None:
            time.sleep(0.2)
            newest = max(int(path.stem[5:]) for path in checkpoints.glob("step-*.npz"))
        second.send_signal(signal.SIGTERM)
        outputs = [ended(process) for process in (first, second)]
    finally:
        first.kill()
        second.kill()
    assert f"going on after step {done}" in outputs[0][0].replace(",", "")
    # TensorFlow's pool of threads may have the last words here, too.
    stops = [re.search(r"Stopped by SIGTERM after .*", said) for _, said in outputs]
    assert stops[0] and stops[0][0] == stops[1][0]


def test_what_is_detected(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    assert tensorflow_backend._detected() == "one"
    monkeypatch.setattr(tensorflow_backend, "_count_local_devices", lambda: 2)
    assert tensorflow_backend._detected() == "mirrored"
    alone = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(alone))
    assert tensorflow_backend._detected() == "mirrored"
    alone["cluster"]["chief"] = ["b:1"]
    monkeypatch.setenv("TF_CONFIG", json.dumps(alone))
    assert tensorflow_backend._detected() == "multiworker"
    monkeypatch.setenv("TPU_NAME", "local")
    assert tensorflow_backend._detected() == "tpu"


def test_devices_that_are_not_there(monkeypatch):
    with pytest.raises(RunError, match="two devices at least.*--strategy=one"):
        tensorflow_backend.start("mirrored")
    for text in ("", "{", "[]", '{"cluster": {}}', '{"cluster": {"ps": ["a:1"]}}'):
        monkeypatch.setenv("TF_CONFIG", text)
        with pytest.raises(RunError, match="TF_CONFIG is .*names no workers"):
            tensorflow_backend.start("multiworker")
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    with pytest.raises(RunError, match="a:1, b:1 did not come together"):
        tensorflow_backend.start("multiworker")


def test_a_tpu_is_started_as_documented(monkeypatch):
    calls = []

    def resolver(name):
        calls.append(("resolver", name))
        return "resolved"

    def strategy(resolved):
        calls.append(("strategy", resolved))
        return tf.distribute.get_strategy()

    monkeypatch.setenv("TPU_NAME", "local")
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    monkeypatch.setattr(
        tf.config,
        "experimental_connect_to_cluster",
        lambda resolved: calls.append(("connect", resolved)),
    )
    monkeypatch.setattr(
        tf.tpu.experimental,
        "initialize_tpu_system",
        lambda resolved: calls.append(("initialize", resolved)),
    )
    monkeypatch.setattr(tf.distribute, "TPUStrategy", strategy)
    assert tensorflow_backend.start("tpu").count == 1
    assert calls == [
        ("resolver", "local"),
        ("connect", "resolved"),
        ("initialize", "resolved"),
        ("strategy", "resolved"),
    ]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("Please provide a TPU Name to connect to."),
        urllib.error.URLError("Name or service not known"),
    ],
)
def test_no_tpu(monkeypatch, error):
    def resolver(_):
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(RunError, match="No TPU answers.*TPU_NAME"):
        tensorflow_backend.start("tpu")


class FourDevices(TensorFlowDevices):
    count = 4


def test_parts_of_a_batch():
    devices = FourDevices(tf.distribute.get_strategy())
    assert devices.micro_batches(512, 8) == 2
    assert devices.micro_batches(512, 1) == 1
    with pytest.raises(RunError, match="batch of 10 .* 4 devices .*multiple of 4"):
        devices.micro_batches(10, 1)
