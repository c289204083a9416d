"""What docs say of the other backends: the tests that compute most run there too."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import pytest

HERE = pathlib.Path(__file__).parent
# What backends may compute each in its own way: attention, gradients, random numbers
# drawn twice, compiled functions, conversions, and files written and read.
TESTS = (
    "explain/test_explain_functions.py::test_goldens[token]",
    "explain/test_explain_functions.py::test_gradient_attention_equals_small_changes"
    "[token]",
    "layers/test_layers.py::test_attention",
    "layers/test_layers.py::test_class_token_only",
    "layers/test_layers.py::test_gelu_and_its_gradient",
    "layers/test_layers.py::test_std_conv_with_symmetric_padding",
    "layers/test_remat.py::test_gradients_and_seeds_are_those_without[rates2-False]",
    "layers/test_remat.py::test_less_is_kept_for_the_gradient",
    "test_lean.py::test_the_least_arithmetic_gives_the_same[plain]",
    "test_predictor.py::test_answers_as_the_model_does[False]",
    "test_predictor.py::test_sees_new_weights",
    "test_preprocessing.py::test_preprocess_input_in_a_pipeline",
    "weights/test_quantization.py::test_survives_saving_and_cloning[token-float32]",
)
OTHERS = {"tensorflow", "jax", "torch"} - {keras.backend.backend()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.peers) if name == "torch" else name
        for name in sorted(OTHERS)
    ],
)
def test_the_other_backends_pass_the_same_tests(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    check = f"import keras; assert keras.backend.backend() == {backend!r}"
    arguments = ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
    arguments += [str(HERE / name) for name in TESTS]
    code = f"{check}; import pytest; raise SystemExit(pytest.main({arguments!r}))"
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
