"""Exports as the command writes them, and what they should answer."""

import pkgutil

import numpy as np

from train.export.formats import FORMATS
from train.models.exports import exported_model
from train.models.exports.writing import body_and_head


def write(name, model, folder, **options):
    """Writes one format; returns the path that `exported_model.load` takes."""
    row = FORMATS[name]
    path = folder / row.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if "precision" in row.takes:
        options["precision"] = row.precision
    pkgutil.resolve_name(row.runtime.writer)(model, path, **options)
    return path


def images_for(model, count=3):
    shape = (count, *model.input_shape[1:])
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def expected(model, images, output):
    """What a file answers: logits come before any activation of the head."""
    body, head = body_and_head(model)
    if output != "logits":
        return np.asarray(model(images))
    return np.asarray(body(images)) @ np.asarray(head.kernel) + np.asarray(head.bias)


def check(path, model, tolerance):
    """Runs a file with one image and with three; `tolerance` is of the largest."""
    found, images = exported_model.in_its_runtime(path), images_for(model)
    assert found.image_shape == images.shape[1:]
    wanted = expected(model, images, found.output)
    assert found.output_shape[1:] == wanted.shape[1:]
    for count in (1, 3):
        outputs = found.run(images[:count])
        assert outputs.dtype == np.float32
        limit = tolerance * np.abs(wanted).max()
        np.testing.assert_allclose(outputs, wanted[:count], rtol=0, atol=limit)
    return found
