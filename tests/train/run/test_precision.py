"""--precision=auto: what is chosen, and that a run keeps it."""

import json

import keras
import pytest
import tensorflow as tf

from train.common.errors import RunError
from train.engine import bfloat16
from train.engine.bfloat16 import of_accelerators
from train.run import training
from zoo.common import machine


def test_a_run_keeps_what_it_began_with(short_recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: True)
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.8)
    auto = short_recipe.override(precision="auto", micro_batches=1)
    training.run(auto.override(steps=1), run_dir=tmp_path)
    assert "precision mixed_bfloat16, as this " in capsys.readouterr().out
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["precision"] == "mixed_bfloat16"
    model = keras.saving.load_model(tmp_path / "model.keras")
    policy = model.get_layer("encoder_block_0").dtype_policy
    assert policy.name == "mixed_bfloat16"

    # On a machine that has another answer it goes on as it began.
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.1)
    assert bfloat16.of_processor()[0] is False
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: False)
    assert bfloat16.of_processor()[0] is False
    training.run(auto, run_dir=tmp_path, extend=True)
    told = "precision mixed_bfloat16, with which the run began"
    assert told in capsys.readouterr().out
    with pytest.raises(RunError, match="other settings: .*precision"):
        training.run(auto.override(precision="float32"), run_dir=tmp_path)


def test_the_gain_is_of_both_products(monkeypatch):
    """A product in bfloat16 that takes ten times as long is seen."""
    multiply, now = tf.matmul, [0]

    def slow(left, right):
        now[0] += 10 if left.dtype == tf.bfloat16 else 1
        return multiply(left[:2], right[:, :2])

    monkeypatch.setattr(tf, "function", lambda function, **_: slow)
    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: now[0])
    assert bfloat16.bfloat16_gain() == 0.1


def test_accelerators():
    for capabilities, has_it, reason in (
        ([], True, "TPUs"),
        ([(9, 0), (8, 0)], True, "8.0 multiply"),
        ([(9, 0), (7, 5)], False, "7.5 do not"),
        ([(9, 0), None], False, "not known"),
    ):
        found, why = of_accelerators(capabilities)
        assert found is has_it and reason in why
