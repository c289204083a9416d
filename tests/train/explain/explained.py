"""A model's file, and what a report holds, read as a user would."""

import numpy as np
import PIL.Image
import small_models
import tensorflow as tf

from keras_vit import explain

NAMES = ("cat", "dog", "red fox", "<b>owl</b> & co", "crow")
OF_PHOTOS = ("rollout", "gradient", "layers", "features", "heads")
OF_ALL = ("answers", "attention")
OF_MODEL = ("figure_7", "filters", "position_similarity", "attention_distance")


def save(model, folder, names=NAMES):
    """Saves a model, and the names of its classes beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / "tiny.keras")
    lines = "".join(f"{name}\n" for name in names)
    (folder / "class_names.txt").write_text(lines)
    return str(folder / "tiny.keras")


def numbers(out, name):
    """The arrays behind a figure."""
    with np.load(out / "numbers" / f"{name}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


def check(out, name, rtol=1e-4, atol=1e-6, **expected):
    """Compares arrays behind a figure."""
    found = numbers(out, name)
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=rtol, atol=atol)


def check_map(out, name, model, matrix, *pooling, key="map", **tolerance):
    """Compares a map of patches with the attention that it is of."""
    map = explain.patch_map(matrix, explain.grid_size(model), *pooling)
    check(out, name, **tolerance, **{key: map})


def prepared(path, channels=3):
    """An image as the model takes it, without our own code for that."""
    image = np.asarray(PIL.Image.open(path).convert("RGB"))
    image = tf.image.resize(image, small_models.SIZE)[None] / 127.5 - 1
    return (image if channels == 3 else tf.image.rgb_to_grayscale(image)).numpy()
