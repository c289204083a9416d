"""Which devices are taken, and what is said where they are not there."""

import importlib.util
import json
import urllib.error

import pytest
import tensorflow as tf

from train.common import command_line
from train.common.errors import RunError
from train.engine import tensorflow_backend
from train.engine.tensorflow_backend import TensorFlowDevices

ALONE = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
CHIEF = {"cluster": {"worker": ["a:1"], "chief": ["b:1"]}}
NO_INDEX = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}
OUTSIDE = {**CHIEF, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize(
    ("environment", "count", "strategy"),
    [
        ({}, 1, "one"),
        ({}, 2, "mirrored"),
        ({"TF_CONFIG": ALONE}, 1, "one"),
        ({"TF_CONFIG": ALONE}, 2, "mirrored"),
        ({"TF_CONFIG": CHIEF}, 2, "multiworker"),
        ({"TF_CONFIG": CHIEF, "TPU_NAME": "local"}, 2, "tpu"),
    ],
)
def test_the_strategy_is_found_by_the_environment(
    monkeypatch, environment, count, strategy
):
    for name in ("TF_CONFIG", "TPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value if name == "TPU_NAME" else json.dumps(value))
    monkeypatch.setattr(tensorflow_backend, "_count_local_devices", lambda: count)
    assert tensorflow_backend._detected() == strategy


NAMELESS = ("", "{", "[]", '{"cluster": {}}', '{"cluster": {"ps": ["a:1"]}}')


@pytest.mark.parametrize(
    ("strategy", "config", "message"),
    [
        ("mirrored", "", "two devices at least.*--strategy=one"),
        *(
            ("multiworker", text, "TF_CONFIG is .*names no workers")
            for text in NAMELESS
        ),
        ("multiworker", json.dumps(NO_INDEX), "a:1, b:1 did not come together"),
        ("multiworker", json.dumps(OUTSIDE), "task 2 of 2"),
    ],
)
def test_devices_that_are_not_there_are_refused(monkeypatch, strategy, config, message):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(RunError, match=message):
        tensorflow_backend.start(strategy)


def test_a_tpu_is_started_as_documented(monkeypatch):
    calls = []

    def noted(name, result):
        return lambda *args: calls.append((name, *args)) or result

    strategy = tf.distribute.get_strategy()
    monkeypatch.setenv("TPU_NAME", "local")
    for place, name, result in (
        (tf.distribute.cluster_resolver, "TPUClusterResolver", "resolved"),
        (tf.config, "experimental_connect_to_cluster", None),
        (tf.tpu.experimental, "initialize_tpu_system", None),
        (tf.distribute, "TPUStrategy", strategy),
    ):
        monkeypatch.setattr(place, name, noted(name, result))
    assert tensorflow_backend.start("tpu").count == 1
    assert calls == [
        ("TPUClusterResolver", "local"),
        ("experimental_connect_to_cluster", "resolved"),
        ("initialize_tpu_system", "resolved"),
        ("TPUStrategy", "resolved"),
    ]


@pytest.mark.parametrize(
    "error", [ValueError("Please provide a TPU Name"), urllib.error.URLError("unknown")]
)
def test_a_tpu_that_does_not_answer_is_asked_for(monkeypatch, error):
    def resolver(_):
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(RunError, match="No TPU answers.*TPU_NAME"):
        tensorflow_backend.start("tpu")


class FourDevices(TensorFlowDevices):
    count = 4


def test_parts_of_a_batch_are_shared_by_devices():
    devices = FourDevices(tf.distribute.get_strategy())
    assert devices.micro_batches(512, 8) == 2
    assert devices.micro_batches(512, 1) == 1
    with pytest.raises(RunError, match="batch of 10 .* 4 devices .*multiple of 4"):
        devices.micro_batches(10, 1)


@pytest.mark.parametrize(
    ("backend", "installed", "message"),
    [
        ("jax", False, "pip install jax"),
        ("jax", True, None),
        ("torch", True, "'torch': unset it. Or set it to jax"),
    ],
)
def test_a_backend_that_trains_is_asked_for(monkeypatch, backend, installed, message):
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    if message is None:
        command_line.need_tensorflow_or_jax("The trainer")
        return
    with pytest.raises(SystemExit, match=message):
        command_line.need_tensorflow_or_jax("The trainer")
