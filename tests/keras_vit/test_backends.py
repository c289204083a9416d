"""What docs say of the other backends: they compute and keep what this one does."""

import dataclasses
import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import quick_xla
from harness import flags, gradients, normal, numpy, randomize

import keras_vit
from keras_vit import VisionTransformer, ViTConfig, explain

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
SIZE = (16, 24)
BACKENDS = ("jax", "tensorflow", "torch")
OTHERS = [name for name in BACKENDS if name != keras.backend.backend()]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of small models and what they compute here, for `backend_checks`."""
    folder = tmp_path_factory.mktemp("written")
    images = normal((2, *SIZE, 3))
    arrays = {"images": images}
    models = {}
    for kind, changes in KINDS.items():
        config = dataclasses.replace(PLAIN, **changes)
        pooling = "map" if kind == "attention_pooling" else "token"
        models[kind] = VisionTransformer(
            config, image_size=SIZE, classes=3, pooling=pooling
        )
        randomize(models[kind])
    plain = models["plain"]
    plain.get_layer("head").class_names = ["cat", "dog", "Käfer"]
    models["int8"] = keras_vit.quantize_weights(plain)
    for kind in (
        "plain", "2d", "registers", "rotary", "relative_bias", "attention_pooling",
    ):  # fmt: skip
        resized = keras_vit.at_image_size(models[kind], SIZE[::-1])
        arrays[f"{kind}_resized"] = numpy(resized(np.swapaxes(images, 1, 2)))
    for kind, model in models.items():
        arrays[kind] = numpy(model(images))
        model.save(folder / f"{kind}.keras")
    keras_vit.save_released_weights(plain, folder / "plain.npz")
    arrays["attention"] = explain.attention_maps(plain, images)
    arrays["relevance"] = explain.gradient_attention(plain, images)
    for number, gradient in enumerate(gradients(plain, images, training=True)):
        arrays[f"gradient_{number}"] = gradient
    arrays["photo"] = np.random.RandomState(5).randint(0, 256, (40, 33, 3), np.uint8)
    arrays["embedded"] = keras_vit.embed(plain, arrays["photo"])
    [answer] = keras_vit.classify(plain, arrays["photo"])
    arrays["answer"] = np.array([probability for *_, probability in answer])
    arrays["answer_names"] = np.array([name for _, name, _ in answer])
    arrays["tokens"] = normal((2, 7, 8))
    block = plain.get_layer("encoder_block_1")
    arrays["first"] = numpy(block(arrays["tokens"]))[:, :1]
    plain.trainable = False
    plain.get_layer("encoder_block_1").mlp.trainable = True
    arrays["flags"] = np.array(list(flags(plain).values()))
    plain.save(folder / "frozen.keras")
    np.savez(folder / "written.npz", **arrays)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(name, marks=pytest.mark.peers) if name == "torch" else name
        for name in OTHERS
    ],
)
def test_the_other_backends_compute_and_keep_the_same(backend, written):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    process = subprocess.run(
        [
            sys.executable,
            pathlib.Path(__file__).with_name("backend_checks.py"),
            str(written),
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
