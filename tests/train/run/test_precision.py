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


@pytest.mark.parametrize("has_it", [True, False])
def test_a_run_keeps_what_it_began_with(
    has_it, short_recipe, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: True)
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.8 if has_it else 0.6)
    wanted, other = ("mixed_bfloat16", "float32")[:: 1 if has_it else -1]
    auto = short_recipe.override(precision="auto", micro_batches=1)
    training.run(auto.override(steps=1), run_dir=tmp_path)
    assert f"precision {wanted}, as this " in capsys.readouterr().out
    assert json.loads((tmp_path / "config.json").read_text())["precision"] == wanted
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.get_layer("encoder_block_0").dtype_policy.name == wanted

    # On a machine that has another answer it goes on as it began.
    monkeypatch.setattr(bfloat16, "bfloat16_gain", lambda: 1.0)
    monkeypatch.setattr(machine, "computes_bfloat16", lambda: not has_it)
    training.run(auto, run_dir=tmp_path, extend=True)
    assert f"precision {wanted}, with which the run began" in capsys.readouterr().out
    with pytest.raises(RunError, match="other settings: .*precision"):
        training.run(auto.override(precision=other), run_dir=tmp_path)


def test_the_gain_is_of_both_products(monkeypatch):
    """A product in bfloat16 that takes ten times as long is seen."""
    multiply, now = tf.matmul, [0]

    def slow(left, right):
        now[0] += 10 if left.dtype == tf.bfloat16 else 1
        return multiply(left[:2], right[:, :2])

    monkeypatch.setattr(tf, "function", lambda function, **_: slow)
    monkeypatch.setattr(bfloat16.time, "perf_counter", lambda: now[0])
    assert bfloat16.bfloat16_gain() == 0.1


@pytest.mark.parametrize(
    ("capabilities", "has_it", "reason"),
    [
        ([], True, "TPUs"),
        ([(9, 0), (8, 0)], True, "8.0 multiply"),
        ([(9, 0), (7, 5)], False, "7.5 do not"),
        ([(9, 0), None], False, "not known"),
    ],
)
def test_accelerators(capabilities, has_it, reason):
    found, why = of_accelerators(capabilities)
    assert found is has_it and reason in why
