"""The jobs of `benchmarks.exported`: networks written by libraries, and run.

`folder` holds what all of them share, made once by the command: the network's weights,
the images, and those to calibrate with.
"""

import pathlib
import tempfile
from typing import NamedTuple

import numpy as np

from benchmarks.exported_images import scaled
from train.export import runtimes
from train.export.formats import FORMATS

WEIGHTS = "weights.safetensors"
IMAGES, CALIBRATION = "images.npy", "calibration.npy"
RUNTIMES = {
    "saved_model": ("tensorflow",),
    "tflite": ("ai_edge_litert",),
    "onnx": ("onnxruntime",),
}


class Library(NamedTuple):
    """What exports.

    Args:
        label: str, what tables call it.
        job: str, the name of its writer here, and of its own model's answers with
            "_answers" behind it.
        imports: names of the packages it needs.
        formats: names in `FORMATS` of what it can write, or says it can.
        channels_first: bool, whether its networks take images so.
    """

    label: str
    job: str
    imports: tuple[str, ...]
    formats: tuple[str, ...]
    channels_first: bool = False


OURS = Library(
    "keras_vit",
    "benchmarks.exported_jobs:ours",
    ("tensorflow", "keras_vit"),
    tuple(FORMATS),
)
PEERS = {
    "keras-hub": Library(
        "keras-hub",
        "benchmarks.exported_jobs:keras_hub",
        ("tensorflow", "keras_hub"),
        tuple(name for name in FORMATS if name != "onnx-float16"),
    ),
    "timm": Library(
        "timm",
        "benchmarks.exported_jobs:timm",
        ("torch", "timm"),
        ("onnx", "onnx-float16"),
        channels_first=True,
    ),
}


def run(folder, form, path, threads, answers, channels_first):
    """Runs an export on all images, one at a time; a step is one of them.

    Args:
        folder: str, see above.
        form: str, in `FORMATS`.
        path: str, of the export.
        threads: int, that its runtime computes with.
        answers: str, path of the file for the logits.
        channels_first: bool, whether it takes images so.
    """
    logits, _ = getattr(runtimes, FORMATS[form].runtime.name)(path, threads)
    images = _images(folder)

    def taken(index):
        image = scaled(images[index : index + 1])
        if channels_first:
            image = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
        return image

    rows = [logits(taken(index)) for index in range(len(images))]
    np.save(answers, np.concatenate(rows))
    image = taken(0)
    return lambda: logits(image)


def ours(folder, form, path):
    """Writes an export with our own writers."""
    model = _ours(folder)
    kind, precision = FORMATS[form].runtime.name, FORMATS[form].precision
    if kind == "saved_model":
        from train.inference.saved_model import write_saved_model

        write_saved_model(model, path)
    elif kind == "onnx":
        from train.export.onnx import write_onnx

        write_onnx(model, path, precision=precision)
    else:
        from train.export.tflite import write_tflite

        images = scaled(_calibration(folder)) if precision == "int8" else None
        write_tflite(model, path, precision=precision, calibration=images)
    return _done


def ours_answers(folder, answers):
    """Writes what the Keras model answers."""
    import keras_vit

    logits = keras_vit.Predictor(_ours(folder), runtimes.BATCH)
    np.save(answers, logits(scaled(_images(folder))))
    return _done


def keras_hub(folder, form, path):
    """Writes an export with `Model.export`."""
    model = _keras_hub(folder)
    if FORMATS[form].runtime.name == "saved_model":
        model.export(path, format="tf_saved_model", verbose=False)
    elif FORMATS[form].runtime.name == "onnx":
        model(_images(folder)[:1].astype("float32"))  # or it would refuse
        model.export(path, format="onnx", verbose=False)
    else:
        options = _litert_options(FORMATS[form].precision, folder)
        model.export(path, format="litert", verbose=False, **options)
    return _done


def keras_hub_answers(folder, answers):
    """Writes what keras-hub's model answers."""
    model = _keras_hub(folder)
    images = scaled(_images(folder))
    np.save(answers, model.predict(images, batch_size=runtimes.BATCH, verbose=0))
    return _done


def timm(folder, form, path):
    """Writes an export with `torch.onnx.export`."""
    import torch

    dtype = {"float32": torch.float32, "float16": torch.float16}
    dtype = dtype[FORMATS[form].precision]
    model = _timm(folder).to(dtype)
    images = scaled(_images(folder)[:1]).transpose(0, 3, 1, 2)
    torch.onnx.export(
        model, (torch.from_numpy(images).to(dtype),), path, dynamo=True, verbose=False
    )
    return _done


def timm_answers(folder, answers):
    """Writes what timm's model answers."""
    import torch

    model, images = _timm(folder), _images(folder)
    rows = []
    with torch.inference_mode():
        for start in range(0, len(images), runtimes.BATCH):
            batch = scaled(images[start : start + runtimes.BATCH])
            rows.append(model(torch.from_numpy(batch.transpose(0, 3, 1, 2))).numpy())
    np.save(answers, np.concatenate(rows))
    return _done


def _done():
    """The step of a job whose work is its set-up."""


def _images(folder):
    return np.load(pathlib.Path(folder, IMAGES), mmap_mode="r")


def _calibration(folder):
    return np.load(pathlib.Path(folder, CALIBRATION))


def _ours(folder):
    import keras_vit

    return keras_vit.load_model(pathlib.Path(folder, WEIGHTS))


def _litert_options(precision, folder):
    """What the guides of LiteRT's converter say to set, for a batch of one image."""
    import tensorflow as tf

    shape = (1, *_images(folder).shape[1:])
    options = {"input_signature": [tf.TensorSpec(shape, "float32")]}
    if precision == "float32":
        return options
    options["optimizations"] = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        options["target_spec"] = {"supported_types": [tf.float16]}
    if precision == "int8":
        images = scaled(_calibration(folder))
        options["representative_dataset"] = lambda: ([image[None]] for image in images)
        int8 = tf.lite.OpsSet.TFLITE_BUILTINS_INT8
        options["target_spec"] = {"supported_ops": [int8]}
    return options


def _keras_hub(folder):
    """Its classifier, with the weights in the places where ours reads them."""
    import h5py
    import keras_hub

    import zoo
    from zoo.files import keras_hub as written
    from zoo.files.names import foreign_name

    checkpoint = zoo.read(pathlib.Path(folder, WEIGHTS))
    if checkpoint.resnet_stages is not None or len(set(checkpoint.patch_size)) > 1:
        raise ValueError("keras-hub has neither hybrids nor patches that are oblong.")
    backbone = keras_hub.models.ViTBackbone(
        image_shape=_images(folder).shape[1:],
        patch_size=checkpoint.patch_size[0],
        num_layers=checkpoint.num_layers,
        num_heads=checkpoint.num_heads,
        hidden_dim=checkpoint.hidden_size,
        mlp_dim=checkpoint.mlp_dim,
        layer_norm_epsilon=checkpoint.semantics.layer_norm_epsilon,
        use_class_token=checkpoint.class_token,
    )
    model = keras_hub.models.ViTImageClassifier(
        backbone,
        num_classes=checkpoint.classes,
        pooling="token" if checkpoint.class_token else "gap",
    )
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "keras_hub.weights.h5"
        model.save_weights(path)
        with h5py.File(path, "r+") as file:
            keys = []
            file.visit(
                lambda key: keys.append(key) if hasattr(file[key], "shape") else None
            )
            places = {name: key for key, name in written.select(keys)[0].items()}
            for released, array in checkpoint.arrays.items():
                place = file[places.pop(foreign_name(written.COLUMN, released))]
                place[...] = np.asarray(array).reshape(place.shape)
        if places:
            raise ValueError(f"Nothing is known of keras-hub's {', '.join(places)}.")
        model.load_weights(path)
    return model


def _timm(folder):
    """Its model, loaded from what `python -m zoo convert --naming=timm` writes."""
    import timm

    import zoo

    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "model.safetensors"
        zoo.write(path, zoo.read(pathlib.Path(folder, WEIGHTS)), naming="timm")
        model = timm.create_model(f"local-dir:{temporary}", pretrained=True)
    return model.eval()
