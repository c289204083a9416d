import errno
import json
import os

import numpy as np
import pytest

from train.common.errors import RunError
from train.engine.metrics import MetricLog


@pytest.fixture
def log(tmp_path):
    return MetricLog(tmp_path / "run" / "metrics.jsonl")


def test_nothing_logged_yet(log):
    log.rewind(10)
    assert log.records() == []
    steps, values = log.series("loss")
    assert steps.shape == values.shape == (0,)
    assert not log.path.parent.exists()


def test_round_trip_is_exact(log):
    rng = np.random.default_rng(0)
    losses = rng.normal(size=50)
    for step, loss in enumerate(losses, start=1):
        log.append(step, loss=loss, images=step * 64)
    assert log.records()[2] == {"step": 3, "loss": losses[2], "images": 192}
    steps, values = log.series("loss")
    assert steps.dtype == np.int64 and values.dtype == np.float64
    np.testing.assert_array_equal(steps, np.arange(1, 51))
    np.testing.assert_array_equal(values, losses)


def test_each_append_is_on_disk_as_one_line(log):
    for step in (1, 2):
        log.append(step, loss=0.5)
        content = log.path.read_bytes()
        assert content.endswith(b"\n") and content.count(b"\n") == step


def test_series_skips_records_without_the_metric(log):
    log.append(1, loss=2.0)
    log.append(1, val_loss=3.0)
    log.append(2, loss=1.0)
    steps, values = log.series("val_loss")
    assert steps.tolist() == [1] and values.tolist() == [3.0]


def test_scalars_of_every_kind(log):
    class Tensor:
        def __float__(self):
            return 0.25

    log.append(
        np.int64(7),
        a=np.float32(0.5),
        b=np.int32(3),
        c=np.array(1.5),
        d=Tensor(),
        e=True,
    )
    line = json.loads(log.path.read_text())
    assert line == {"step": 7, "a": 0.5, "b": 3, "c": 1.5, "d": 0.25, "e": 1}


@pytest.mark.parametrize("value", [float("nan"), np.inf, np.float32("-inf")])
def test_non_finite_values_are_named_and_leave_the_log_alone(log, value):
    log.append(1, loss=1.0)
    before = log.path.read_bytes()
    with pytest.raises(ValueError, match=r"'gradient_norm' at step 2 is .*(nan|inf)"):
        log.append(2, loss=1.0, gradient_norm=value)
    assert log.path.read_bytes() == before


@pytest.mark.parametrize("value", ["high", None, np.zeros(3)])
def test_values_that_are_no_scalars_are_not_written(log, value):
    with pytest.raises((TypeError, ValueError)):
        log.append(1, loss=value)
    assert not log.path.exists()


def test_rewind_drops_later_records_only(log):
    for step in range(1, 11):
        log.append(step, loss=1 / step)
    log.append(5, val_loss=0.5)
    lines = log.path.read_bytes().splitlines(keepends=True)
    log.rewind(5)
    assert log.path.read_bytes() == b"".join(lines[:5] + lines[10:])
    log.append(6, loss=0.1)
    assert [record["step"] for record in log.records()] == [1, 2, 3, 4, 5, 5, 6]
    assert os.listdir(log.path.parent) == ["metrics.jsonl"]


@pytest.mark.parametrize("torn", [b'{"step": 3, "lo', b"{", b"\x00\x00\x00\xff"])
@pytest.mark.parametrize("repair", ["records", "rewind", "append"])
def test_torn_last_line(log, torn, repair):
    log.append(1, loss=1.0)
    log.append(2, loss=0.5)
    with open(log.path, "ab") as file:
        file.write(torn)
    assert [record["step"] for record in log.records()] == [1, 2]
    if repair == "rewind":
        log.rewind(2)
        assert log.path.read_bytes().endswith(b"0.5}\n")
    elif repair == "append":
        log.append(3, loss=0.25)
        assert log.series("loss")[1].tolist() == [1.0, 0.5, 0.25]


def test_only_a_torn_line(log):
    log.append(1, loss=1.0)
    log.path.write_bytes(b'{"step"')
    assert log.records() == []
    log.append(1, loss=2.0)
    assert log.records() == [{"step": 1, "loss": 2.0}]


@pytest.mark.parametrize(
    "line",
    [
        "oops",
        "[1, 2]",
        '{"loss": 1.0}',
        "7",
        '{"step": 1e999}',
        '{"step": 1, "loss": "x"}',
        '{"step": 1, "loss": [2]}',
        "[" * 100_000,
    ],
)
def test_a_broken_line_in_the_middle_is_named(log, line):
    log.append(1, loss=1.0)
    with open(log.path, "a") as file:
        file.write(line + "\n")
    log.append(3, loss=1.0)
    with pytest.raises(RunError, match=r"metrics\.jsonl, line 2: not a record"):
        log.records()
    before = log.path.read_bytes()
    with pytest.raises(RunError, match="line 2"):
        log.rewind(1)
    assert log.path.read_bytes() == before


def test_a_failed_rewind_keeps_the_log(log, monkeypatch):
    log.append(1, loss=1.0)
    log.append(2, loss=0.5)
    before = log.path.read_bytes()

    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(RunError, match=r"metrics\.jsonl: No space left"):
        log.rewind(1)
    assert log.path.read_bytes() == before
    assert os.listdir(log.path.parent) == ["metrics.jsonl"]


def test_the_best_validation_is_the_first_of_equals(log):
    assert log.best_validation() == (None, 0)
    found = []
    for step, accuracy in enumerate([0.2, 0.5, 0.4, 0.6, 0.6, 0.5], start=1):
        log.append(step, val_accuracy=accuracy)
        found.append(log.best_validation())
    assert found == [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2)]
    # A run that goes on after step 4 decides by the same.
    log.rewind(4)
    assert log.best_validation() == (4, 0)
