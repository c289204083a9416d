"""Variants of one block through every writer: sizes that small models do not have."""

import dataclasses

import numpy as np
import pytest
import small_models
from harness import randomize

import zoo
from keras_vit import VisionTransformer, ViTConfig

tf = pytest.importorskip("tensorflow")
litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="pip install '.[export]'"
)
onnxruntime = pytest.importorskip("onnxruntime")

from train.export.onnx import write_onnx  # noqa: E402
from train.export.tflite import write_tflite  # noqa: E402
from train.models.exports.saved_model import write_saved_model  # noqa: E402

# Of the largest logit; the many convolutions of R50 add up more rounding.
TOLERANCE, HYBRID_TOLERANCE = 2e-5, 1e-4


def smallest(config):
    """The fewest pixels a side that make a patch."""
    side = 1
    while True:
        try:
            config.grid_size((side, side), name="")
        except ValueError:
            side += 1
        else:
            return side


@pytest.mark.parametrize(
    ("variant", "narrower"),
    [
        # Its odd patches and head size, in an eighth of the width.
        ("ViT-H_14", {"hidden_size": 160, "num_heads": 2, "mlp_dim": 640}),
        (
            "R+ViT-Ti_16",
            {"hidden_size": 24, "num_heads": 3, "mlp_dim": 40, "resnet_width": 32},
        ),
    ],
)
def test_every_writer_writes_it(variant, narrower, tmp_path, monkeypatch):
    seen = small_models.seen_by(monkeypatch)
    check(variant, tmp_path, seen, **narrower)


@pytest.mark.soak
def test_every_variant_at_full_width(tmp_path, monkeypatch):
    seen = small_models.seen_by(monkeypatch)
    for variant in zoo.VARIANTS:
        check(variant, tmp_path, seen)


def check(variant, tmp_path, seen, **changes):
    """Compares what three files of a variant with one block compute with the model.

    `seen` grows as `small_models.seen_by` says: no writer computes unused tokens.
    """
    sizes = dataclasses.asdict(zoo.VARIANTS[variant])
    config = ViTConfig(**sizes | {"num_layers": 1} | changes)
    side = smallest(config)
    model = VisionTransformer(config, image_size=side, classes=3)
    randomize(model)
    images = np.random.default_rng(0).uniform(-1, 1, (1, side, side, 3))
    images = images.astype("float32")
    expected = np.asarray(model(images))

    seen.clear()
    write_saved_model(model, tmp_path / "saved_model")
    assert seen and all(seen)
    seen.clear()
    loaded = tf.saved_model.load(tmp_path / "saved_model")
    signature = loaded.signatures["serving_default"]
    answers = {"SavedModel": signature(tf.constant(images))["logits"].numpy()}

    write_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    answers["ONNX"] = session.run(None, {"images": images})[0]

    write_tflite(model, tmp_path / "model.tflite")
    assert seen and all(seen)
    run = litert.Interpreter(str(tmp_path / "model.tflite"))
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], images)
    run.invoke()
    answers["TFLite"] = run.get_tensor(run.get_output_details()[0]["index"])

    tolerance = HYBRID_TOLERANCE if config.is_hybrid else TOLERANCE
    for name, found in answers.items():
        error = np.abs(found - expected).max() / np.abs(expected).max()
        assert error < tolerance, (variant, name)
