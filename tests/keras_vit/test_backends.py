import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import pytest

HERE = pathlib.Path(__file__).parent
# The files that a process of another backend runs: not this one.
FILES = (
    "../train/baselines/test_bit_resnet.py",
    "test_explain_functions.py",
    "test_frozen.py",
    "test_initial_values.py",
    "test_layers.py",
    "test_lean.py",
    "test_positions.py",
    "test_predictor.py",
    "test_preprocessing.py",
    "test_quantization.py",
    "test_remat.py",
    "test_resizing.py",
    "test_weights.py",
)
OTHERS = {"tensorflow", "jax", "torch"} - {keras.backend.backend()}


@pytest.mark.slow
@pytest.mark.parametrize("backend", sorted(OTHERS))
def test_the_other_backends_pass_the_same_tests(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    check = f"import keras; assert keras.backend.backend() == {backend!r}"
    arguments = ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
    code = f"{check}; import pytest; raise SystemExit(pytest.main({arguments!r} + "
    code += f"{[str(HERE / name) for name in FILES]!r}))"
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=HERE.parent.parent,
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            # JAX compiles every operation: fast compilation beats fast code here.
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
