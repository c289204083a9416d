"""Writer of TFLite files, for LiteRT on phones and small machines."""

import collections
import os
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from keras_vit.runtimes import litert
from keras_vit.runtimes.precision import in_float32
from train.common import packages
from train.common.errors import RunError
from train.common.files import whole_file
from train.export.formats import TFLITE
from train.export.tflite.metadata import add_metadata, append_files
from train.export.tflite.quantization import products, quantize
from train.models.exports import writing
from train.models.exports.writing import body_and_head, has_head, logits_of

PRECISIONS = ("float32", "float16", "dynamic", "int8")

# The limit of flatbuffers, less room for what is not weights.
_MOST_BYTES = 2**31 - 2**24
# Bytes per parameter.
_SIZES = {"float32": 4, "float16": 2, "dynamic": 1}


def write_tflite(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    precision: str = "float32",
    calibration: np.ndarray | None = None,
    min_agreement: float | None = None,
    class_names: Sequence[str] | None = None,
    dynamic_batch: bool = False,
    uint8: bool = False,
) -> dict[str, int]:
    """Writes a model as a TFLite file of built-in operations.

    The file has one signature, `serving_default`, from `images` in [-1, 1], of the
    model's size, to `logits` before any activation of the head, or to `features` of a
    model without head.

    - `"float32"` and `"float16"`: weights of that precision, computed in float32 by the
      CPU.
    - `"dynamic"`: matrices in int8, one scale per output channel, multiplied in int8
      with a scale per token that is computed at run time; the rest is float32.
    - `"int8"`: matrix products in int8 throughout, with one fixed scale for the input
      and one for the output, as accelerators need; those that such a scale would make
      wrong stay more precise, see `train.export.tflite.quantization.quantize`.

    Args:
        model: a model of `keras_vit`, with or without head.
        path: str or path of the file.
        precision: str, one of the above.
        calibration: float32 images (images, height, width, channels) in [-1, 1], like
            those that the model is for: a hundred are enough. int8 and `min_agreement`
            need them.
        min_agreement: float in [0, 1], of dynamic and int8: the share of images whose
            most likely class should stay the same. As few matrices as that takes, by
            an estimate from `calibration`, are kept in float16.
        class_names: sequence of str in the order of the logits, packed into the file.
        dynamic_batch: bool, whether `resize_tensor_input` may set a batch size.
        uint8: bool, of int8 only, whether the input are pixels and the logits uint8,
            with the scale and zero point of the tensors.

    Returns:
        Dict, the number of matrices by kind: static, dynamic, float16 and float32.

    Raises:
        ValueError: an argument is unknown or does not fit the others.
        RunError: the model cannot be converted, the file not written, or a package is
            missing.

    Source:
        https://ai.google.dev/edge/litert.

    Example:
        >>> model = keras_vit.VisionTransformer("ViT-Ti_16", image_size=32, classes=2)
        >>> write_tflite(model, "model.tflite", class_names=["cat", "dog"])
        {'float32': 74}
    """
    writing.check(model, class_names)
    output = "logits" if has_head(model) else "features"
    _check(
        model,
        output,
        precision,
        calibration=calibration,
        min_agreement=min_agreement,
        uint8=uint8,
    )
    packages.need("TFLite", TFLITE.packages, extra="export")
    model = in_float32(model)
    is_own = precision == "int8" or min_agreement is not None
    content = _converted(model, "float32" if is_own else precision, dynamic_batch)
    if is_own:
        content = quantize(
            content,
            np.asarray(calibration, "float32"),
            static=precision == "int8",
            min_agreement=min_agreement,
            uint8=uint8,
        )
    kinds = dict(collections.Counter(product.kind for product in products(content)))
    has_names = class_names is not None
    content = add_metadata(content, model, precision, kinds, output, has_names)
    with whole_file(path, "--out") as temporary:
        temporary.write_bytes(content)
        append_files(temporary, writing.facts_of(model), class_names)
    return kinds


def _check(model, output, precision, calibration, min_agreement, uint8):
    shape = model.input_shape[1:]
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}."
        )
    if uint8 and precision != "int8":
        raise ValueError(f'uint8 needs precision="int8", got {precision!r}.')
    if min_agreement is not None:
        _check_agreement(model, output, precision, min_agreement)
    if None in shape:
        raise ValueError(
            f"{model.name} takes images of shape {shape}, and TFLite has one size: "
            "pass keras_vit.at_image_size(model, (height, width))."
        )
    if precision == "int8" or min_agreement is not None:
        _check_calibration(calibration, shape)


def _check_agreement(model, output, precision, min_agreement):
    if precision not in ("dynamic", "int8"):
        raise ValueError(
            f"min_agreement applies to dynamic and int8; {precision} has no int8 "
            "matrices."
        )
    if not 0.0 <= min_agreement <= 1.0:
        raise ValueError(
            f"min_agreement must be between 0 and 1, got {min_agreement!r}."
        )
    if output != "logits" or len(model.output_shape) != 2:
        raise ValueError(
            f"min_agreement is that of an image's class, and {model.name} returns "
            f"{model.output_shape}, its {output}: leave it out."
        )


def _check_calibration(calibration, shape):
    if calibration is None or len(calibration) == 0:
        raise ValueError(
            "int8 and min_agreement need calibration images: pass calibration, "
            f"float32 (images, {', '.join(map(str, shape))}) in [-1, 1]."
        )
    calibration = np.asarray(calibration)
    if calibration.shape[1:] != shape:
        raise ValueError(
            f"calibration must have images of shape {shape}, got "
            f"{calibration.shape[1:]}: resize them."
        )
    if not (np.abs(calibration) <= 1.001).all():
        raise ValueError(
            "calibration must be in [-1, 1], as keras_vit.preprocess_input scales "
            f"images, got {calibration.min()} to {calibration.max()}."
        )


def _converted(model, precision, dynamic_batch):
    """Returns the bytes of a file with one signature."""
    size = _SIZES[precision] * model.count_params()
    if size > _MOST_BYTES:
        raise RunError(
            f"{model.name} would be a TFLite file of {size / 1e9:.1f} GB, and they end "
            "at 2.1 GB: choose tflite-dynamic without min_agreement, or "
            "tflite-float16 where 2 bytes per weight fit, or ONNX."
        )
    body, head = body_and_head(model)

    def call(images: tf.Tensor) -> dict[str, tf.Tensor]:
        features = body(images, training=False)
        if head is None:
            return {"features": features}
        return {"logits": logits_of(head, features)}

    batch = None if dynamic_batch else 1
    images = tf.TensorSpec((batch, *model.input_shape[1:]), tf.float32, name="images")
    try:
        return litert.tflite(model, call, images, precision)
    except ValueError as error:
        raise RunError(str(error)) from error
