"""What docs say of the other backends: they compute and keep what this one does."""

import dataclasses
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
from harness import randomize

import keras_vit
from keras_vit import VisionTransformer, ViTConfig

PLAIN = ViTConfig(hidden_size=8, num_layers=2, num_heads=2, mlp_dim=16, patch_size=8)
KINDS = {
    "plain": {},
    "2d": {"position_embedding": "2d"},
    "relative": {"position_embedding": "relative"},
    "registers": {
        "layer_scale": 0.5,
        "num_registers": 2,
        "tokens_with_positions": "patches",
        "activation": "swiglu",
        "qkv_bias": False,
        "norm_before_blocks": True,
    },
    "rotary": {
        "num_registers": 2,
        "tokens_with_positions": "none",
        "rotary": "dinov3",
        "attention_norm_inside": True,
        "mlp_norm_inside": True,
        "norm_after_branches": True,
        "norm_after_pooling": True,
    },
    "relative_bias": {
        "relative_position_bias": True,
        "relative_position_resizing": "bilinear_no_antialias",
        "tokens_with_positions": "none",
    },
    "attention_pooling": {
        "rotary": "perception",
        "position_resizing": "bicubic",
        "activation": "quick_gelu",
    },
    "hybrid": {
        "patch_size": 2,
        "resnet_stages": (),
        "resnet_width": 32,
        "resnet_padding": "symmetric",
    },
}
BACKENDS = ("jax", "tensorflow", "torch")
OTHERS = [name for name in BACKENDS if name != keras.backend.backend()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of small models, for `backend_checks`."""
    folder = tmp_path_factory.mktemp("written")
    for kind, changes in KINDS.items():
        model = VisionTransformer(
            dataclasses.replace(PLAIN, **changes),
            image_size=backend_checks.SIZE,
            classes=3,
            pooling="map" if kind == "attention_pooling" else "token",
        )
        randomize(model)
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
        for name in OTHERS
    ],
)
def test_the_other_backends_compute_and_keep_the_same(backend, folder):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [
            sys.executable,
            backend_checks.__file__,
            str(folder),
        ],
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
