"""Which devices are taken, and what is said where they are not there."""

import importlib.util
import json
import types
import urllib.error
from unittest import mock

import keras
import pytest
import tensorflow as tf
from in_process import run_command

from train.common import command_line
from train.common.errors import RunError
from train.engine import devices, tensorflow_backend
from train.engine.tensorflow_backend import TensorFlowDevices

ALONE = {"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}
CHIEF = {"cluster": {"worker": ["a:1"], "chief": ["b:1"]}}
NO_INDEX = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker"}}
OUTSIDE = {**CHIEF, "task": {"type": "worker", "index": 1}}
BEYOND = {**NO_INDEX, "task": {"type": "worker", "index": 2}}


@pytest.mark.parametrize(
    ("environment", "count", "strategy"),
    [
        ({}, 1, "one"),
        ({}, 2, "mirrored"),
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


@pytest.mark.parametrize(
    ("strategy", "config", "message"),
    [
        ("mirrored", "", "two devices at least.*--strategy=one"),
        ("multiworker", "", "TF_CONFIG is .*names no workers"),
        ("multiworker", "[]", "TF_CONFIG is .*names no workers"),
        ("multiworker", '{"cluster": {"ps": ["a:1"]}}', "TF_CONFIG is .*no workers"),
        ("multiworker", json.dumps(NO_INDEX), "a:1, b:1 did not come together"),
        ("multiworker", json.dumps(OUTSIDE), "task 2 of 2"),
        ("multiworker", json.dumps(BEYOND), "task 2 of 2"),
    ],
)
def test_devices_that_are_not_there_are_refused(monkeypatch, strategy, config, message):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(RunError, match=message):
        tensorflow_backend.start(strategy)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="the backend is not TensorFlow"
)
def test_parts_of_a_model_need_jax():
    with pytest.raises(RunError, match="sharded is JAX's: set KERAS_BACKEND=jax"):
        devices.start("sharded", "model:4")
    with pytest.raises(RunError, match="--mesh=model:4 is for --strategy=sharded"):
        devices.start("one", "model:4")


def test_a_tpu_is_started_as_documented_or_asked_for(monkeypatch):
    calls = mock.Mock()
    calls.found.return_value = "resolved"
    calls.strategy.return_value = tf.distribute.get_strategy()
    monkeypatch.setenv("TPU_NAME", "local")
    for place, name, called in (
        (tf.distribute.cluster_resolver, "TPUClusterResolver", calls.found),
        (tf.config, "experimental_connect_to_cluster", calls.connect),
        (tf.tpu.experimental, "initialize_tpu_system", calls.initialize),
        (tf.distribute, "TPUStrategy", calls.strategy),
    ):
        monkeypatch.setattr(place, name, called)
    assert tensorflow_backend.start("tpu").count == 1
    steps = [(name, *args) for name, args, _ in calls.mock_calls]
    others = [(name, "resolved") for name in ("connect", "initialize", "strategy")]
    assert steps == [("found", "local"), *others]
    for error in (ValueError("Please provide a TPU Name"), urllib.error.URLError("x")):
        calls.found.side_effect = error
        with pytest.raises(RunError, match="No TPU answers.*TPU_NAME"):
            tensorflow_backend.start("tpu")


def test_parts_of_a_batch_are_shared_by_devices():
    four = TensorFlowDevices(types.SimpleNamespace(num_replicas_in_sync=4))
    assert four.micro_batches(512, 8) == 2
    assert four.micro_batches(512, 1) == 1
    with pytest.raises(
        RunError, match="batch of 10 .* 4 devices: pass .*multiple of 4"
    ):
        four.micro_batches(10, 1)


def test_a_backend_that_trains_is_asked_for_before_anything_is_loaded(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    told = "trainer needs TensorFlow, .*'torch': unset it. Or set it to jax"
    with pytest.raises(SystemExit, match=told):
        run_command("finetune", "none/")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: "found")
    command_line.need_tensorflow_or_jax("The trainer")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="pip install jax"):
        command_line.need_tensorflow_or_jax("The trainer")
