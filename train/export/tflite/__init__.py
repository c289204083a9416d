"""A model as a TFLite file, for LiteRT on phones and small machines."""

import re

import numpy as np
import tensorflow as tf

from keras_vit.lean import lean
from train.common.errors import RunError
from train.common.files import whole_file
from train.export.packages import LITERT, need
from train.export.tflite.metadata import add_metadata, append_labels
from train.export.tflite.products import counts
from train.inference.heads import body_and_head, has_head
from train.inference.model_writing import (
    check_class_names,
    in_float32,
    quiet_tensorflow,
)

PRECISIONS = ("float32", "float16", "dynamic", "int8")

# What flatbuffers can address, less what is not weights.
_MOST_BYTES = 2**31 - 2**24
# Bytes a parameter.
_SIZES = {"float32": 4, "float16": 2, "dynamic": 1}


def write_tflite(
    model,
    path,
    *,
    precision="float32",
    calibration=None,
    min_agreement=None,
    class_names=None,
    dynamic_batch=False,
    uint8=False,
):
    """Writes a model as a TFLite file of built-in operations.

    The file has one signature, `serving_default`, from `images` in [-1, 1], as the
    model takes them, to `logits` before an activation that the head may have, or to
    `features` of a model without head.

    - `"float32"` and `"float16"`: weights of that precision, computed in float32 by the
      CPU.
    - `"dynamic"`: the matrices in int8, one scale an output channel. Their products
      are of int8 too, with a scale that is found for every token when it runs; the
      rest is float32. A quarter of the size and the fastest on a CPU.
    - `"int8"`: matrix products of int8 from start to end, with one fixed scale for
      what goes in and one for what comes out, as accelerators need. What has no such
      scale, or would be wrong with one, stays more precise, see
      `train.export.tflite.quantization.quantized`.

    Args:
        model: a model of `keras_vit`, with or without head.
        path: str or path of the file.
        precision: str, one of `PRECISIONS`.
        calibration: None, or float32 images (images, height, width, channels) in
            [-1, 1], of the kind that the model will see: a hundred do. int8 needs them,
            and `min_agreement`.
        min_agreement: None, or float in [0, 1]: of dynamic and int8, in how many
            images the best class should stay the same. As few matrices as that takes,
            by an estimate from the images of `calibration`, are kept in float16.
        class_names: None, or a sequence of str in the order of the logits, which are
            packed into the file.
        dynamic_batch: bool, whether `resize_tensor_input` may give the images another
            number than 1.
        uint8: bool, of int8 only, whether images go in as pixels and logits come out
            as uint8, with the scale and zero point that the tensors have.

    Returns:
        Dict, how many matrices are computed how: `"static"`, `"dynamic"`, `"float16"`
        and `"float32"`.

    Raises:
        ValueError: an argument is unknown or does not fit the others.
        RunError: the model cannot be converted, or the file not be written; a package
            is missing.

    Source:
        https://ai.google.dev/edge/litert; of the quantisation, see
        `train.export.tflite.quantization`.

    Example:

    >>> model = keras_vit.VisionTransformer("ViT-Ti_16", image_size=32, classes=2)
    >>> write_tflite(model, "model.tflite", class_names=["cat", "dog"])
    {'float32': 74}
    """
    _check(model, precision, calibration, min_agreement, class_names, uint8)
    need("TFLite", LITERT)
    model = in_float32(model)
    estimated = min_agreement is not None
    how = "float32" if precision == "int8" or estimated else precision
    content = _converted(model, how, dynamic_batch)
    if how != precision:
        from train.export.tflite.quantization import quantized

        content = quantized(
            content,
            np.asarray(calibration, "float32"),
            static=precision == "int8",
            min_agreement=min_agreement,
            uint8=uint8,
        )
    computed = counts(content)
    content = add_metadata(
        content,
        name=model.name,
        description=_description(model, precision, computed),
        image_shape=model.input_shape[1:],
        output=_output(model),
        labels=class_names is not None,
    )
    with whole_file(path) as temporary:
        temporary.write_bytes(content)
        if class_names is not None:
            append_labels(temporary, class_names)
    return computed


def _check(model, precision, calibration, min_agreement, class_names, uint8):
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}."
        )
    if uint8 and precision != "int8":
        raise ValueError(f'uint8 needs precision="int8", got {precision!r}.')
    if min_agreement is not None:
        if precision not in ("dynamic", "int8"):
            raise ValueError(
                f"min_agreement is of dynamic and int8; {precision} keeps no matrices "
                "in int8."
            )
        if not 0.0 <= min_agreement <= 1.0:
            raise ValueError(
                f"min_agreement must be between 0 and 1, got {min_agreement!r}."
            )
        if _output(model) != "logits" or len(model.output_shape) != 2:
            raise ValueError(
                f"min_agreement is of an image's class, and {model.name} puts out "
                f"{model.output_shape}, its {_output(model)}: leave it out."
            )
    shape = model.input_shape[1:]
    if None in shape:
        raise ValueError(
            f"{model.name} takes images of shape {shape}: build it for a fixed "
            "image_size."
        )
    if precision == "int8" or min_agreement is not None:
        _check_calibration(calibration, shape)
    if class_names is not None:
        check_class_names(class_names, model)


def _check_calibration(calibration, shape):
    if calibration is None or len(calibration) == 0:
        raise ValueError(
            "int8 and min_agreement need images to calibrate on: pass calibration, "
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
            "tflite-float16 where 2 bytes a weight fit, or ONNX."
        )
    body, head = body_and_head(model)
    context = lean(body)

    def call(images):
        with context():
            features = body(images, training=False)
        if head is None:
            return {"features": features}
        return {"logits": tf.matmul(features, head.kernel) + head.bias}

    batch = None if dynamic_batch else 1
    images = tf.TensorSpec((batch, *model.input_shape[1:]), tf.float32, name="images")
    module = tf.Module()
    module.variables_of_model = [variable.value for variable in model.variables]
    module.call = tf.function(call, input_signature=[images], autograph=False)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.call.get_concrete_function()], module
    )
    # Weights as constants, not as variables that somebody would have to set.
    converter.experimental_enable_resource_variables = False
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        with quiet_tensorflow():
            return converter.convert()
    # Its errors have no public class.
    except Exception as error:
        raise RunError(_why_not(model, str(error))) from error


def _why_not(model, error):
    missing = dict.fromkeys(re.findall(r"'(tf\.\w+)' op is neither", error))
    if not missing:
        lines = error.strip().splitlines() or ["no reason was given"]
        return f"{model.name} cannot be converted to TFLite: {lines[0]}"
    return (
        f"{model.name} computes {', '.join(missing)}, for which TFLite has no built-in "
        "operation: export it as a SavedModel or ONNX, or replace the layer that does."
    )


def _output(model):
    return "logits" if has_head(model) else "features"


def _description(model, precision, computed):
    kinds = ", ".join(f"{number} {kind}" for kind, number in computed.items())
    height, width, channels = model.input_shape[1:]
    return (
        f"A Vision Transformer for images of {height}x{width}x{channels}, exported by "
        f"keras_vit as {precision}. Products with weights: {kinds}."
    )
