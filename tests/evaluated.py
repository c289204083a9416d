"""Small models that are evaluated, and their reports."""

import json

import keras
import numpy as np

import keras_vit

CONFIG = keras_vit.ViTConfig(
    hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16, patch_size=8
)
COLOURS = {"blue": (20, 20, 220), "green": (20, 220, 20), "Red_Hot": (220, 20, 20)}


def tiny(classes, seed=0, **options):
    """A small model whose answers differ from image to image."""
    keras.utils.set_random_seed(seed)
    model = keras_vit.VisionTransformer(
        CONFIG, image_size=32, classes=classes, **options
    )
    head = model.get_layer("head")
    head.kernel.assign(np.random.default_rng(seed).normal(size=head.kernel.shape))
    return model


def report_of(folder):
    return json.loads((folder / "report.json").read_text())
