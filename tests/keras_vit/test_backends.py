"""What docs say of the other backends: they compute and keep what this one does."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import backend_checks
import keras
import numpy as np
import pytest
import quick_xla
import small_models

import keras_vit

KINDS = (
    "plain",
    "rows and columns before every block",
    "relative",
    "registers",
    "relative biases",
    "rotary, attention pooling",
    "hybrid",
)
OTHERS = {"jax", "tensorflow", "torch"} - {keras.backend.backend()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of small models, for `backend_checks`."""
    folder = tmp_path_factory.mktemp("written")
    for kind in KINDS:
        options = {"image_size": backend_checks.SIZE, "classes": 3}
        model = small_models.made(**small_models.MODELS[kind] | options)
        model.get_layer("head").class_names = ["cat", "dog", "Käfer"]
        model.save(folder / f"{kind}.keras")
        if kind == "plain":
            keras_vit.save_released_weights(model, folder / "plain.npz")
            keras_vit.quantize_weights(model).save(folder / "int8.keras")
            model.trainable = False
            model.get_layer("encoder_block_1").mlp.trainable = True
            model.save(folder / "frozen.keras")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.peers) if name == "torch" else name
        for name in sorted(OTHERS)
    ],
)
def test_the_other_backends_compute_and_keep_the_same(backend, folder):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [sys.executable, backend_checks.__file__, str(folder)],
        cwd=pathlib.Path(__file__).parents[2],
        env={
            **os.environ,
            "PYTHONPATH": os.getcwd(),
            "KERAS_BACKEND": backend,
            # JAX compiles every operation: fast compilation beats fast code here.
            "XLA_FLAGS": quick_xla.flags(),
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    # keras_vit says nothing and imports no other framework, which is checked there.
    before, _, after = process.stderr.partition("IMPORTED\n")
    assert after.startswith("QUIET\n")
    assert backend == "tensorflow" or before == ""
    expected = backend_checks.computed(folder)
    with np.load(folder / "found.npz") as found:
        assert set(found.files) == expected.keys()
        for name, array in expected.items():
            tolerance = 1e-4 if name.startswith("gradient") else 1e-5
            exact = name.startswith(("flags", "released", "int8 "))
            np.testing.assert_allclose(
                found[name], array, rtol=0, atol=0 if exact else tolerance
            )
    assert {False, True} == {*expected["flags 0"]}
