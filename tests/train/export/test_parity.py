"""Exports run in processes of their own, and compared with the model."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf
from scipy.spatial.distance import cosine

from train.common.errors import RunError
from train.export import parity, program

RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-1, 1, (11, 8, 8, 3)).astype("float32")
KERNEL = RNG.normal(size=(192, 5)).astype("float32")
EXPECTED = IMAGES.reshape(11, -1) @ KERNEL


@pytest.fixture
def images(tmp_path, monkeypatch):
    """The images in a file, in batches of which the last is smaller."""
    monkeypatch.setattr(parity, "_TIMED_SECONDS", 0.01)
    path = tmp_path / "images"
    assert program.write_images(path, np.split(IMAGES, [8])) == 11
    return path


def tflite(path, *, uint8=False):
    """Writes a linear model, with nothing but TensorFlow's own converter."""
    pytest.importorskip("ai_edge_litert")
    linear = tf.function(lambda images: tf.reshape(images, (-1, 192)) @ KERNEL)
    signature = linear.get_concrete_function(tf.TensorSpec((1, 8, 8, 3)))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([signature])
    if uint8:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([image[None]] for image in IMAGES)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.uint8
    path.write_bytes(converter.convert())
    return path


def test_tflite_in_a_process_of_its_own(images, tmp_path):
    path = tflite(tmp_path / "model.tflite")
    found, facts = parity.run("tflite", path, images, threads=1)
    np.testing.assert_allclose(found, EXPECTED, rtol=1e-5, atol=1e-5)
    assert facts["one_by_one"]
    assert re.fullmatch(r"LiteRT \d+\.\d+.*", facts["version"])
    assert sorted(facts["latency"]) == ["1", "8"] and min(facts["latency"].values()) > 0
    # TensorFlow alone takes more: this process has not imported it.
    assert 10e6 < facts["peak_bytes"] < 200e6
    path.write_bytes(b"damaged " * 100)
    with pytest.raises(RunError, match="tflite-int8 does not run.*: ValueError: .*"):
        parity.run("tflite-int8", path, images, threads=1)


def test_uint8_in_and_out(tmp_path):
    """Within what one step of 8 bits is, in and out."""
    path = tflite(tmp_path / "model.tflite", uint8=True)
    found = program.load(path, threads=1)[0](IMAGES)
    assert 0 < np.abs(found - EXPECTED).max() < 0.05 * np.abs(EXPECTED).max()
    # All that it can answer lies on one lattice.
    gaps = np.diff(np.unique(found))
    steps = gaps / gaps.min()
    assert steps.max() > 2
    np.testing.assert_allclose(steps, steps.round(), rtol=1e-3)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "kill -9 $$",
            RunError,
            "onnx does not run.*signal 9, perhaps for lack",
        ),
        ("echo 1 >&2; echo 2 >&2; exit 134", RunError, "not run.*status 134: 1 2"),
        # This process is stopped.
        ("echo not JSON\nexec sleep 60", ValueError, "Expecting value"),
    ],
)
def test_a_process_that_fails_is_named_and_gone(
    text, error, message, images, tmp_path, monkeypatch
):
    python, pid = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {pid}\n{text}\n")
    python.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(error, match=message):
        parity.run("onnx", "model.onnx", images, threads=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_top_1_and_accuracy_by_hand():
    expected = np.array([[3.0, 1, 2], [0, 5, 1], [1, 0, 4], [2, 1, 0]])
    found = expected + np.array([[0.0, 0, 0.5], [0, -4.5, 0], [0, 0, 0], [0, 0, 0]])
    labels = np.array([0, 1, 2, 1])
    compared = parity.compare(found, expected, top_1=True, labels=labels)
    assert compared["agreement"] == 3 / 4 and compared["accuracy"] == 2 / 4
    assert compared["largest_error"] == 4.5 and compared["not_finite"] == 0
    assert compared["accuracy_low"] < 1 / 2 < compared["accuracy_high"]
    # Wilson's interval of 3 of 4, by its formula.
    z, n, p = 1.959964, 4, 3 / 4
    middle = (p + z**2 / 2 / n) / (1 + z**2 / n)
    half = z * np.sqrt(p * (1 - p) / n + z**2 / 4 / n**2) / (1 + z**2 / n)
    assert compared["agreement_low"] == pytest.approx(middle - half, abs=1e-6)
    assert compared["agreement_high"] == pytest.approx(middle + half, abs=1e-6)


def test_features_are_compared_by_their_cosine():
    expected, found = RNG.normal(size=(2, 6, 4, 3))
    compared = parity.compare(found, expected, top_1=False)
    rows = zip(found.reshape(6, -1), expected.reshape(6, -1), strict=True)
    own = np.mean([1 - cosine(*row) for row in rows])
    assert compared["agreement"] == pytest.approx(own, abs=1e-12)
    assert "accuracy" not in compared and "agreement_low" not in compared
    zeros = np.zeros((2, 3))
    assert parity.compare(zeros, zeros, top_1=False)["agreement"] == 1
    assert parity.compare(zeros, zeros + 1, top_1=False)["agreement"] == 0
    with pytest.raises(ValueError, match=r"\(2, 3\), the model's of \(2, 4\)"):
        parity.compare(zeros, np.zeros((2, 4)), top_1=True)


@pytest.mark.parametrize("top_1", [True, False])
def test_what_is_not_finite_agrees_with_nothing(top_1):
    expected = RNG.normal(size=(4, 3))
    found = expected.copy()
    found[1, expected[1].argmax()], found[2, 0] = np.inf, np.nan
    labels = expected.argmax(axis=1) if top_1 else None
    compared = parity.compare(found, expected, top_1=top_1, labels=labels)
    assert compared["agreement"] == pytest.approx(2 / 4)
    assert compared["largest_error"] is None and compared["not_finite"] == 2
    assert compared.get("accuracy", 0.5) == 2 / 4
